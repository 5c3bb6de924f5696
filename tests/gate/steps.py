"""The steps: what each runs, from which files its verdict follows, and what it may run beside."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from extendkit import copy_tree

from gate.commands import GO_TOOL, ROOT, VENV, each, execute, go_test, pytest, run
from gate.results import Count, Failure

GO = (
    *("go.mod", "go.sum", "probes/", "exporters/tenant/", "isolation-agent/enforcer/", "internal/"),
    "alert-rules/mesh.rules.yml",  # which a test of probes/mesh evaluates
)
SHARED_PYTHON = ("internal/py/", "internal/catalog/", "tests/")
EVERYTHING = ("/",)
RECIPES = "tests/house/test_extend.py"
MODULES = ("tests/sitecost", "tests/chart/objects")
"""Go modules beside the product's."""


@dataclass(frozen=True)
class Step:
    """One part of the gate."""

    name: str
    what: str
    body: Callable[[], Count]
    inputs: tuple[str, ...]
    """Files and folders (with a slash at their end, / for all) that the verdict follows from."""
    alone: bool = False
    """It measures what tenants get, so that nothing else may take the processors meanwhile."""
    weight: int = 1
    """Roughly its minutes of processor time: the heaviest begin first."""


def lint_go() -> Count:
    """Run go vet, staticcheck and gofumpt."""
    count = each(
        ["go", "vet", "./..."],
        *(["go", "vet", "-C", module, "./..."] for module in MODULES),
        [*GO_TOOL, "staticcheck", "./..."],
        *(["go", "tool", "-C", m, f"-modfile={ROOT}/tools/go.mod", "staticcheck", "./..."] for m in MODULES),
    )
    sources = [f for f in run("git", "ls-files", "*.go").splitlines() if not f.endswith("_bpfel.go")]
    # What go itself says (a download, on a fresh machine) goes to standard error and is no finding.
    listed = execute([*GO_TOOL, "gofumpt", "-l", *sources])
    if listed.status != 0 or listed.stdout.strip():
        raise Failure(f"gofumpt would change, run make fmt:\n{listed.stdout}{listed.stderr}")
    count.passed += 1
    return count


def lint_python() -> Count:
    """Run Ruff and mypy --strict."""
    kit = sorted(str(p.relative_to(ROOT)) for p in Path(ROOT, "internal/py").glob("vigia_*"))
    sources = [
        *kit,
        "exporters/compare/src",
        "exporters/identity/src",
        "dashboards/vigia_dashboards",
        "vigia/src",
        "isolation-agent/src",
    ]
    return each(
        [VENV / "ruff", "check", "."],
        [VENV / "ruff", "format", "--check", "."],
        [VENV / "mypy", *sources, "docs/generate.py", "docs/pages.py", "tests/gate", "tools/release"],
    )


def generated() -> Count:
    """Compare generated files with what their sources say, in a copy: other steps build from this tree meanwhile."""
    before = {f: Path(ROOT, f).read_bytes() for f in run("git", "ls-files", "*_bpfel.*").splitlines()}
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for f in before:
            Path(folder, f).unlink(missing_ok=True)
        run("go", "generate", "-C", folder, "./...")
        made = {f: Path(folder, f) for f in before}
        changed = [f for f, file in made.items() if not file.exists() or file.read_bytes() != before[f]]
    if changed:
        raise Failure(f"these do not stem from their sources, run make generate: {', '.join(changed)}")
    run(sys.executable, "docs/generate.py", "--check")
    run(sys.executable, "-m", "vigia_dashboards", "--check")
    return Count(passed=len(before) + 2)


def rules() -> Count:
    """Let promtool and amtool check rules and configuration, and run every rule test; a day and notifications, too."""
    files = sorted(str(p) for p in Path(ROOT, "alert-rules").glob("*.rules.yml"))
    tests = sorted(str(p) for p in Path(ROOT, "alert-rules/tests").glob("*.test.yml"))
    run("promtool", "check", "rules", *files)
    for name in ("prometheus", "replica"):
        run("promtool", "check", "config", "--syntax-only", f"deploy/prometheus/{name}.yml")
    run("promtool", "check", "config", "--agent", "--syntax-only", "deploy/prometheus/agent.yml")
    run("amtool", "check-config", "deploy/alertmanager/alertmanager.yml")
    run("promtool", "test", "rules", *tests)
    cases = sum(len(re.findall(r"^  - name:", Path(t).read_text(), re.MULTILINE)) for t in tests)
    count = pytest("alert-rules/tests")
    count.passed += len(files) + 4 + cases
    return count


def compose_images() -> Count:
    """Build the images of docker-compose.yml from Debian packages."""
    run("nice", "-n", "19", sys.executable, "tests/composekit.py")
    return Count(passed=1)


