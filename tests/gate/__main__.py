"""The gate's command line: `python -m gate` in tests/."""

from __future__ import annotations

import argparse
import sys
import time

import gate
from gate.commands import ROOT
from gate.inputs import Memory, allowed
from gate.leftovers import clean_up
from gate.results import table
from gate.schedule import run_steps
from gate.steps import APART, CLOUDS, LONG, SHORT


def main() -> int:
    """Run the steps that were asked for and return the exit status."""
    steps = {s.name: s for s in (*SHORT, *LONG, *CLOUDS, *APART)}
    parser = argparse.ArgumentParser(prog="gate", description=gate.__doc__)
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument("--long", action="store_true", help="the long matrices instead of the short steps")
    sets.add_argument("--all", action="store_true", help="all of these, clouds and releases")
    add = parser.add_argument
    add("--only", action="append", choices=steps, default=[], help="run this step (repeatable)")
    add("--without", action="append", choices=steps, default=[], help="leave this step out")
    add("--fresh", action="store_true", help="run steps whose inputs have not changed, too")
    options = parser.parse_args()
    chosen = (*SHORT, *LONG, *CLOUDS) if options.all else LONG if options.long else SHORT
    names = [n for n in (options.only or [s.name for s in chosen]) if n not in options.without]
    begin = time.monotonic()
    clean_up()
    memory = None if options.fresh or not allowed() else Memory(ROOT, ROOT / ".build" / "gate")
    outcomes = run_steps([steps[n] for n in names], memory)
    print(table(outcomes, time.monotonic() - begin))
    return 1 if any(o.count.failed or o.output for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
