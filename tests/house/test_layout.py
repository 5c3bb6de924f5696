"""Rooms: parts meet only at public seams, nothing goes round in circles, and CONTRIBUTING says what there is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from housekit import PYTHON_PACKAGES, ROOT, go_packages, modules, python_imports, tracked

GO_PARTS = ("vigia/probes", "vigia/exporters/tenant", "vigia/isolation-agent/enforcer")
SHARED = {p for p in PYTHON_PACKAGES if (ROOT / "internal/py" / p).is_dir()}
PARTS = set(PYTHON_PACKAGES) - SHARED
VAGUE = {"utils", "util", "common", "pkg", "helpers", "misc", "shared", "lib"}


def part_of(package: str) -> str | None:
    return next((p for p in GO_PARTS if package == p or package.startswith(f"{p}/")), None)


def test_no_part_in_go_imports_another() -> None:
    wrong = [
        f"{path} imports {imported}"
        for path, package in go_packages().items()
        for key in ("Imports", "TestImports", "XTestImports")
        for imported in package.get(key) or ()
        if part_of(imported) not in (None, part_of(path))
    ]
    assert wrong == []
    assert {part_of(p) for p in go_packages()} >= set(GO_PARTS)


def test_what_parts_share_in_go_imports_no_part() -> None:
    shared = {p: v for p, v in go_packages().items() if p.startswith("vigia/internal/")}
    assert len(shared) > 20
    assert [p for p, v in shared.items() if any(part_of(i) for i in v.get("Imports") or ())] == []


@pytest.mark.parametrize("package", sorted(PARTS))
def test_no_part_in_python_imports_another(package: str) -> None:
    allowed = SHARED | {package}
    for name, path in modules(package).items():
        wrong = {m for m in python_imports(path, package) if m.split(".")[0] not in allowed}
        assert wrong == set(), name


@pytest.mark.parametrize("package", sorted(SHARED))
def test_what_parts_share_in_python_imports_no_part(package: str) -> None:
    for name, path in modules(package).items():
        assert {m.split(".")[0] for m in python_imports(path, package)} <= SHARED, name


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return a circle of a directed graph; empty when there is none."""
    state: dict[str, int] = {}
    trail: list[str] = []

    def visit(node: str) -> list[str]:
        state[node] = 1
        trail.append(node)
        for target in sorted(graph.get(node, ())):
            if state.get(target) == 1:
                return [*trail[trail.index(target) :], target]
            if target not in state and (found := visit(target)):
                return found
        trail.pop()
        state[node] = 2
        return []

    for node in sorted(graph):
        if node not in state and (found := visit(node)):
            return found
    return []


def test_circles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


@pytest.mark.parametrize("package", sorted(PYTHON_PACKAGES))
def test_no_modules_import_each_other(package: str) -> None:
    """Go's compiler sees to it there; imports inside functions are a circle all the same."""
    known = modules(package)
    graph = {
        name: {m for m in python_imports(path, package) if m in known and m != name}
        for name, path in known.items()
    }
    # A package's __init__ that gathers its modules is imported by name alone when they are.
    graph = {n: {m for m in t if not n.startswith(f"{m}.")} for n, t in graph.items()}
    assert circle(graph) == []


def head(file: Path) -> str:
    """Return what is above the package clause of a Go file."""
    return f"\n{file.read_text()}".partition("\npackage ")[0]


def test_go_packages_say_what_they_are_where_one_looks() -> None:
    """The package comment is in the file of the package's name, or in doc.go, and in no other."""
    wrong = []
    for path, package in go_packages().items():
        if not package.get("GoFiles"):
            continue
        wanted = {
            "doc.go",
            "main.go",
            f"{Path(package['Dir']).name.replace('-', '')}.go",
            f"{package['Name']}.go",
        }
        comment = re.compile(r"^// (Package|Command) \w+", re.MULTILINE)
        holders = {f for f in package["GoFiles"] if comment.search(head(Path(package["Dir"]) / f))}
        if not holders or not holders <= wanted or len(holders) > 1:
            wrong.append(f"{path}: {sorted(holders)}")
    assert wrong == []


def test_no_room_has_a_vague_name() -> None:
    folders = {part for f in (*tracked("*.go"), *tracked("*.py")) for part in Path(f).parts[:-1]}
    modules_ = {Path(f).stem for f in (*tracked("*.go"), *tracked("*.py"))}
    assert (folders | modules_) & VAGUE == set()


def rooms() -> set[str]:
    """Folders that hold sources, down to where CONTRIBUTING has a line for each."""
    found = set()
    for file in (*tracked("*.go"), *tracked("*.py"), *tracked("*.c"), *tracked("*.yml")):
        folder = Path(file).parent
        if {"tests", "testdata"} & set(folder.parts[1:]) or folder == Path():
            continue
        found.add(str(folder))
    return found


def test_contributing_has_a_line_for_every_room() -> None:
    """And no line for a room that is not there."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^\| `([^`]+)/` \|", text, re.MULTILINE)
    assert len(named) == len(set(named))
    assert [n for n in named if not (ROOT / n).is_dir()] == []
    missing = sorted(r for r in rooms() if r.removesuffix("/") not in named and not _within(r, named))
    assert missing == []


def _within(room: str, named: list[str]) -> bool:
    """Packages of one file or two, below a room that has a line, need none of their own."""
    parent = str(Path(room).parent)
    return parent in named and len(list((ROOT / room).glob("*.*"))) <= 2