SHORT = (
    Step("generated", "generated files", generated, EVERYTHING),
    Step("rules", "rules and their tests", rules, (*SHARED_PYTHON, "alert-rules/", "deploy/", "dashboards/")),
    Step(
        "end-to-end",
        "the whole demo, with its own lab beside any that is up",
        lambda: pytest("-m", "e2e and not long", "tests/e2e"),
        EVERYTHING,
        alone=True,
    ),
    Step(
        "go-tests",
        "Go tests, in the kernel",
        lambda: go_test("-short", "-p", "4", "-parallel", "4", "-timeout", "45m", "./..."),
        GO,
        weight=5,
    ),
    Step(
        "lab-tests",
        "tests of the vigia command, in network namespaces",
        lambda: pytest("-m", "not e2e and not long", "vigia/tests"),
        (*GO, *SHARED_PYTHON, "vigia/", "alert-rules/", "deploy/"),
        weight=4,
    ),
    Step(
        "agent-tests",
        "tests of the isolation agent, its console in a browser included",
        lambda: pytest("-m", "not long", "isolation-agent/tests"),
        (*GO, *SHARED_PYTHON, "isolation-agent/"),
        weight=4,
    ),
    Step(
        "python-tests",
        "tests of the other Python programs, of libraries and dashboards",
        lambda: pytest("-m", "not long", "internal", "exporters", "dashboards"),
        EVERYTHING,
        weight=4,
    ),
    Step(
        "project-tests",
        "tests of the whole: contracts, guides, releases, benchmarks, the rules of the house",
        lambda: pytest(
            "-m",
            "not e2e and not compose and not faults and not long",
            "tests",
            f"--ignore={RECIPES}",
            "--ignore=tests/chart",
        ),
        EVERYTHING,
        weight=6,
    ),
    Step("recipes", "the recipes of docs/how-to/extend.md", lambda: pytest(RECIPES), EVERYTHING, weight=3),
    Step(
        "chart",
        "the chart of Helm: what it renders, and what reads it",
        lambda: pytest("tests/chart"),
        EVERYTHING,
        weight=2,
    ),
    Step("lint-go", "Go linters", lint_go, (*GO, *(f"{module}/" for module in MODULES))),
    Step("lint-python", "Python linters", lint_python, EVERYTHING),
)
"""What `make test` runs."""

LONG_ALONE = " and not ".join(
    ("long", "e2e", "compose", "faults", "scale", "kubernetes", "openstack", "release", "pictures")
)
"""Long tests that no other step runs."""

LONG = (
    Step("compose-images", "images of docker-compose.yml", compose_images, EVERYTHING, weight=4),
    Step(
        "go-race",
        "Go tests with the race detector",
        lambda: go_test("-race", "-p", "3", "-timeout", "60m", "./..."),
        GO,
        weight=6,
    ),
    Step(
        "long-parts",
        "long matrices of the Python programs and libraries",
        lambda: pytest("-m", LONG_ALONE, "isolation-agent", "internal", "exporters", "dashboards"),
        EVERYTHING,
        weight=5,
    ),
    Step(
        "long-whole",
        "long matrices of the vigia command and of the whole",
        lambda: pytest("-m", LONG_ALONE, "vigia/tests", "tests"),
        EVERYTHING,
        weight=5,
    ),
    Step(
        "scale",
        "past one machine: replicas, clusters and stores of docs/how-to/scale.md",
        lambda: pytest("-m", "scale and not thanos", "tests/scale", "isolation-agent/tests/scale"),
        EVERYTHING,
        weight=3,
    ),
    Step(
        "faults",
        "the short form of make test-faults: a stack under load, and what happens to it",
        lambda: pytest("-m", "faults and long", "tests/faults"),
        EVERYTHING,
        alone=True,
    ),
    Step(
        "compose",
        "docker-compose.yml, on an engine of its own",
        lambda: pytest("-m", "compose", "tests/compose"),
        EVERYTHING,
        alone=True,
    ),
)
"""What `make test-long` runs besides."""

CLOUDS = (
    Step(
        "kubernetes",
        "docs/how-to/kubernetes.md on two real nodes",
        lambda: pytest("-m", "kubernetes", "tests/kubernetes"),
        EVERYTHING,
        alone=True,
    ),
    Step(
        "openstack",
        "docs/how-to/openstack.md on real Neutron: OVN, Open vSwitch, Linux bridges",
        lambda: pytest("-m", "openstack", "tests/openstack"),
        EVERYTHING,
        alone=True,
    ),
    Step(
        "release",
        "whole releases, twice, installed and upgraded",
        lambda: pytest("-m", "release", "tests/release"),
        EVERYTHING,
        alone=True,
    ),
    Step(
        "pictures",
        "pictures of a lab's pages, during a flood and without",
        lambda: pytest("-m", "pictures", "tests/pictures"),
        EVERYTHING,
        alone=True,
    ),
)
"""What `make test-all` runs besides: clouds of their own, releases for every architecture, pictures."""

APART = (
    Step("thanos", "Thanos above two replicas", lambda: pytest("-m", "thanos", "tests/scale"), EVERYTHING),
)
"""What only `--only` runs: its program takes long to build."""
