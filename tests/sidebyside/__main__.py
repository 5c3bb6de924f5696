"""make bench: Vigia's parts beside their peers, their growth and their floors, in one run.

A peer that is not installed is a line that says how to get it. With --keep a run can be cut
and goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from sidebyside import detection, exporter, floors, growing, isolation, page, probes
from sidebyside.figures import Figure, Growth
from sidebyside.part import Bench, Part

PARTS = {
    part.name: part
    for part in (
        Part("probes", "fping, SmokePing's method, blackbox_exporter", 330, probes.beside),
        Part("exporter", "node_exporter's netdev", 420, exporter.beside),
        Part("detection", "FastNetMon, tuned and as shipped", 270, detection.beside, 620),
        Part("isolation", "HTB alone, no control", 180, isolation.beside),
        Part("growth", "10, 100, 1 000 and 5 000 of each part's unit", 600, growing.grown),
        Part("floors", "bare system calls, an empty program, memory", 240, floors.beside),
    )
}

Results = list[Figure | Growth]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for; 1 if one could not be measured, 2 for a wrong option."""
    options = _options(arguments)
    with _folder(options.keep) as folder:
        results, failed, loads = measure(options, folder)
    where = page.environment(loads or [os.getloadavg()[0]])
    if options.json:
        document = {
            "environment": asdict(where),
            "figures": [asdict(r) for r in results if isinstance(r, Figure)],
            "growth": [asdict(r) for r in results if isinstance(r, Growth)],
            "failed": failed,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    text = page.markdown(results, where, failed)
    if options.markdown:
        options.markdown.write_text(text)
    if options.write:
        page.write(page.PAGE, page.sections(results, where, failed))
    sys.stdout.write(page.terminal(results, where))
    for part, why in failed.items():
        sys.stdout.write(f"cannot measure {part}: {why}\n")
    return int(bool(failed))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    names = ", ".join(PARTS)
    parser.add_argument("--only", default="", help=f"parts with commas, of {names}; default: all")
    parser.add_argument("--repetitions", type=int, default=5, help="of each figure, where one costs seconds")
    parser.add_argument(
        "--corpus",
        choices=("sample", "whole"),
        default="sample",
        help="attacks that detection is measured on: a sample, in 5 minutes (default), or all 61 entries, in 11",
    )
    parser.add_argument("--short", action="store_true", help="whether all works: few sizes, one repetition")
    parser.add_argument(
        "--keep", type=Path, help="folder of what was measured; parts that are there are not measured again"
    )
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    parser.add_argument(
        "--write", action="store_true", help="put the tables of these parts into docs/concepts/performance.md"
    )
    options = parser.parse_args(arguments)
    if not 1 <= options.repetitions <= 100:
        parser.error(f"argument --repetitions: {options.repetitions} is out of range; write 1 to 100")
    options.only = [name for name in options.only.split(",") if name] or list(PARTS)
    for name in options.only:
        if name not in PARTS:
            parser.error(f'argument --only: "{name}" is no part; write one of {names}')
    return options


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="vigia-bench-") as folder:
        yield Path(folder)


def measure(options: argparse.Namespace, folder: Path) -> tuple[Results, dict[str, str], list[float]]:
    """Return what was measured, the parts that were not and why, and the loads before and after each."""
    results: Results = []
    failed: dict[str, str] = {}
    loads: list[float] = []
    begun, done = time.monotonic(), 0.0
    whole = options.corpus == "whole"
    todo = sum(PARTS[name].takes(whole=whole) for name in options.only)
    for name in options.only:
        part, left = PARTS[name], todo - done
        _say(
            f"{name}: {part.what}"
            + ("" if options.short else f"; about {_left(begun, done, left) / 60:.0f} min left")
        )
        try:
            found, during = _part(part, folder, options)
            results += found
            loads += during
        except Exception as e:  # the other parts are measured all the same
            failed[name] = f"{type(e).__name__}: {e}"
            _say(f"cannot measure {name}: {failed[name]}")
        done += part.takes(whole=whole)
    return results, failed, loads


def _left(begun: float, done: float, left: float) -> float:
    """Return the seconds that are left, by how the parts before did against what they were said to take."""
    return left * (time.monotonic() - begun) / done if done else left


def _part(part: Part, folder: Path, options: argparse.Namespace) -> tuple[Results, list[float]]:
    """Measure a part, or take what was kept of it; with the load before and after."""
    whole = options.corpus == "whole"
    kept = folder / f"part-{part.name}{'-whole' if whole and part.whole_seconds else ''}.json"
    if not kept.exists():
        before = os.getloadavg()[0]
        bench = Bench(folder, options.short, options.repetitions, _say, whole)
        found = [asdict(r) for r in part.body(bench)]
        kept.write_text(json.dumps({"loads": [before, os.getloadavg()[0]], "results": found}))
    document = json.loads(kept.read_text())
    return _read(document["results"]), document["loads"]


def _read(documents: Sequence[Mapping[str, object]]) -> Results:
    read: Callable[[Mapping[str, object]], Figure | Growth]
    out: Results = []
    for document in documents:
        read = Growth.of_document if "points" in document else Figure.of
        out.append(read(document))
    return out


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("cannot make network namespaces; run make bench as root")
    sys.exit(main())
