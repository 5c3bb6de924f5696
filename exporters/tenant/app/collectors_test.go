package app

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"

	"vigia/exporters/tenant/source"
	"vigia/internal/catalog"
	"vigia/internal/daemon"
	"vigia/internal/testutil"
)

// collectorFolders returns the folders beside this one whose package has a type with a
// method Collect, which is what makes it a source.
func collectorFolders(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Collect" && f.Type.Params.NumFields() == 2 {
				out = append(out, filepath.Base(filepath.Dir(file)))
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestEveryFolderOfACollectorIsARow compares the table with the folders.
func TestEveryFolderOfACollectorIsARow(t *testing.T) {
	var rows []string
	for _, c := range collectors() {
		rows = append(rows, c.name)
		if !regexp.MustCompile(`^[a-z][a-z0-9]*$`).MatchString(c.name) {
			t.Errorf("%q is no name", c.name)
		}
		if !strings.HasSuffix(c.help, ".") || c.make == nil || c.phase < source.Identify || c.phase > source.Attribute {
			t.Errorf("the row of %s is not whole: %+v", c.name, c)
		}
		if c.tier != tierAlways && !slices.Contains(tiers(), c.tier) {
			t.Errorf("%s has the unknown tier %q", c.name, c.tier)
		}
	}
	slices.Sort(rows)
	if folders := collectorFolders(t); !slices.Equal(rows, folders) {
		t.Errorf("rows    %v\nfolders %v", rows, folders)
	}
}

func TestEveryRowIsAFlag(t *testing.T) {
	var f flags
	app := kingpin.New("test", "")
	f.register(app)
	flagged := make(map[string]string)
	for _, flag := range app.Model().Flags {
		if name, ok := strings.CutPrefix(flag.Name, "collector."); ok {
			flagged[name] = flag.Help
		}
	}
	for _, c := range collectors() {
		help, ok := flagged[c.name]
		if ok != (c.tier != tierAlways) || ok && help != c.help+" Tier "+c.tier+" and up." {
			t.Errorf("--collector.%s: %v, %q", c.name, ok, help)
		}
		delete(flagged, c.name)
	}
	if len(flagged) > 0 {
		t.Errorf("the flags %v are of no collector", flagged)
	}
}

// TestEveryRowMakesTheSourceOfItsFolder makes all of them, on a node that has what each
// needs.
func TestEveryRowMakesTheSourceOfItsFolder(t *testing.T) {
	r := newRig(t, "kubelet_socket: /run/vigia-test-absent.sock\n")
	server := testutil.NewVSwitch(t, r.node)
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("exporter.yaml", string(content)+"ovsdb: unix:"+server.Socket+"\n")
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	var f flags
	if _, err := parseFlags(&f, "--tier=detail"); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	started, err := f.start(t.Context(), daemon.Env{
		ConfigPath: r.config, Logger: promslog.NewNopLogger(), Registry: registry, Metrics: c.NewFactory("exporter", registry), Mux: http.NewServeMux(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := started.(*service)
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil { // closes what was opened
			t.Error(err)
		}
	}()
	made, err := s.collect(&f, c.NewFactory("exporter", prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if folder := path.Base(reflect.TypeOf(m.Source).Elem().PkgPath()); folder != m.Name {
			t.Errorf("the row %s makes a source of the folder %s", m.Name, folder)
		}
	}
	if len(made) != len(collectors()) {
		t.Errorf("%d of %d rows made something", len(made), len(collectors()))
	}
}

// parseFlags reads a command line.
func parseFlags(f *flags, args ...string) (string, error) {
	app := kingpin.New("test", "")
	f.register(app)
	return app.Parse(args)
}
