package ovsdb

import (
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"

	"vigia/internal/testutil"
)

func TestRemotesAreChecked(t *testing.T) {
	files := issue(testutil.NewAuthority(t), "client")
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
	good, other := testutil.NewAuthority(t), testutil.NewAuthority(t)
	server := issue(good, "server")
	s := testutil.NewOVSDBServer(t, "--private-key="+server.Key, "--certificate="+server.Certificate, "--ca-cert="+good.File)
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
	client := issue(good, "client")
	r := run(client)
	testutil.WaitFor(t, "a copy over TLS", func() bool { tables, err := r.Tables(); return err == nil && len(tables["Bridge"]) == 1 })
	r = run(TLS{CA: other.File, Certificate: client.Certificate, Key: client.Key})
	testutil.WaitFor(t, "the foreign server to be refused", func() bool {
		_, err := r.Tables()
		return err != nil && strings.Contains(err.Error(), "certificate signed by unknown authority")
	})
}

// issue makes a certificate, as ovs-pki does without host names, and returns the files that
// its holder needs.
func issue(a *testutil.Authority, name string) TLS {
	certificate, key := a.Issue(name)
	return TLS{CA: a.File, Certificate: certificate, Key: key}
}
