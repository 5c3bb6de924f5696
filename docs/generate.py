"""Writes the reference pages that are derived from code; with --check, says which are out of date."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from made import alerts, configuration, decisions, http_api, labels
from made.rooms import with_rooms
from vigia.lab import reference
from vigia.nodes import reference as nodes
from vigia_catalog import open_labels, part_metrics
from vigia_catalog.listing import listing
from vigia_service.exits import Exit

ROOT = Path(__file__).resolve().parent.parent

PARTS = {
    "probe": "vigia-probe",
    "exporter": "vigia-exporter",
    "enforcer": "vigia-enforcer",
    "agent": "isolation-agent",
    "compare": "vigia-compare",
    "campaign": "vigia campaign --textfile",
}


def metrics() -> str:
    """Every metric, by the program that exports it."""
    lines = [
        "# Metrics",
        "",
        "Made by `make generate` from `internal/catalog/metrics`. What one program exports, it",
        "prints: `PROGRAM --list-metrics text` (or `json`, `markdown`). Histograms are native histograms",
        "(factor 1.1) with a small classic set beside them for text scrapers. After a label stand all values",
        "that it can have: a program refuses to export another, and `make test` refuses a rule, a panel or a",
        "document that asks for another. Labels without a list are explained at the end. A metric",
        "whose help ends with pages is on those; every other one is on `/metrics` alone, scraped every 15 s.",
        "What isolation needs within a second is on `/metrics/fast`, which is scraped as often; verdicts and",
        "their evidence, which take minutes to become others, are on `/metrics/verdicts`, once a minute.",
    ]
    for part, program in PARTS.items():
        lines += ["", f"## {program}", "", listing(part_metrics(part), "markdown")]
    lines += ["", "## Labels without a list", ""]
    lines += ["| label | what it is |", "| --- | --- |"]
    lines += [f"| `{label}` | {meaning} |" for label, meaning in sorted(open_labels().items())]
    return "\n".join(lines) + "\n"


GO_PROGRAMS = ("vigia-probe", "vigia-exporter", "vigia-enforcer")
PYTHON_PROGRAMS = ("vigia", "kubectl-vigia", "vigia-compare", "vigia-identity", "isolation-agent")


def options() -> str:
    """Every program's command line, with all of its commands."""
    lines = ["# Command lines", "", "Made by `make generate` from the programs themselves.", ""]
    lines += ["## Exit codes", "", "The Python programs end with:", "", "| code | meaning |", "| --- | --- |"]
    lines += [f"| {code.value} | {code.meaning} |" for code in Exit]
    lines += ["", "The Go programs end with 0 or 1.", ""]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pages = [pool.submit(_help, ROOT / "bin" / p, (), "--help-long") for p in GO_PROGRAMS]
        shown = {p: pages[i].result() for i, p in enumerate(GO_PROGRAMS)}
        for program in PYTHON_PROGRAMS:
            shown |= _tree(pool, Path(sys.executable).parent / program)
    for name, text in shown.items():
        lines += [f"## {name}", "", "```", text, "```", ""]
    return "\n".join(lines)


def _tree(pool: ThreadPoolExecutor, program: Path) -> dict[str, str]:
    """Return what a program says of itself and of every command, by the words that are typed."""
    found: dict[str, str] = {}
    level: list[tuple[str, ...]] = [()]
    while level:
        texts = list(pool.map(lambda words: _help(program, words, "--help"), level))
        found |= {" ".join([program.name, *words]): text for words, text in zip(level, texts, strict=True)}
        level = [(*words, c) for words, text in zip(level, texts, strict=True) for c in _commands(text)]
    return dict(sorted(found.items()))


def _commands(text: str) -> list[str]:
    """Return the commands that click lists: two spaces, the name, and further lines further in."""
    _, _, listed = text.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][\w-]*)(?:  |$)", listed.partition("\n\n")[0], re.MULTILINE)


def _help(program: Path, words: Sequence[str], option: str) -> str:
    argv = [str(program), *words, option]
    environment = {"COLUMNS": "100"} | {k: v for k, v in os.environ.items() if k == "PYTHONPATH"}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).strip().splitlines())


def probe_configuration() -> str:
    """Every key of vigia-probe's configuration file."""
    command = [str(ROOT / "bin" / "vigia-probe"), "settings"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [
        "# Configuration of vigia-probe",
        "",
        "Made by `make generate`; `vigia-probe settings` prints it. The README of",
        "[probes](../../probes/README.md) has an example and explains. `vigia-probe check-config` names",
        "every mistake with its line.",
        "",
        table,
    ]
    return "\n".join(lines)


def rooms() -> str:
    """CONTRIBUTING.md with a line for every room of the tree."""
    return with_rooms((ROOT / "CONTRIBUTING.md").read_text(), ROOT)


def scraping(name: str) -> str:
    """A Prometheus configuration of deploy/ that scrapes what prometheus.yml does."""
    mark = "\nscrape_configs:"
    folder = ROOT / "deploy/prometheus"
    _, _, jobs = (folder / "prometheus.yml").read_text().partition(mark)
    head, _, _ = (folder / name).read_text().partition(mark)
    return head + mark + jobs


VERSIONED = {
    "deploy/helm/vigia/Chart.yaml": r"^(version|appVersion): ()\S+",
    "docker-compose.yml": r"^(\s+image: vigia/[a-z-]+):()\S+",
    "docs/how-to/kubernetes.md": r"(/vigia/\$image):()[0-9][^\s]*",
}
"""Files that tell the version where their readers want it literally: the pattern of what stands before it."""


def versioned(name: str) -> str:
    """A file with the version that the file VERSION says."""
    version = (ROOT / "VERSION").read_text().strip()
    text = (ROOT / name).read_text()
    found = re.compile(VERSIONED[name], re.MULTILINE)
    return found.sub(lambda m: m[0][: m.start(2) - m.start()] + version, text)


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/metrics.md": metrics,
    "docs/reference/command-lines.md": options,
    "docs/reference/labels.md": labels.markdown,
    "docs/reference/alerts.md": partial(alerts.markdown, ROOT),
    "docs/reference/http-api.md": http_api.markdown,
    "docs/reference/openapi.json": http_api.document,
    "docs/reference/configuration.md": configuration.markdown,
    "docs/reference/probe-configuration.md": probe_configuration,
    "docs/reference/topology.md": reference.markdown,
    "docs/reference/nodes.md": nodes.markdown,
    "docs/adr/README.md": partial(decisions.markdown, ROOT / "docs/adr"),
    "CONTRIBUTING.md": rooms,
    "deploy/prometheus/agent.yml": partial(scraping, "agent.yml"),
    "deploy/prometheus/replica.yml": partial(scraping, "replica.yml"),
    **{name: partial(versioned, name) for name in VERSIONED},
}


def main() -> int:
    """Write or check every page, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    parser.add_argument("pages", metavar="PAGE", nargs="*", help=f"all, or some of {', '.join(PAGES)}")
    asked = parser.parse_args()
    if unknown := [p for p in asked.pages if p not in PAGES]:
        parser.error(f"there is no page {', '.join(unknown)}; write some of {', '.join(PAGES)}")
    check: bool = asked.check
    stale = []
    for name in asked.pages or PAGES:
        path, text = ROOT / name, PAGES[name]()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    for name in stale:
        verdict = "out of date; run make generate" if check else "written"
        sys.stdout.write(f"{name}: {verdict}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
