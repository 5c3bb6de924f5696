"""make bench-site: what a site costs its Prometheus, by its size and the age of its data.

Runs as root in a network and a mount namespace of its own, which vanish with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sitecost import measure, node, report, site

PLAN = "4:1h,40:1h,400:1h,4:24h,4:30d"
"""Some 40 minutes on two quiet processors: a line needs three sizes, and the ages are compared at the smallest."""
PROCESSORS_OF_1000 = 8
"""With as many, a thousand nodes are measured as well; with fewer, the line says what they would cost."""
AGES = {"live": 0.0, "1h": 3600.0, "24h": 86400.0, "30d": 30 * 86400.0}
LEARN = 135.0
"""Seconds of scrapes that a past is made of: rules of every minute have been evaluated twice."""
INSIDE = "VIGIA_SITECOST_INSIDE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; exit 1 if a budget is missed."""
    options = _options(arguments)
    if os.environ.get(INSIDE) != "1":
        os.environ[INSIDE] = "1"
        words = ["unshare", "--net", "--mount", sys.executable, "-m", "sitecost"]
        # The process becomes that one: what stops it stops everything.
        os.execvp("unshare", [*words, *(arguments if arguments is not None else sys.argv[1:])])  # noqa: S606
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    size = node.Size(
        ports=options.ports,
        paths=options.paths,
        seconds=options.capture,
        shown=options.shown,
        node_exporter=options.node_exporter,
    )
    with _folder(options.keep) as folder:
        programs = site.Programs(build(folder / "bin"), options.prometheus)
        _say("capturing the pages of one node")
        node.capture(folder / "captures", size)
        _say(f"measuring the agents of one node for {options.agents:.0f} s")
        prices = node.price(folder, size, options.agents)
        sys.stdout.write(report.agents(prices) + "\n")
        sys.stdout.flush()
        cells = []
        for nodes, age in options.plan:
            cells.append(cell(folder, programs, size, nodes, age, options))
            sys.stdout.write(report.cell(cells[-1]) + "\n")
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps([c.data() for c in cells], indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(report.markdown(cells))
    lines = [*report.budgets(cells), *report.of_agents(prices)]
    sys.stdout.write(report.summary(cells) + "\n" + "\n".join(line.text() for line in lines) + "\n")
    return 1 if any(not line.met for line in lines) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sitecost", description=__doc__)
    parser.add_argument(
        "--plan",
        type=_plan,
        default=_default(),
        help=f"NODES:AGE, ages {', '.join(AGES)}; default {_default()}",
    )
    parser.add_argument("--seconds", type=float, default=125.0, help="how long each site is measured")
    parser.add_argument("--settle", type=float, default=60.0, help="how long it runs before that")
    parser.add_argument(
        "--compare",
        type=float,
        default=70.0,
        help="how long vigia-compare runs where data is of an hour; 0: not at all",
    )
    parser.add_argument("--agents", type=float, default=60.0, help="how long one node's agents are measured")
    parser.add_argument("--learn", type=float, default=LEARN, help="how long is scraped to make a past of")
    parser.add_argument("--capture", type=float, default=20.0, help="time between the captures of a page")
    parser.add_argument(
        "--panels", action=argparse.BooleanOptionalAction, default=True, help="ask for every panel"
    )
    parser.add_argument("--at-all", action="store_true", help="ask for panels with all variables at All, too")
    parser.add_argument("--ports", type=int, default=50, help="tenants' ports of a node")
    parser.add_argument("--paths", type=int, default=40, help="targets of a node's probe")
    parser.add_argument(
        "--shown",
        action="store_true",
        help="give every target series of its own; else they are pairs of a mesh, which have them while they are bad",
    )
    parser.add_argument("--port-life", default="24h", help="how long a tenant's port stays")
    parser.add_argument(
        "--node-exporter", action="store_true", help="with node_exporter's page of this machine"
    )
    parser.add_argument(
        "--prometheus",
        type=_program,
        default="prometheus",
        help="another one than Debian's: bin/prometheus, which make prometheus builds; GOGC in the environment is its own",
    )
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    parser.add_argument("--markdown", type=Path, help="file for the table, as docs/concepts/cost.md has it")
    parser.add_argument("--keep", type=Path, help="folder for all files, which stays")
    return parser.parse_args(arguments)


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{name} is no program; run make prometheus, or tools/bootstrap.sh test"
        )
    return Path(found).resolve()


def _default() -> str:
    return f"{PLAN},1000:live" if (os.cpu_count() or 1) >= PROCESSORS_OF_1000 else PLAN


def _plan(text: str) -> list[tuple[int, str]]:
    out = []
    for word in text.split(","):
        nodes, _, age = word.partition(":")
        if not nodes.isdecimal() or not 1 <= int(nodes) <= 5000 or age not in AGES:
            raise argparse.ArgumentTypeError(
                f"{word}: write for example 40:1h, with one of {', '.join(AGES)}"
            )
        out.append((int(nodes), age))
    return out


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="vigia-site-") as folder:
        yield Path(folder)


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def build(folder: Path) -> Path:
    """Build the Go programs of this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    where = Path(__file__).parent
    subprocess.run(["go", "build", "-C", str(where), "-o", f"{folder}/", "./pages", "./history"], check=True)
    return folder


def cell(
    folder: Path, programs: site.Programs, size: node.Size, nodes: int, age: str, options: argparse.Namespace
) -> measure.Cell:
    """Measure one site."""
    where = folder / f"{nodes}-{age}"
    site.configure(where, nodes, size)
    pages = {"nodes": str(nodes), "port-life": options.port_life}
    data = where / "data"
    if age != "live":
        learned = _learned(folder, programs, size, nodes, options)
        _say(f"{nodes} nodes: writing {age}")
        begin = time.monotonic()
        argv = [
            str(programs.folder / "history"),
            f"--from={learned}",
            f"--to={data}",
            f"--age={AGES[age]:.0f}s",
        ]
        subprocess.run([*argv, f"--port-life={options.port_life}"], check=True, stdout=sys.stderr)
        _say(f"{nodes} nodes: wrote {age} in {time.monotonic() - begin:.0f} s")
    with site.running(where, data, programs, folder / "captures", pages) as running:
        _say(f"{nodes} nodes, {age}: settling {options.settle:.0f} s")
        # Without a past, what rules of a minute record is read once it is there.
        measure.settle(running, options.settle, evaluations=2 if age == "live" else 1)
        _say(f"{nodes} nodes, {age}: measuring {options.seconds:.0f} s")
        found = measure.steady(running, nodes, age, options.seconds)
        _say(f"{nodes} nodes, {age}: {found.cores:.3f} cores, {found.anonymous >> 20} MiB; asking for panels")
        if options.panels:
            found.panels = measure.panels(min(AGES[age] or options.seconds, 3600.0), options.at_all)
        if options.compare and age == "1h":
            found.comparison = measure.comparison(running, where, options.compare)
    return found


def _learned(
    folder: Path, programs: site.Programs, size: node.Size, nodes: int, options: argparse.Namespace
) -> Path:
    """Return a data directory with a few minutes of the site, of which pasts are made."""
    where = folder / f"{nodes}-learned"
    if not where.exists():
        site.configure(where, nodes, size)
        _say(f"{nodes} nodes: learning {options.learn:.0f} s")
        pages = {"nodes": str(nodes), "port-life": options.port_life}
        with site.running(where, where / "data", programs, folder / "captures", pages):
            time.sleep(options.learn)
    return where / "data"


if __name__ == "__main__":
    sys.exit(main())
