package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestWhoMayReload(t *testing.T) {
	token := file(t, "token", reloadToken+"\n")
	users := file(t, "web.yml", "basic_auth_users: {ops: $2y$10$abcdefghijklmnopqrstuu}\n")
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	bearer := "Bearer " + reloadToken
	for name, tc := range map[string]struct {
		gate    reloadGate
		headers map[string]string
		tls     *tls.ConnectionState
		code    int
	}{
		"nobody without a way to be known":    {reloadGate{}, nil, nil, 403},
		"nor with a token that nobody knows":  {reloadGate{}, map[string]string{"Authorization": bearer}, nil, 403},
		"nor with an empty web configuration": {reloadGate{webConfig: file(t, "empty.yml", "{}\n")}, nil, nil, 403},
		"nor with TLS alone":                  {reloadGate{}, nil, &tls.ConnectionState{}, 403},
		"who has a certificate":               {reloadGate{}, nil, verified, 0},
		"whom the password let in":            {reloadGate{webConfig: users}, nil, nil, 0},
		"who shows the token":                 {reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer}, nil, 0},
		"not who shows none":                  {reloadGate{tokenFile: token}, nil, nil, 401},
		"nor an empty one":                    {reloadGate{tokenFile: token}, map[string]string{"Authorization": "Bearer "}, nil, 401},
		"nor a wrong one":                     {reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer + "x"}, nil, 401},
		"nor the right one in another scheme": {reloadGate{tokenFile: token}, map[string]string{"Authorization": "Basic " + reloadToken}, nil, 401},
		"nor anybody while the token is gone": {reloadGate{tokenFile: token + ".gone"}, map[string]string{"Authorization": bearer}, nil, 500},
		"nor while the configuration is gone": {reloadGate{webConfig: users + ".gone"}, nil, nil, 500},
		"nor while it is no YAML":             {reloadGate{webConfig: file(t, "bad.yml", "\t:")}, nil, nil, 500},
		"a page of ours": {
			reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer, "Origin": "http://probe:9871", "Sec-Fetch-Site": "same-origin"}, nil, 0,
		},
		"not another site's page, by its origin": {
			reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer, "Origin": "http://evil.example"}, nil, 403,
		},
		"nor with the same name at another port": {
			reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer, "Origin": "http://probe:80"}, nil, 403,
		},
		"nor one without a name": {reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer, "Origin": "null"}, nil, 403},
		"nor one that is no URL": {reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer, "Origin": "http://[::1"}, nil, 403},
		"nor by what the browser says": {
			reloadGate{tokenFile: token}, map[string]string{"Authorization": bearer, "Sec-Fetch-Site": "cross-site"}, nil, 403,
		},
		"nor one of a neighbour's":                       {reloadGate{webConfig: users}, map[string]string{"Sec-Fetch-Site": "same-site"}, nil, 403},
		"nor a page that the browser's certificate lets": {reloadGate{}, map[string]string{"Origin": "http://evil.example"}, verified, 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://probe:9871/-/reload", nil)
		r.TLS = tc.tls
		for key, value := range tc.headers {
			r.Header.Set(key, value)
		}
		code, why := tc.gate.refuse(r)
		if code != tc.code || (why == "") != (code == 0) {
			t.Errorf("%s: %d %q, want %d", name, code, why, tc.code)
		}
		if strings.Contains(why, reloadToken) || strings.Contains(why, "$2y$") {
			t.Errorf("%s: the answer shows a secret: %q", name, why)
		}
	}
}

func TestARefusedReloadReadsNothing(t *testing.T) {
	var reloads atomic.Int64
	f := &fake{reload: func(context.Context) error { reloads.Add(1); return nil }}
	in := start(t, f)
	for _, header := range []string{"", "Bearer wrong-token-of-the-tests"} {
		req, err := http.NewRequest(http.MethodPost, in.URL+"/-/reload", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("%q: %s", header, resp.Status)
		}
	}
	if n := reloads.Load(); n != 1 { // the start's own
		t.Errorf("the configuration was taken up %d times", n)
	}
	if code, body := in.do(http.MethodPost, "/-/reload"); code != http.StatusOK {
		t.Errorf("with the token: %d %s", code, body)
	}
}

func TestATokenThatCannotBeReadEndsTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent")
	err := reloadGate{tokenFile: path}.check()
	if err == nil || !strings.Contains(err.Error(), "--web.reload-token-file "+path) || !strings.Contains(err.Error(), "mode 0600") {
		t.Errorf("got %v", err)
	}
	if err := (reloadGate{}).check(); err != nil {
		t.Error(err)
	}
}
