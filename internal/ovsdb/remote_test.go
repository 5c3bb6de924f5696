package ovsdb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/testutil"
)

func TestRemotesAreChecked(t *testing.T) {
	files := newAuthority(t).issue(t, "client")
	for _, tc := range []struct {
		remote string
		tls    TLS
		want   string
	}{
		{"unix:/run/x.sock", TLS{}, ""},
		{"tcp:10.0.0.1:6642", TLS{}, ""},
		{"tcp:[fd00::1]:6642", TLS{}, ""},
		{"ssl:10.0.0.1:6642", files, ""},
		{"unix:", TLS{}, "write unix:PATH"},
		{"/run/x.sock", TLS{}, "write unix:PATH"},
		{"tcp:10.0.0.1", TLS{}, "write unix:PATH"},
		{"tcp::6642", TLS{}, "write unix:PATH"},
		{"ssl:10.0.0.1:6642", TLS{}, "needs ca_file, cert_file and key_file"},
		{"ssl:10.0.0.1:6642", TLS{CA: "/absent", Certificate: files.Certificate, Key: files.Key}, "read ca_file"},
		{"ssl:10.0.0.1:6642", TLS{CA: files.Key, Certificate: files.Certificate, Key: files.Key}, "has no certificate"},
		{"ssl:10.0.0.1:6642", TLS{CA: files.CA, Certificate: files.CA, Key: files.Key}, "read cert_file and key_file"},
	} {
		err := CheckRemote(tc.remote, tc.tls)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", tc.remote, err, tc.want)
		}
	}
}

func TestReplicaOverTLSTrustsItsAuthorityAlone(t *testing.T) {
	good, other := newAuthority(t), newAuthority(t)
	server := good.issue(t, "server")
	s := testutil.NewOVSDBServer(t, "--private-key="+server.Key, "--certificate="+server.Certificate, "--ca-cert="+good.file)
	s.VSCtl("add-br", "br0")
	address := testutil.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	s.AppCtl("ovsdb-server/add-remote", "pssl:"+port+":"+host)

	run := func(files TLS) *Replica {
		r, err := NewReplica("ssl:"+address, "Open_vSwitch", Columns{"Bridge": {"name"}}, promslog.NewNopLogger(), WithTLS(files))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		ctx := t.Context()
		go func() { r.Run(ctx); close(done) }()
		t.Cleanup(func() { <-done })
		return r
	}
	client := good.issue(t, "client")
	r := run(client)
	testutil.WaitFor(t, "a copy over TLS", func() bool { tables, err := r.Tables(); return err == nil && len(tables["Bridge"]) == 1 })
	r = run(TLS{CA: other.file, Certificate: client.Certificate, Key: client.Key})
	testutil.WaitFor(t, "the foreign server to be refused", func() bool {
		_, err := r.Tables()
		return err != nil && strings.Contains(err.Error(), "certificate signed by unknown authority")
	})
}

// authority is a certificate authority as ovs-pki makes one: certificates carry
// no host names.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	a.file = writePEM(t, "CERTIFICATE", a.sign(t, a.cert, a.key))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// issue makes a certificate and returns the files that its holder needs.
func (a *authority) issue(t *testing.T, name string) TLS {
	t.Helper()
	key := newKey(t)
	der := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, key)
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return TLS{CA: a.file, Certificate: writePEM(t, "CERTIFICATE", der), Key: writePEM(t, "EC PRIVATE KEY", raw)}
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
