package configmap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	watchFor   = 240 * time.Second // at least, and half as long again at most; then the object is read again, whatever was missed
	margin     = 30 * time.Second
	askFor     = 20 * time.Second
	pingAfter  = 15 * time.Second // of silence on the connection
	pongWithin = 10 * time.Second
	maxAnswer  = 8 << 20 // one object as JSON, with all that is not its data
	maxToken   = 64 << 10
)

// APIServer is where a cluster's API is, and as who it is asked.
type APIServer struct {
	URL       string // https://HOST:PORT
	TokenFile string
	CAFile    string
}

// InCluster returns what a pod finds in its environment.
func InCluster() APIServer {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	out := APIServer{TokenFile: account + "token", CAFile: account + "ca.crt"}
	if host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"); host != "" && port != "" {
		out.URL = "https://" + net.JoinHostPort(host, port)
	}
	return out
}

func (a *APIServer) validate() error {
	u, err := url.Parse(a.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--api-server %q is not the URL of an API server; write for example https://10.96.0.1:443, or run in a pod", a.URL)
	}
	return nil
}

// client asks an API server.
type client struct {
	at   APIServer
	http *http.Client
}

func newClient(at APIServer) (*client, error) {
	raw, err := os.ReadFile(at.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("--ca-file %s has no certificate; give the authority of the API server's", at.CAFile)
	}
	return &client{at, &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: askFor,
		ForceAttemptHTTP2:   true,
		// A peer that went without a word is noticed, not waited for.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pongWithin},
	}}}, nil
}

// object is what is read of a ConfigMap.
type object struct {
	Data map[string]string `json:"data"`
}

// follow calls back with the content of the key as it is, once when the API server has begun to tell of changes, and each time
// that the ConfigMap changes, until the API server ends its answer, which is no error.
func (c *client) follow(ctx context.Context, of *Config, stands func(), take func(content string) error) error {
	version, err := c.list(ctx, of, take)
	if err != nil {
		return err
	}
	length := watchFor + rand.N(watchFor/2) // nodes that began together do not end together
	ctx, cancel := context.WithTimeout(ctx, length+margin)
	defer cancel()
	body, err := c.get(ctx, of, url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {fmt.Sprint(int(length.Seconds()))},
	})
	if err != nil {
		return err
	}
	defer body.Close()
	stands()
	bounded := &io.LimitedReader{R: body}
	changes := json.NewDecoder(bounded)
	for {
		bounded.N = maxAnswer
		var change struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := changes.Decode(&change); {
		case errors.Is(err, io.EOF) && bounded.N > 0:
			return nil
		case err != nil:
			return fmt.Errorf("reading changes: %w", err)
		}
		switch change.Type {
		case "ADDED", "MODIFIED":
			if err := of.took(change.Object, take); err != nil {
				return err
			}
		case "ERROR": // most often that the version is too old
			return fmt.Errorf("the API server ended the watch: %.200s", change.Object)
		}
	}
}

// list reads the ConfigMap as it is and returns from where on changes are new.
func (c *client) list(ctx context.Context, of *Config, take func(content string) error) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	body, err := c.get(ctx, of, url.Values{})
	if err != nil {
		return "", err
	}
	defer body.Close()
	var listed struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&listed); err != nil {
		return "", fmt.Errorf("reading the list: %w", err)
	}
	for _, item := range listed.Items {
		if err := of.took(item, take); err != nil {
			return "", err
		}
	}
	return listed.Metadata.ResourceVersion, nil
}

// took hands out the key of an object; one that does not have it yet says nothing.
func (c *Config) took(raw json.RawMessage, take func(content string) error) error {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("reading the ConfigMap: %w", err)
	}
	content, there := o.Data[c.Key]
	if !there {
		return nil
	}
	return take(content)
}

// get asks for the one ConfigMap, as a list: a right that names the object covers that.
func (c *client) get(ctx context.Context, of *Config, query url.Values) (io.ReadCloser, error) {
	query.Set("fieldSelector", "metadata.name="+of.Name)
	at := fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps?%s", strings.TrimSuffix(c.at.URL, "/"), url.PathEscape(of.Namespace), query.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	token, err := c.token() // it is exchanged every hour
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusForbidden:
		return nil, fmt.Errorf("403: the service account may not get, list and watch configmaps/%s in %s; grant it in its Role", of.Name, of.Namespace)
	case http.StatusUnauthorized:
		return nil, fmt.Errorf("401: the API server does not take the token of %s", c.at.TokenFile)
	}
	return nil, fmt.Errorf("the API server answers %s", answer.Status)
}

func (c *client) token() (string, error) {
	f, err := os.Open(c.at.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
