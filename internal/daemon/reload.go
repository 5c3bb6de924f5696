package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"vigia/internal/secret"
)

// reloadGate says who may have the program read its configuration again by HTTP:
// who shows the token, or whom --web.config.file has authenticated. A hangup needs neither.
type reloadGate struct {
	tokenFile string // empty without
	webConfig string // empty without
}

// check fails at the start, not at the first reload, if the token cannot be read.
func (g reloadGate) check() error {
	if g.tokenFile == "" {
		return nil
	}
	if _, err := secret.ReadToken(g.tokenFile); err != nil {
		return fmt.Errorf("--web.reload-token-file %s: %w; write a file of mode 0600 with %d to %d characters",
			g.tokenFile, err, secret.MinToken, secret.MaxToken)
	}
	return nil
}

// refuse returns the status and the text for who may not reload; 0 for who may.
func (g reloadGate) refuse(r *http.Request) (code int, why string) {
	if foreign(r) {
		return http.StatusForbidden, "another site's page may not reload this program"
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return 0, ""
	}
	switch users, err := hasUsers(g.webConfig); {
	case err != nil:
		return http.StatusInternalServerError, "cannot read --web.config.file"
	case users:
		return 0, "" // nobody comes this far without a password
	case g.tokenFile == "":
		return http.StatusForbidden, "who reloads has to be known: start with --web.reload-token-file or --web.config.file, or send SIGHUP"
	}
	token, err := secret.ReadToken(g.tokenFile)
	if err != nil {
		return http.StatusInternalServerError, "cannot read --web.reload-token-file"
	}
	if shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || !secret.Equal(token, shown) {
		return http.StatusUnauthorized, "send Authorization: Bearer with the token of --web.reload-token-file"
	}
	return 0, ""
}

// foreign tells whether a browser sends the request for a page that is not ours.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	from, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(from.Host, r.Host)
}

// hasUsers tells whether a web configuration lets nobody in without a password.
func hasUsers(file string) (bool, error) {
	if file == "" {
		return false, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	var parsed struct {
		Users map[string]string `yaml:"basic_auth_users"`
	}
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		return false, errors.New("is not YAML") // what it holds is a secret
	}
	return len(parsed.Users) > 0, nil
}
