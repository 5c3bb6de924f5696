"""The package's own rules: which room may know of which, where SQL is, and no name twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src/isolation_agent"
FILES = sorted(SOURCE.rglob("*.py"))

ROOMS: dict[str, set[str]] = {
    "model": set(),
    "decision": {"model"},
    "storage": {"model"},
    "enforcers": {"model", "decision"},
    "alerts": {"model", "decision", "storage"},
    "actions": {"model", "decision", "storage", "enforcers", "alerts"},
    "service": {"model", "decision", "storage", "enforcers", "alerts", "actions"},
    "web": {"model", "decision", "storage", "enforcers", "alerts", "actions", "service"},
}
"""Each room, and the rooms that it may import from."""

LIBRARIES = {"sqlalchemy": {"storage"}, "httpx": {"enforcers"}, "flask": {"web"}, "werkzeug": {"web"}}
"""Libraries, and the rooms that may use them."""


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def test_every_room_is_in_the_plan() -> None:
    assert {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()} == set(ROOMS)


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_import_from_the_rooms_below_them_only(name: str) -> None:
    wrong = {
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in FILES
        if room(path) == name
        for module in imports(path)
        if module.startswith("isolation_agent.")
        and (other := module.split(".")[1]) in ROOMS
        and other not in ROOMS[name] | {name}
    }
    assert wrong == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_stay_in_their_rooms(library: str) -> None:
    users = {room(path) for path in FILES if library in {m.split(".")[0] for m in imports(path)}}
    assert users == LIBRARIES[library]


def test_the_core_is_pure() -> None:
    core = [p for p in FILES if room(p) in ("model", "decision")] + [SOURCE / "policy.py"]
    used = {m.split(".")[0] for path in core for m in imports(path)}
    assert not used & {"logging", "os", "random", "socket", "subprocess", "threading", "time"}


def test_modules_import_each_other_in_no_circle() -> None:
    names = {".".join(("isolation_agent", *p.relative_to(SOURCE).with_suffix("").parts)): p for p in FILES}
    names = {n.removesuffix(".__init__"): p for n, p in names.items()}
    graph = {n: {m for m in imports(p) if m in names and m != n} for n, p in names.items()}
    while leaves := [n for n, below in graph.items() if not below & set(graph)]:
        for n in leaves:
            del graph[n]
    assert not graph, f"in a circle, or above one: {sorted(graph)}"


def test_no_public_class_has_the_name_of_another() -> None:
    found = Counter(
        node.name
        for path in FILES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in found.items() if count > 1] == []
