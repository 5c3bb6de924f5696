"""What a person sees: step lines with times, tables, JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vigia.errors import VigiaError
from vigia_prometheus.errors import PrometheusError
from vigia_text import tables, terminal

__all__ = ["Bar", "Step", "Steps", "is_watched", "print_json", "print_table", "show", "watch"]


_ENDLESS = 10_000
"""Columns of what nobody watches."""


class Steps:
    """Prints one line per step when it has been done: seconds since the start, and what was done.

    On a terminal the step at work is shown with a spinner. With NO_COLOR, on a
    terminal that cannot be drawn on, and where output goes elsewhere, there are
    lines and nothing that moves.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._console = Console(file=self._stream, highlight=False)
        self._plain = bool(os.environ.get("NO_COLOR")) or self._console.is_dumb_terminal
        self._begin = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begin

    @property
    def is_terminal(self) -> bool:
        """Whether somebody watches who wants to see things move."""
        return self._console.is_terminal and not self._plain

    def live(self, what: RenderableType) -> Live:
        """Return a display, not started, that is shown in place and leaves nothing behind."""
        return Live(what, console=self._console, refresh_per_second=4, transient=True)

    @contextmanager
    def step(self, doing: str, *, expected: float = 0.0, total: int = 0) -> Iterator[Step]:
        """Show that something is being done; then print it, or what the body said that was done.

        On a terminal a step that is expected to take some seconds, or that has so
        many parts in total, shows how far it is and how much is left. Nothing is
        printed of a step that says "" of itself.
        """
        done = Step(total)
        with self._at_work(Bar(doing, done, expected)) if self.is_terminal else nullcontext():
            yield done
        if done.said != [""]:
            self.line(" ".join(done.said) or doing)

    def _at_work(self, bar: Bar) -> AbstractContextManager[object]:
        """Show a step while it lasts."""
        if bar.knows_its_end:
            return Live(
                get_renderable=bar.render, console=self._console, refresh_per_second=4, transient=True
            )
        return self._console.status(bar.doing)

    def line(self, text: str) -> None:
        """Print a line with the time."""
        self._console.print(f"{self.elapsed:7.2f} s  {text}", markup=False, soft_wrap=True)


class Step:
    """A step at work."""

    def __init__(self, total: int = 0) -> None:
        self.total = total
        self.parts = 0
        """Parts of the total that are done."""
        self.said: list[str] = []

    def append(self, what: str) -> None:
        """Say what was done."""
        self.said.append(what)

    def advance(self) -> None:
        """Count one more part as done."""
        self.parts += 1


class Bar:
    """Progress by parts or by time, with what is left."""

    def __init__(self, doing: str, step: Step, expected: float) -> None:
        self.doing = doing
        self._step = step
        self._expected = expected
        self._begin = time.monotonic()

    @property
    def knows_its_end(self) -> bool:
        """Whether it can tell how far it is."""
        return self._expected > 0 or self._step.total > 0

    def _share_and_left(self) -> tuple[float, float]:
        gone = time.monotonic() - self._begin
        if self._step.total:
            share = self._step.parts / self._step.total
            return share, gone / share - gone if share else 0.0
        return min(1.0, gone / self._expected), self._expected - gone

    @property
    def left(self) -> float:
        """Seconds that it takes further, as it seems; 0 where that is not known."""
        return max(0.0, self._share_and_left()[1]) if self.knows_its_end else 0.0

    def cells(self) -> tuple[RenderableType, ...]:
        """Return what is being done, how far it is, and what is left."""
        if not self.knows_its_end:
            return (self.doing,)
        share, left = self._share_and_left()
        eta = f"about {left:.0f} s left" if left > 0.5 else "a moment longer"
        count = f"{self._step.parts}/{self._step.total}, " if self._step.total else ""
        return self.doing, ProgressBar(total=1.0, completed=share, width=30), count + eta

    def render(self) -> Table:
        """Return it as a line."""
        line = Table.grid(padding=(0, 1))
        line.add_row(*self.cells())
        return line


def is_watched() -> bool:
    """Tell whether standard output is a terminal that can be drawn on."""
    return Console().is_terminal and not Console().is_dumb_terminal


def show(what: RenderableType) -> None:
    """Print once. Where nobody watches, lines are as long as what is in them."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_ENDLESS)
    with console.capture() as captured:
        console.print(what)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def watch(draw: Callable[[int], RenderableType], every: float) -> None:
    """Show what draw returns, which is told the number of lines, anew every so many seconds, until Ctrl-C.

    What a look fails with is shown below what was seen last; the first one's failure is raised.
    """
    console = Console(highlight=False)
    seen = draw(console.height - 1)
    with suppress(KeyboardInterrupt), Live(seen, console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            try:
                seen = draw(console.height - 1)
                live.update(seen, refresh=True)
            except (VigiaError, PrometheusError) as e:
                live.update(Group(Text(terminal.clean(str(e)), style="bold red"), seen), refresh=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns on standard output, folded to what a terminal has."""
    sys.stdout.write(tables.table(header, rows, width=terminal.width(sys.stdout)) + "\n")


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
