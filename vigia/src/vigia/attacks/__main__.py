"""The corpus against both switches: python -m vigia.attacks, run by make test-attacks.

Every attack meets a victim's TCP in a bed of three nodes with real enforcers, and every
legitimate entry runs beside it. It fails if the victim has less than 95% of what it bought
from the second second on, if an honest tenant is limited, or if the operator's probes are lost.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vigia.attacks import experiment, table
from vigia.attacks.corpus import ATTACKS, CORPUS, LEGITIMATE, SHORT, Entry
from vigia.attacks.experiment import AttackTrial
from vigia.errors import VigiaError
from vigia.host.signals import interrupting
from vigia.isolation.overlay import OverlaySwitch, OverlayTestbed
from vigia.stack import places

_HONEST = frozenset(e.name for e in LEGITIMATE)
_AROUND = 4.0  # seconds that a run takes beside its traffic


def main(argv: Sequence[str] | None = None) -> int:
    """Run the corpus and print its table; 1 if a requirement is not met, 2 for a wrong option."""
    options = _options(argv)
    entries = _chosen(options.only, short=options.short)
    switches = [OverlaySwitch(s) for s in options.switches.split(",")]
    trials = list(options.trials)
    shown = sys.stderr if options.json else sys.stdout

    def say(line: str) -> None:
        shown.write(f"{line}\n")
        shown.flush()

    failed = False
    try:
        with interrupting():
            _run_all(entries, switches, options.runs, trials, say)
    except VigiaError as e:  # what has been run is shown all the same
        failed = True
        sys.stderr.write(f"cannot run all of the corpus: {e}\n")
    rows = table.summarise(trials)
    if options.json:
        json.dump({"rows": [asdict(r) for r in rows], "trials": [asdict(t) for t in trials]}, sys.stdout)
    for line in table.text(rows):
        say(line)
    if options.write and not failed:
        table.write(options.write, rows)
        say(f"written to {options.write}")
    return int(failed or any(r.faults and not r.gap for r in rows))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-attacks", description=__doc__)
    both = ",".join(s.value for s in OverlaySwitch)
    parser.add_argument("--runs", type=int, default=3, help="runs of each entry on each switch")
    parser.add_argument("--switches", default=both, help=f"of {both}")
    parser.add_argument("--only", default="", help="names of entries, with commas; default: all")
    parser.add_argument("--short", action="store_true", help=f"only {', '.join(SHORT)}")
    parser.add_argument("--json", action="store_true", help="print one JSON document to standard output")
    parser.add_argument(
        "--add", type=Path, action="append", default=[], metavar="FILE", help="count a document's runs, too"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the table into docs/concepts/isolation.md"
    )
    options = parser.parse_args(argv)
    if options.runs < 0 or (options.runs == 0 and not options.add):
        parser.error(f"argument --runs: {options.runs} is out of range; write 1 or more")
    known = {s.value for s in OverlaySwitch}
    for name in options.switches.split(","):
        if name not in known:
            parser.error(f'argument --switches: "{name}" is no switch; write {both}')
    for name in filter(None, options.only.split(",")):
        if name not in CORPUS:
            parser.error(f'argument --only: "{name}" is not in the corpus; write one of {", ".join(CORPUS)}')
    try:  # before the hour that the corpus takes
        if options.write:
            table.around(options.write)
    except VigiaError as e:
        parser.error(f"argument --write: {e}")
    try:
        options.trials = [t for file in options.add for t in _recorded(file)]
    except VigiaError as e:
        parser.error(f"argument --add: {e}")
    return options


def _recorded(file: Path) -> list[AttackTrial]:
    """Return the runs of a document that --json printed. Raises VigiaError."""
    try:
        return [AttackTrial(**t) for t in json.loads(file.read_text())["trials"]]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise VigiaError(f"{file} is no document of make test-attacks ATTACKS=--json: {e!r}") from e


def _chosen(only: str, *, short: bool) -> list[Entry]:
    names = SHORT if short else [n for n in only.split(",") if n]
    return [CORPUS[n] for n in names] if names else [*ATTACKS, *LEGITIMATE]


def _run_all(
    entries: Sequence[Entry],
    switches: Sequence[OverlaySwitch],
    runs: int,
    trials: list[AttackTrial],
    say: table.Say,
) -> None:
    """Run the entries and put what they came to into trials. Raises VigiaError."""
    if not runs:
        return
    todo = sum(map(_takes, entries)) * len(switches) * runs
    say(f"{len(entries)} entries on {len(switches)} switches, {runs} times: about {todo / 60:.0f} min")
    begun, done = time.monotonic(), 0.0
    for switch in switches:
        with OverlayTestbed(experiment.plan(), places.built("vigia-enforcer"), switch, "debug") as bed:
            for number in range(runs):
                for entry in entries:
                    trial = experiment.run(bed, entry, honest=entry.name in _HONEST)
                    trials.append(trial)
                    done += _takes(entry)
                    left = (time.monotonic() - begun) * (todo - done) / done
                    say(f"{_told(trial)}  (run {number + 1}, {left / 60:.0f} min left)")


def _takes(entry: Entry) -> float:
    """Return how many seconds a run takes, roughly."""
    return experiment.ONSET + entry.seconds + _AROUND


def _told(t: AttackTrial) -> str:
    limited = "not limited" if t.limited is None else f"limited after {t.limited * 1e3:.0f} ms"
    bad = experiment.faults(CORPUS[t.entry], t, honest=t.entry in _HONEST)
    return (
        f"{t.switch:<11} {t.entry:<25} victim {t.victim:.2f}, worst second {t.worst:.2f}, {limited},"
        f" sent {t.offered:.1f} of the contract{'; ' + '; '.join(bad) if bad else ''}"
    )


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("cannot make network namespaces; run make test-attacks as root")
    sys.exit(main())
