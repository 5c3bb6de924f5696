"""Functions and files stay short, and tests are at least as long as what they cover."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from housekit import ROOT, Function, go_functions, python_functions, tracked

GO = tracked("*.go")
PYTHON = tracked("*.py")
PARTS = {
    "probes": ("probes",),
    "exporters/tenant": ("exporters/tenant",),
    "isolation-agent/enforcer": ("isolation-agent/enforcer",),
    "internal": ("internal",),
}
"""Where Go tests are beside the code that they cover."""


def lines(file: str) -> int:
    return len((ROOT / file).read_text().splitlines())


def functions() -> list[Function]:
    return [f for name in GO for f in go_functions(name)] + [f for p in PYTHON for f in python_functions(p)]


def test_the_readers_find_functions(tmp_path: Path) -> None:
    """They are the yardstick: a reader that finds nothing would let everything pass."""
    (tmp_path / "a.go").write_text("package a\n\nfunc A() {\n\tx()\n}\n\nfunc (t *T) B() int { return 1 }\n")
    (tmp_path / "a.py").write_text("def f():\n    return [\n        1,\n    ]\n")
    found = list(go_functions(str(tmp_path / "a.go")))
    assert [(f.name, f.lines) for f in found] == [("A", 3), ("B", 1)]
    assert [(f.name, f.lines) for f in python_functions(str(tmp_path / "a.py"))] == [("f", 4)]
    assert len(functions()) > 3000


def test_functions_are_short() -> None:
    found = functions()
    assert [f for f in found if f.lines > 100] == []
    for language in (".go", ".py"):
        lengths = [f.lines for f in found if f.file.endswith(language)]
        assert statistics.median(lengths) <= 15
        assert statistics.quantiles(lengths, n=10)[-1] <= 45


def test_files_are_short() -> None:
    found = {f: lines(f) for f in (*GO, *PYTHON, *tracked("*.c"), *tracked("*.h"))}
    assert {f: n for f, n in found.items() if n > 700} == {}


@pytest.mark.parametrize("part", PARTS)
def test_go_tests_are_as_long_as_their_code(part: str) -> None:
    files = [f for f in GO if f.startswith(tuple(f"{p}/" for p in PARTS[part]))]
    support = ("internal/testutil/", "nltest/", "vporttest/")
    tests = sum(lines(f) for f in files if f.endswith("_test.go") or any(s in f for s in support))
    code = sum(lines(f) for f in files) - tests
    assert tests >= code, f"{tests} lines of tests, {code} of code"


PYTHON_TESTS = {
    "vigia/src": ("vigia/tests", "tests/e2e", "tests/kubernetes", "tests/openstack"),
    "isolation-agent/src": ("isolation-agent/tests",),
    "exporters/compare/src": ("exporters/compare/tests",),
    "exporters/identity/src": ("exporters/identity/tests",),
    "internal/py": ("internal/py/tests",),
    "dashboards/vigia_dashboards": ("dashboards/tests", "tests/e2e"),
    "tools/release": ("tests/release",),
}

FLOORS = {"vigia/src": 0.65, "dashboards/vigia_dashboards": 0.40}
"""Lines of tests to a line of code where there are fewer: only ever raised. The dashboards' pages are declarations."""


def test_floors_are_of_rooms_that_need_them() -> None:
    assert set(FLOORS) <= set(PYTHON_TESTS)
    assert all(0.0 < floor < 1.0 for floor in FLOORS.values())


@pytest.mark.parametrize("code", PYTHON_TESTS)
def test_python_tests_are_as_long_as_their_code(code: str) -> None:
    tests = sum(lines(f) for f in PYTHON if f.startswith(tuple(f"{p}/" for p in PYTHON_TESTS[code])))
    source = sum(
        lines(f) for f in PYTHON if f.startswith(f"{code}/") and not {"tests", "bench"} & set(Path(f).parts)
    )
    floor = FLOORS.get(code, 1.0)
    assert tests >= floor * source, f"{tests} lines of tests, {source} of code, at least {floor} to a line"
    assert floor == 1.0 or tests < (floor + 0.15) * source, (
        f"{tests} of tests, {source} of code: raise the floor"
    )
