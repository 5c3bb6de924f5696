package catalogtest

import (
	"go/ast"
	"go/types"
	"slices"
	"testing"

	"golang.org/x/tools/go/packages"

	"vigia/internal/catalog"
)

// Emitted returns the values that calls give to the closed labels of a part's metrics,
// and by "metric.label" the expressions there that are computed: their values must be
// had from the code in another way.
//
// A metric is a variable or field that is set to a call with a metric's name. A call
// of it, of a method of it, or with it as an argument gives label values if it ends
// with any number of strings: Page.Emit, CounterVec.WithLabelValues, Series.Sample and
// what is wrapped around them. A call that passes a list on is not looked at.
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
	names := c.variables(metrics)
	c.each(func(p *packages.Package, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		name, labels := emission(p, call, names)
		m := metrics[name]
		if name == "" {
			return
		}
		if len(labels) != len(m.Labels) {
			t.Errorf("%s: %s has the labels %v, and this call gives %d values", where(p, call), name, m.Labels, len(labels))
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

// variables returns the names of metrics by the variables and fields that hold them.
func (c *Code) variables(metrics map[string]catalog.Metric) map[types.Object]string {
	out := make(map[types.Object]string)
	set := func(p *packages.Package, left, right ast.Expr) {
		call, ok := right.(*ast.CallExpr)
		if !ok {
			return
		}
		for _, a := range call.Args {
			if name, ok := stringConstant(p, a); ok && metrics[name].Name != "" {
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

// emission returns the metric and the label values of a call; "" for another call.
func emission(p *packages.Package, call *ast.CallExpr, names map[types.Object]string) (name string, labels []ast.Expr) {
	callee := p.TypesInfo.TypeOf(call.Fun)
	if callee == nil {
		return "", nil
	}
	signature, ok := callee.Underlying().(*types.Signature)
	if !ok || !signature.Variadic() || call.Ellipsis.IsValid() {
		return "", nil
	}
	last := signature.Params().Len() - 1
	if types.TypeString(signature.Params().At(last).Type(), nil) != "[]string" {
		return "", nil
	}
	candidates := append([]ast.Expr{call.Fun}, call.Args[:last]...)
	if method, ok := call.Fun.(*ast.SelectorExpr); ok {
		candidates = append(candidates, method.X)
	}
	for _, e := range candidates {
		if name := names[variable(p, e)]; name != "" {
			return name, call.Args[last:]
		}
	}
	return "", nil
}
