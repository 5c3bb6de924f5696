"""What the tests of the house rules read: the project's files, Go's functions, Python's imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PYTHON_PACKAGES = {
    "vigia": ROOT / "vigia/src/vigia",
    "isolation_agent": ROOT / "isolation-agent/src/isolation_agent",
    "vigia_compare": ROOT / "exporters/compare/src/vigia_compare",
    "vigia_identity": ROOT / "exporters/identity/src/vigia_identity",
    "vigia_dashboards": ROOT / "dashboards/vigia_dashboards",
    **{p.name: p for p in sorted((ROOT / "internal/py").glob("vigia_*")) if p.is_dir()},
}
"""Import name and folder of every Python package."""


@dataclass(frozen=True)
class Function:
    """A function with the number of its lines, signature and closing brace included."""

    file: str
    name: str
    lines: int


@cache
def tracked(pattern: str) -> tuple[str, ...]:
    """Names of the files that git tracks, or would, without those that programs write."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    made = re.compile(r"_bpfel\.go$|/testdata/|\.pb\.go$|/static/vendor/")
    return tuple(f for f in sorted(set(listed.splitlines())) if not made.search(f) and (ROOT / f).exists())


def go_functions(file: str) -> Iterator[Function]:
    """Functions of a Go file that gofmt has formatted: they end with a brace in the first column."""
    name, begin = "", 0
    for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
        if found := re.match(r"func (?:\([^)]*\) )?(\w+)", line):
            name, begin = found[1], number
            if line.endswith("}"):
                yield Function(file, name, 1)
                name = ""
        elif line == "}" and name:
            yield Function(file, name, number - begin + 1)
            name = ""


def python_functions(file: str) -> Iterator[Function]:
    """Functions of a Python file."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield Function(file, node.name, node.end_lineno - node.lineno + 1)


@cache
def go_packages() -> Mapping[str, Any]:
    """What the go command knows of each package of the module, by its path."""
    argv = ["go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,TestImports,XTestImports,GoFiles", "./..."]
    text = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    decoder, found, at = json.JSONDecoder(), {}, 0
    while at < len(text.rstrip()):
        package, end = decoder.raw_decode(text, at)
        found[package["ImportPath"]] = package
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


def python_imports(path: Path, package: str, lazy: bool = True) -> set[str]:
    """Full names of the modules of our own packages that a Python file imports.

    Without lazy, only those that are imported when the file is: not in functions, nor for type checkers alone.
    """
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in ast.walk(tree) if lazy else _at_import(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
    return {m for m in found if m.split(".")[0] in PYTHON_PACKAGES or m.split(".")[0] == package}


def _at_import(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _at_import(node)


def modules(package: str) -> dict[str, Path]:
    """Every module of a Python package by its full name."""
    folder = PYTHON_PACKAGES[package]
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found
