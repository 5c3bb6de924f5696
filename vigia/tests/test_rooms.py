"""The plan of the package: rooms that import each other in one direction, and names that mean one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import vigia

SOURCE = Path(vigia.__file__).parent
TESTS = Path(__file__).parent


def module_of(file: Path) -> str:
    """The dotted name of a file of the package."""
    parts = ["vigia", *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(f): f for f in sorted(SOURCE.rglob("*.py"))}


def imported(file: Path) -> Iterator[str]:
    """The modules of the package that a file imports anywhere: in functions and for types alone, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES:
                    yield full
                elif node.module in MODULES:
                    yield node.module


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """A way from some node back to it, or nothing."""
    done: set[str] = set()
    way: list[str] = []

    def visit(node: str) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        way.append(node)
        for other in sorted(graph.get(node, ())):
            if found := visit(other):
                return found
        way.pop()
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node))), [])


GRAPH = {name: set(imported(file)) - {name} for name, file in MODULES.items()}


def test_the_search_for_cycles_finds_one() -> None:
    assert cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert cycle({"a": ["b", "c"], "b": ["c"]}) == []
    assert sum(map(len, GRAPH.values())) > 300, "imports are seen"
    assert "vigia.lab.up" in GRAPH["vigia.cli.lab"], "in functions, too"


def test_no_module_imports_itself_by_a_detour() -> None:
    assert cycle(GRAPH) == []


def test_rooms_import_each_other_in_one_direction() -> None:
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, others in GRAPH.items():
        rooms[room(name)] |= {room(o) for o in others} - {room(name)}
    assert cycle(rooms) == []
    assert not rooms["vigia.errors"], "everybody may import what is at the bottom"
    users = [r for r, used in rooms.items() if "vigia.cli" in used]
    assert users == [], "nobody imports what is at the top"


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert len(places) > 100
    assert {n: where for n, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[name].read_text())), name


def test_tests_are_in_rooms_of_the_same_names() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    tested = {p.name for p in TESTS.iterdir() if any(p.glob("test_*.py"))}
    assert tested == rooms
    loose = {p.stem.removeprefix("test_") for p in TESTS.glob("test_*.py")} - {"rooms"}
    assert loose <= {p.stem for p in SOURCE.glob("*.py")}


def test_nothing_is_in_a_room_for_everything() -> None:
    assert not [n for n in MODULES if re.search(r"\b(utils?|common|misc|helpers?|pkg)\b", n)]
