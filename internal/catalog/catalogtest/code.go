package catalogtest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"testing"

	"golang.org/x/tools/go/packages"
)

// Code is the source of some packages, without their tests.
type Code struct {
	packages []*packages.Package
}

// Load reads packages by their import paths; PATH/... stands for all below.
func Load(t testing.TB, patterns ...string) *Code {
	t.Helper()
	list, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedFiles,
	}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		for _, e := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, e)
		}
	}
	if len(list) == 0 {
		t.Fatalf("no package matches %v", patterns)
	}
	return &Code{list}
}

// each visits every node of every file.
func (c *Code) each(visit func(p *packages.Package, n ast.Node)) {
	for _, p := range c.packages {
		for _, f := range p.Syntax {
			ast.Inspect(f, func(n ast.Node) bool {
				if n != nil {
					visit(p, n)
				}
				return true
			})
		}
	}
}

// Constants returns the values of the string constants of a named type, as Kind or
// source.Kind: those of the packages themselves, or of one that they import.
func (c *Code) Constants(t testing.TB, named string) (values []string) {
	t.Helper()
	for _, p := range c.packages {
		scopes := []*types.Scope{p.Types.Scope()}
		for _, imported := range p.Types.Imports() {
			scopes = append(scopes, imported.Scope())
		}
		for _, scope := range scopes {
			for _, name := range scope.Names() {
				k, ok := scope.Lookup(name).(*types.Const)
				if !ok || k.Val().Kind() != constant.String || types.TypeString(k.Type(), shortName(p.Types)) != named {
					continue
				}
				if v := constant.StringVal(k.Val()); !slices.Contains(values, v) {
					values = append(values, v)
				}
			}
		}
	}
	if len(values) == 0 {
		t.Errorf("no constant is a %s", named)
	}
	return values
}

func shortName(here *types.Package) types.Qualifier {
	return func(p *types.Package) string {
		if p == here {
			return ""
		}
		return p.Name()
	}
}

// Strings returns the string constants in the body of the function or method of that
// name.
func (c *Code) Strings(t testing.TB, function string) (values []string) {
	t.Helper()
	c.each(func(p *packages.Package, n ast.Node) {
		f, ok := n.(*ast.FuncDecl)
		if !ok || f.Name.Name != function || f.Body == nil {
			return
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				values = append(values, constant.StringVal(constant.MakeFromLiteral(lit.Value, lit.Kind, 0)))
			}
			return true
		})
	})
	if len(values) == 0 {
		t.Errorf("no function %s with strings", function)
	}
	return values
}

// Cases returns the string constants that switches on an expression, as it is
// written, know.
func (c *Code) Cases(t testing.TB, tag string) (values []string) {
	t.Helper()
	c.each(func(p *packages.Package, n ast.Node) {
		s, ok := n.(*ast.SwitchStmt)
		if !ok || s.Tag == nil || types.ExprString(s.Tag) != tag {
			return
		}
		for _, clause := range s.Body.List {
			for _, e := range clause.(*ast.CaseClause).List {
				if v, ok := stringConstant(p, e); ok {
					values = append(values, v)
				}
			}
		}
	})
	if len(values) == 0 {
		t.Errorf("no switch on %s has strings", tag)
	}
	return values
}

// Arguments returns the string constants that calls of a function, a method or a
// field have as an argument, and the expressions there that are computed, as they are
// written. A variable that is set to constants alone in its function counts as them.
func (c *Code) Arguments(t testing.TB, function string, index int) (values, computed []string) {
	t.Helper()
	found := false
	c.each(func(p *packages.Package, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || calledName(call) != function || index >= len(call.Args) {
			return
		}
		found = true
		if constants, ok := c.resolve(p, call.Args[index]); ok {
			values = append(values, constants...)
		} else {
			computed = append(computed, types.ExprString(call.Args[index]))
		}
	})
	if !found {
		t.Errorf("no call of %s has an argument %d", function, index)
	}
	slices.Sort(computed)
	return values, slices.Compact(computed)
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func stringConstant(p *packages.Package, e ast.Expr) (string, bool) {
	v := p.TypesInfo.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

// resolve returns the constants that an expression can be; false if it is computed.
func (c *Code) resolve(p *packages.Package, e ast.Expr) ([]string, bool) {
	if v, ok := stringConstant(p, e); ok {
		return []string{v}, true
	}
	name, ok := e.(*ast.Ident)
	if !ok {
		return nil, false
	}
	object, ok := p.TypesInfo.Uses[name].(*types.Var)
	if !ok {
		return nil, false
	}
	var values []string
	sets, known := 0, true
	set := func(value ast.Expr) {
		sets++
		v, ok := stringConstant(p, value)
		known = known && ok
		values = append(values, v)
	}
	for _, f := range p.Syntax {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if !refersTo(p, left, object) {
						continue
					}
					if len(n.Rhs) != len(n.Lhs) {
						sets, known = sets+1, false // of a call with several results
						continue
					}
					set(n.Rhs[i])
				}
			case *ast.RangeStmt:
				if n.Value == nil || !refersTo(p, n.Value, object) {
					return true
				}
				list, ok := n.X.(*ast.CompositeLit)
				if !ok {
					sets, known = sets+1, false
					return true
				}
				for _, item := range list.Elts {
					set(item)
				}
			}
			return true
		})
	}
	return values, sets > 0 && known
}

func refersTo(p *packages.Package, e ast.Expr, object types.Object) bool {
	name, ok := e.(*ast.Ident)
	return ok && (p.TypesInfo.Defs[name] == object || p.TypesInfo.Uses[name] == object)
}

// where returns the place of a node, for messages.
func where(p *packages.Package, n ast.Node) string {
	return fmt.Sprint(p.Fset.Position(n.Pos()))
}

// Field returns the string constants that a field of a struct type is set to.
func (c *Code) Field(t testing.TB, structName, field string) (values []string) {
	t.Helper()
	add := func(p *packages.Package, of types.Type, e ast.Expr) {
		if of == nil {
			return
		}
		if pointer, ok := of.Underlying().(*types.Pointer); ok {
			of = pointer.Elem()
		}
		if v, ok := stringConstant(p, e); ok && types.TypeString(of, shortName(p.Types)) == structName && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	c.each(func(p *packages.Package, n ast.Node) {
		switch n := n.(type) {
		case *ast.CompositeLit:
			for _, item := range n.Elts {
				if kv, ok := item.(*ast.KeyValueExpr); ok && types.ExprString(kv.Key) == field {
					add(p, p.TypesInfo.TypeOf(n), kv.Value)
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == field && len(n.Lhs) == len(n.Rhs) {
					add(p, p.TypesInfo.TypeOf(sel.X), n.Rhs[i])
				}
			}
		}
	})
	if len(values) == 0 {
		t.Errorf("no string constant is set as %s.%s", structName, field)
	}
	return values
}

// Compared returns the string constants that an expression, as it is written, is
// compared with.
func (c *Code) Compared(t testing.TB, expression string) (values []string) {
	t.Helper()
	c.each(func(p *packages.Package, n ast.Node) {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.EQL || types.ExprString(b.X) != expression {
			return
		}
		if v, ok := stringConstant(p, b.Y); ok {
			values = append(values, v)
		}
	})
	if len(values) == 0 {
		t.Errorf("%s is compared with no string", expression)
	}
	return values
}
