package ovsdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// TLS names the files for ssl: remotes, all PEM.
type TLS struct {
	CA          string `yaml:"ca_file"`   // who signs the server's certificate
	Certificate string `yaml:"cert_file"` // our own
	Key         string `yaml:"key_file"`  // its key
}

// Option changes how a replica works.
type Option func(*Replica)

// WithTLS says how ssl: remotes are spoken to.
func WithTLS(t TLS) Option { return func(r *Replica) { r.tls = t } }

// CheckRemote tells whether a remote can be dialled: unix:PATH, tcp:HOST:PORT or
// ssl:HOST:PORT, as ovsdb(7) writes them.
func CheckRemote(remote string, t TLS) error {
	_, address, err := splitRemote(remote)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(remote, "ssl:") {
		return nil
	}
	_, err = t.config(address)
	return err
}

func splitRemote(remote string) (network, address string, err error) {
	scheme, address, _ := strings.Cut(remote, ":")
	switch scheme {
	case "unix":
		if address != "" {
			return "unix", address, nil
		}
	case "tcp", "ssl":
		if host, port, err := net.SplitHostPort(address); err == nil && host != "" && port != "" {
			return "tcp", address, nil
		}
	}
	return "", "", fmt.Errorf("ovsdb %q: write unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT, for example unix:/run/openvswitch/db.sock", remote)
}

// config reads the files, at every connection so that renewed certificates are used.
func (t TLS) config(address string) (*tls.Config, error) {
	if t.CA == "" || t.Certificate == "" || t.Key == "" {
		return nil, errors.New("ssl needs ca_file, cert_file and key_file")
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file %s has no certificate", t.CA)
	}
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("read cert_file and key_file: %w", err)
	}
	return &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, ServerName: host,
		// ovs-pki writes no host names into certificates and no OVN program
		// checks them: as there, being signed by the CA is what counts.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return signedBy(pool, s.PeerCertificates) },
	}, nil
}

func signedBy(pool *x509.CertPool, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the server shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func dialRemote(ctx context.Context, remote string, t TLS) (net.Conn, error) {
	network, address, err := splitRemote(remote)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTimeout}
	if !strings.HasPrefix(remote, "ssl:") {
		return d.DialContext(ctx, network, address)
	}
	c, err := t.config(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return (&tls.Dialer{NetDialer: &d, Config: c}).DialContext(ctx, network, address)
}
