"""Label values that a Python program can emit, read from its code, beside those that the catalogue lists."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType

from vigia_catalog import part_metrics

__all__ = ["Code", "differences"]


def differences(part: str, emitted: Mapping[str, Iterable[str]]) -> list[str]:
    """Return what does not fit between the catalogue and what is emitted, by "metric.label"."""
    listed = {f"{m.name}.{label}": set(v) for m in part_metrics(part) for label, v in m.values.items()}
    problems = [f"{what}: no closed label of the part" for what in emitted.keys() - listed.keys()]
    for what, values in listed.items():
        can = {str(v) for v in emitted.get(what, ())}
        problems += [f"{what}: the catalogue lists {v}, which nothing emits" for v in values - can]
        problems += [f"{what}: {v} can be emitted, and is not in the catalogue" for v in can - values]
    return sorted(problems)


class Code:
    """The source of a package."""

    def __init__(self, package: ModuleType) -> None:
        assert package.__file__
        root = Path(package.__file__).parent
        self._modules = [ast.parse(file.read_text()) for file in sorted(root.rglob("*.py"))]
        assert self._modules

    def _nodes(self) -> Iterator[ast.AST]:
        for module in self._modules:
            yield from ast.walk(module)

    def arguments(
        self, function: str, index: int, enum: type[Enum] | None = None, count: int | None = None
    ) -> set[str]:
        """Return the strings that calls of a function have as an argument.

        ``function`` is the end of the name as it is written: approvals.labels is
        that of self._metrics.approvals.labels, too. Members of ``enum`` count as
        their values; what is computed is left out. ``count`` tells functions of one
        name apart by the number of arguments.
        """
        found = set()
        for node in self._nodes():
            if isinstance(node, ast.Call) and index < len(node.args) and count in (None, len(node.args)):
                name = ast.unparse(node.func)
                if name == function or name.endswith(f".{function}"):
                    found |= set(_strings(node.args[index], enum))
        assert found, f"no call of {function} has a string as argument {index}"
        return found

    def returned(self, *functions: str) -> set[str]:
        """Return the strings that functions and methods of these names return."""
        found: dict[str, set[str]] = {f: set() for f in functions}
        for node in self._nodes():
            if isinstance(node, ast.FunctionDef) and node.name in found:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        found[node.name] |= set(_strings(inner.value, None))
        assert all(found.values()), f"one of these functions returns no string: {functions}"
        return set().union(*found.values())

    def assigned(self, variable: str) -> set[str]:
        """Return the strings that variables of a name are set to."""
        found = set()
        for node in self._nodes():
            if isinstance(node, ast.Assign) and variable in (ast.unparse(t) for t in node.targets):
                found |= set(_strings(node.value, None))
        assert found, f"no variable {variable} is set to a string"
        return found


def _strings(node: ast.expr, enum: type[Enum] | None) -> Iterator[str]:
    """The strings that an expression can be, of those that are written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _strings(node.body, enum)
        yield from _strings(node.orelse, enum)
    elif enum is not None and isinstance(node, ast.Attribute) and ast.unparse(node.value) == enum.__name__:
        yield str(enum[node.attr].value)
