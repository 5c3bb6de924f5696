package catalogtest

import (
	"go/ast"
	"go/types"
	"slices"
	"testing"

	"golang.org/x/tools/go/packages"

	"vigia/internal/catalog"
)

const familyType = "*vigia/internal/exposition.Family"

// Emitted returns the values that calls with an exposition.Family, as of Page.Emit,
// give to the closed labels of a part, and by "metric.label" the expressions there
// that are computed: their values must be had from the code in another way.
func (c *Code) Emitted(t testing.TB, part string) (values Values, computed map[string][]string) {
	t.Helper()
	loaded, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	metrics := make(map[string]catalog.Metric)
	for _, m := range loaded.Part(part) {
		metrics[m.Name] = m
	}
	values, computed = make(Values), make(map[string][]string)
	names := c.families()
	c.each(func(p *packages.Package, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		family, labels := emission(p, call)
		if family == nil {
			return
		}
		m, ok := metrics[names[variable(p, family)]]
		if !ok || len(labels) != len(m.Labels) {
			t.Errorf("%s: cannot tell which metric has the labels of this call", where(p, call))
			return
		}
		for i, label := range m.Labels {
			if m.Values[label] == nil {
				continue
			}
			what := m.Name + "." + label
			if constants, ok := c.resolve(p, labels[i]); ok {
				values.Add(what, constants...)
			} else if text := types.ExprString(labels[i]); !slices.Contains(computed[what], text) {
				computed[what] = append(computed[what], text)
			}
		}
	})
	return values, computed
}

// families returns the names of metrics by the variables and fields that hold them:
// all that are set to a call with a name which returns a family.
func (c *Code) families() map[types.Object]string {
	out := make(map[types.Object]string)
	set := func(p *packages.Package, left, right ast.Expr) {
		call, ok := right.(*ast.CallExpr)
		if !ok || types.TypeString(p.TypesInfo.TypeOf(call), nil) != familyType {
			return
		}
		for _, a := range call.Args {
			if name, ok := stringConstant(p, a); ok {
				out[variable(p, left)] = name
			}
		}
	}
	c.each(func(p *packages.Package, n ast.Node) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			set(p, n.Key, n.Value)
		case *ast.AssignStmt:
			for i := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					set(p, n.Lhs[i], n.Rhs[i])
				}
			}
		}
	})
	return out
}

// variable returns what an expression names: a variable or a field.
func variable(p *packages.Package, e ast.Expr) types.Object {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return p.TypesInfo.Uses[e.Sel]
	case *ast.Ident:
		if o := p.TypesInfo.Defs[e]; o != nil {
			return o
		}
		return p.TypesInfo.Uses[e]
	}
	return nil
}

// emission returns the family and the label values of a call of a function that takes
// a family and, last, any number of strings; nil for other calls, and for one that
// passes on what it was given.
func emission(p *packages.Package, call *ast.CallExpr) (family ast.Expr, labels []ast.Expr) {
	signature, ok := p.TypesInfo.TypeOf(call.Fun).(*types.Signature)
	if !ok || !signature.Variadic() || call.Ellipsis.IsValid() {
		return nil, nil
	}
	parameters := signature.Params()
	last := parameters.Len() - 1
	if types.TypeString(parameters.At(last).Type(), nil) != "[]string" {
		return nil, nil
	}
	for i := range last {
		if types.TypeString(parameters.At(i).Type(), nil) == familyType {
			return call.Args[i], call.Args[last:]
		}
	}
	return nil, nil
}
