"""A run of several stages as a live view: which are over, which is at work and how far, and what is left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.live import Live
from rich.table import Table
from rich.text import Text

from vigia.console import Bar, Steps

__all__ = ["Course", "Stage"]

_LATE = 1.0
"""Seconds that a stage is taken to need at least while it is at work."""


@dataclass
class Stage:
    """A part of the run."""

    name: str
    expected: float
    """Seconds that it usually takes."""
    begin: float = 0.0
    """On the monotonic clock; 0 before it."""
    end: float = 0.0

    def left(self, now: float) -> float:
        """Return the seconds that it takes further, as it seems."""
        if self.end:
            return 0.0
        return max(_LATE, self.expected - (now - self.begin)) if self.begin else self.expected


class Course(Steps):
    """Steps of a run whose stages are known; where nobody watches it prints the lines of Steps alone."""

    def __init__(self, title: str, stages: Mapping[str, float], stream: TextIO | None = None) -> None:
        """``stages`` has the seconds that each usually takes, in their order."""
        super().__init__(stream)
        self._title = title
        self._stages = [Stage(name, expected) for name, expected in stages.items()]
        self._bar: Bar | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the stages below the lines of what is done; nothing of it stays."""
        if not self.is_terminal:
            yield
            return
        with Live(get_renderable=self.view, console=self._console, refresh_per_second=4, transient=True):
            yield

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Be in a stage. What comes out of it with an error has not ended."""
        stage = next(s for s in self._stages if s.name == name)
        stage.begin = time.monotonic()
        yield
        stage.end = time.monotonic()

    def _at_work(self, bar: Bar) -> AbstractContextManager[object]:
        return self._as_current(bar)

    @contextmanager
    def _as_current(self, bar: Bar) -> Iterator[None]:
        before, self._bar = self._bar, bar
        try:
            yield
        finally:
            self._bar = before

    def view(self) -> Table:
        """Return what is shown now: a line for the run, and one for each stage."""
        now = time.monotonic()
        left = sum(self._left(stage, now) for stage in self._stages)
        table = Table.grid(padding=(0, 1))
        head = f"{self._title}: {_spelled(self.elapsed)} gone, about {_spelled(left)} left"
        table.add_row("", Text(head, style="bold"))
        for stage in self._stages:
            table.add_row(*self._row(stage, now))
        return table

    def _left(self, stage: Stage, now: float) -> float:
        at_work = stage.begin and not stage.end
        return max(stage.left(now), self._bar.left if at_work and self._bar else 0.0)

    def _row(self, stage: Stage, now: float) -> tuple[Text, Table]:
        line = Table.grid(padding=(0, 1))
        if stage.end:
            line.add_row(stage.name, Text(_spelled(stage.end - stage.begin), style="dim"))
            return Text("✓", style="green"), line
        if not stage.begin:
            line.add_row(Text(f"{stage.name}, about {_spelled(stage.expected)}", style="dim"))
            return Text("·", style="dim"), line
        name = Text(f"{stage.name}:", style="bold")
        if self._bar:
            line.add_row(name, *self._bar.cells())
        else:
            line.add_row(name, f"since {_spelled(now - stage.begin)}")
        return Text("▸", style="cyan"), line


def _spelled(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"
