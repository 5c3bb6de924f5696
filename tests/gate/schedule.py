"""Running steps: those that measure alone, the others side by side, the heaviest first."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed

from gate.commands import metered
from gate.inputs import Memory
from gate.results import Failure, Outcome, unearned
from gate.steps import Step

AT_ONCE = 4
"""Steps at a time: they wait for the kernel and for other programs half of the time."""


def run_steps(steps: Iterable[Step], memory: Memory | None) -> list[Outcome]:
    """Run steps to their end, whatever fails, in the order of the table for those that run alone.

    With a memory, a step whose inputs are what they were when it last passed is not run again.
    """
    wanted = list(steps)
    together = sorted((s for s in wanted if not s.alone), key=lambda s: -s.weight)
    done: dict[str, Outcome] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in as_completed([pool.submit(run_step, s, memory) for s in together]):
            outcome = future.result()
            done[outcome.step] = outcome
    for step in wanted:
        if step.alone:
            done[step.name] = run_step(step, memory)
    return [done[s.name] for s in wanted]


def run_step(step: Step, memory: Memory | None) -> Outcome:
    """Run one step and print what became of it."""
    if sys.stdout.isatty():
        print(f"          {step.name}: {step.what} ...", end="\r", flush=True)
    begin = time.monotonic()
    outcome = _recalled(step, memory) or _ran(step, memory, begin)
    print(outcome.lines(), flush=True)
    return outcome


def _recalled(step: Step, memory: Memory | None) -> Outcome | None:
    count = memory.recall(step.name, step.inputs) if memory else None
    return Outcome(step.name, count, "", 0.0, 0.0, unchanged=True) if count else None


def _ran(step: Step, memory: Memory | None, begin: float) -> Outcome:
    before = memory.digest(step.inputs) if memory else ""
    with metered() as cpu:
        try:
            count, output = step.body(), ""
        except Failure as e:
            count, output = e.count, str(e)
    wrong = unearned(count)
    if wrong and not output:
        count.failed += len(wrong)
        output = "skipped as root for want of root:\n" + "\n".join(wrong)
    if memory and not output:
        memory.keep(step.name, step.inputs, before, count)
    return Outcome(step.name, count, output, time.monotonic() - begin, sum(cpu))
