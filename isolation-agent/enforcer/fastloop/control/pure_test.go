package control

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestThePackageIsPure keeps I/O, clocks, locks and goroutines out of the package: what
// drives it passes readings and the time.
func TestThePackageIsPure(t *testing.T) {
	allowed := []string{"cmp", "fmt", "maps", "math", "slices", "time"}
	clocks := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
	prints := []string{"Print", "Printf", "Println", "Fprint", "Fprintf", "Fprintln", "Scan", "Scanf", "Scanln"}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			path, err := strconv.Unquote(imported.Path.Value)
			if err != nil || !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or a channel", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				from, ok := n.X.(*ast.Ident)
				if !ok {
					break
				}
				if from.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
					t.Errorf("%s: time.%s", set.Position(n.Pos()), n.Sel.Name)
				}
				if from.Name == "fmt" && slices.Contains(prints, n.Sel.Name) {
					t.Errorf("%s: fmt.%s", set.Position(n.Pos()), n.Sel.Name)
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
					t.Errorf("%s: %s", set.Position(n.Pos()), f.Name)
				}
			}
			return true
		})
	}
	if seen < 6 {
		t.Errorf("only %d files were looked at", seen)
	}
}
