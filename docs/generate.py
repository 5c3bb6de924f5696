"""Writes the reference pages that are derived from code; with --check, says which are out of date."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from vigia.lab import reference
from vigia.nodes import reference as nodes
from vigia_catalog import open_labels, part_metrics
from vigia_catalog.listing import listing

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"

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
        "document that asks for another. Labels without a list are explained at the end.",
    ]
    for part, program in PARTS.items():
        lines += ["", f"## {program}", "", listing(part_metrics(part), "markdown")]
    lines += ["", "## Labels without a list", ""]
    lines += ["| label | what it is |", "| --- | --- |"]
    lines += [f"| `{label}` | {meaning} |" for label, meaning in sorted(open_labels().items())]
    return "\n".join(lines) + "\n"


def options() -> str:
    """Every program's command line."""
    lines = ["# Command lines", "", "Made by `make generate` from the programs themselves.", ""]
    commands = [
        [str(ROOT / "bin" / p), "--help-long"] for p in ("vigia-probe", "vigia-exporter", "vigia-enforcer")
    ]
    tools = Path(sys.executable).parent
    commands += [
        [str(tools / "isolation-agent"), "--help"],
        [str(tools / "vigia-compare"), "--help"],
        [str(tools / "vigia-compare"), "report", "--help"],
        [str(tools / "vigia-identity"), "--help"],
        [str(tools / "vigia"), "--help"],
    ]
    for group in ("demo", "down", "lab", "stack", "flood", "campaign", "compare"):
        commands.append([str(tools / "vigia"), group, "--help"])
    for command in commands:
        name = " ".join([Path(command[0]).name, *command[1:-1]])
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "100"})
        text = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).strip().splitlines())
        lines += [f"## {name}", "", "```", text, "```", ""]
    return "\n".join(lines)


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


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "command-lines.md": options,
    "probe-configuration.md": probe_configuration,
    "topology.md": reference.markdown,
    "nodes.md": nodes.markdown,
}


def main() -> int:
    """Write or check every page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check: bool = parser.parse_args().check
    stale = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    for name in stale:
        verdict = "out of date; run make generate" if check else "written"
        sys.stdout.write(f"docs/reference/{name}: {verdict}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
