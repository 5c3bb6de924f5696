package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// healthcheck asks an instance whether it is ready. With a web configuration
// that has TLS it speaks TLS, and shows the instance its own certificate.
func healthcheck(ctx context.Context, address, webConfig string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	where, err := url.Parse(address)
	if err != nil {
		return &UsageError{fmt.Errorf("--url %q: %w", address, err)}
	}
	security, err := ownTLS(webConfig)
	if err != nil {
		return fmt.Errorf("--web.config.file %s: %w", webConfig, err)
	}
	if security != nil {
		where.Scheme = "https"
	}
	transport := &http.Transport{TLSClientConfig: security}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return &UsageError{fmt.Errorf("--url %q: %w", address, err)}
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", where, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", where, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", where, resp.Status, body)
	}
	_, err = fmt.Fprintf(stdout, "%s: %s", where, body)
	return err
}

// ownTLS returns how to talk to an instance with this web configuration, nil
// without TLS. Its certificate is good for both ends, as vigia certs makes it;
// whom it trusts as a client issued it, or else it is trusted itself.
func ownTLS(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		TLS struct {
			Cert     string `yaml:"cert_file"`
			Key      string `yaml:"key_file"`
			ClientCA string `yaml:"client_ca_file"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		return nil, err
	}
	if parsed.TLS.Cert == "" {
		return nil, nil
	}
	below := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(filepath.Dir(file), path)
	}
	certificate, err := tls.LoadX509KeyPair(below(parsed.TLS.Cert), below(parsed.TLS.Key))
	if err != nil {
		return nil, err
	}
	trusted := parsed.TLS.ClientCA
	if trusted == "" {
		trusted = parsed.TLS.Cert
	}
	authority, err := os.ReadFile(below(trusted))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New(trusted + " has no certificate in PEM")
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}
