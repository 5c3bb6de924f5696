"""The table of the tree's rooms in CONTRIBUTING.md: a line for each, from its package comment."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

__all__ = ["BEGIN", "END", "with_rooms"]

BEGIN = "<!-- rooms: made by make generate -->"
END = "<!-- end of rooms -->"

PLAIN = {
    ".github": "what GitHub does with the repository",
    ".github/ISSUE_TEMPLATE": "forms of issues",
    ".github/workflows": "`.ci/run` and `make release`",
    "alert-rules": "recording and alerting rules; `tests/` has promtool's tests of them",
    "changelog.d": "one file per entry of the next release's `CHANGELOG.md`",
    "dashboards": "`vigia_dashboards` defines Grafana's dashboards, `json/` is made of it",
    "deploy": "what is shipped to run Vigia: units, images, configuration",
    "deploy/alertmanager": "configuration of Alertmanager",
    "deploy/ansible": "a playbook for nodes",
    "deploy/ansible/roles/vigia_node": "the role that installs, configures, upgrades and removes a node's programs",
    "deploy/ansible/roles/vigia_node/tasks": "what it does, in its order",
    "deploy/helm/vigia": "the chart of Helm; `files/` links to rules, dashboards and policies",
    "deploy/kolla": "what kolla-ansible merges into its Prometheus",
    "deploy/prometheus": "configuration of Prometheus",
    "deploy/tenants": "what a tenant may ask of Prometheus: relabelling, and the proxy before it",
    "deploy/thanos": "configuration of Thanos, for many sites",
    "deploy/victoria-metrics": "configuration of VictoriaMetrics, for long retention",
    "docs": "the site that `make docs` builds; `generate.py` makes its reference pages and this table",
    "docs/adr": "decisions, and why",
    "docs/concepts": "how parts work, with figures and the commands that print them",
    "docs/how-to": "guides, each run by a test",
    "docs/runbooks": "what to do about each alert",
    "docs/tutorial": "the first ten minutes, played by the end-to-end test",
    "exporters": "what exports metrics but no probe is",
    "internal": "what the Go programs share",
    "internal/py": "what the Python programs share: its README says how a program uses it",
    "internal/py/bench": "benchmarks of the shared Python",
    "isolation-agent": "the agent (Python, `src/`) and the enforcer (Go, `enforcer/`)",
    "probes/bench": "the benchmark of vigia-probe beside fping",
    "tests": "what crosses parts",
    "tests/ansible": "the role of deploy/ansible, on a Debian of its own",
    "tests/chart": "the chart of Helm without a cluster; `objects/` is a Go module of its own",
    "tests/compose": "docker-compose.yml, run on an engine of its own",
    "tests/contract": "what parts promise each other: metrics, files, units, documents",
    "tests/e2e": "the demo, end to end",
    "tests/fuzz": "`make fuzz`: readers of what others write, given what nobody meant well",
    "tests/house": "the rules of this page, as tests",
    "tests/openstack": "docs/how-to/openstack.md on real Neutron, and a guest at a vhost-user port of a switch with DPDK",
    "tests/release": "`make release`: the same bytes twice, packages on a Debian of their own",
    "tests/site": "the documentation: its site, what pages are made of, every block of every page",
    "tests/sidebyside": "`make bench`: Vigia's parts beside their peers, their growth and their floors",
    "tests/scale": "docs/how-to/scale.md on real engines: replicas, stores, Thanos",
    "tests/sitecost": "`make bench-site`: what a site costs its Prometheus; a Go module of its own",
    "tests/tenants": "what a tenant is answered, and that it is nothing of others",
    "tools": "what installs the prerequisites, and the tools of the build",
    "vigia": "the command `vigia`",
}
"""Rooms that no package comment describes."""

_LONG = 110
"""Characters from which on a sentence ends at its first colon or semicolon."""


def with_rooms(text: str, root: Path) -> str:
    """Return a page with the table between its marks made anew. Raises ValueError if there are none."""
    begin, end = text.index(BEGIN), text.index(END)
    lines = ["", "", "| folder | what |", "|---|---|"]
    lines += [f"| `{room}/` | {what} |" for room, what in sorted(_rooms(root).items())]
    return text[:begin] + BEGIN + "\n".join(lines) + "\n\n" + text[end:]


def _rooms(root: Path) -> dict[str, str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.py"]
    files = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    found = dict(PLAIN)
    for folder in sorted({Path(f).parent for f in files if (root / f).exists()}):
        if {"tests", "testdata"} & set(folder.parts[1:]) or str(folder) in found or folder == Path():
            continue
        if what := _python(root / folder) or _go(root / folder):
            found[str(folder)] = what
    return found


def _python(folder: Path) -> str:
    module = folder / "__init__.py"
    if not module.exists():
        return ""
    return _short((ast.get_docstring(ast.parse(module.read_text())) or "").split("\n\n")[0])


def _go(folder: Path) -> str:
    for file in sorted(folder.glob("*.go")):
        found = re.search(r"((?:^//[^\n]*\n)+)package ", file.read_text(), re.MULTILINE)
        if found and (
            text := re.match(r"(?:Package|Command) \S+ (.*)", _joined(found[1].split("\n//\n")[0]), re.DOTALL)
        ):
            return _short(text[1])
    return ""


def _joined(comment: str) -> str:
    return " ".join(line.removeprefix("//").strip() for line in comment.splitlines())


def _short(text: str) -> str:
    """Return the first sentence; of a long one what stands before its colon or semicolon."""
    sentence = re.split(r"(?<=[.])\s", " ".join(text.split()))[0].removesuffix(".").replace("|", "\\|")
    if len(sentence) > _LONG:
        sentence = re.split(r"[:;]\s", sentence)[0]
    return sentence.replace("``", "`")
