"""Running a campaign: block after block, each repetition recorded before the next begins."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from vigia.campaign import schedule
from vigia.campaign.folder import Folder
from vigia.campaign.model import Factor, Settings, StopRule
from vigia.campaign.samples import Record, Series
from vigia.campaign.schedule import Run
from vigia.campaign.testbed import Testbed
from vigia.errors import VigiaError
from vigia.host import environment
from vigia.host.signals import Deferred

__all__ = ["Listener", "Measure", "Progress", "execute", "finished", "narrow_enough"]


Measure = Callable[[Mapping[str, Factor], Settings, Testbed], list[Series]]
"""Makes one repetition of a combination. Raises VigiaError."""


@dataclass(frozen=True)
class Progress:
    """How far a campaign is, after a repetition."""

    done: int
    total: int
    failed: int
    left: float
    """Seconds that the rest takes, if it goes on as so far."""
    record: Record


class Listener(Protocol):
    """Hears about each repetition as it is recorded."""

    def recorded(self, progress: Progress, series: list[Series]) -> None:
        """A repetition was recorded."""


def execute(
    folder: Folder, measure: Measure, testbed: Testbed, stop: Deferred, listeners: list[Listener]
) -> None:
    """Make every repetition that is not recorded yet. Raises Interrupted between two of them.

    A repetition that fails is recorded with its reason, and the campaign goes on.
    """
    plan, campaign = folder.plan, folder.campaign
    cells = plan.cells()
    seed = campaign.seed if campaign.order == "randomised" else None
    clock = _Clock(len(cells) * plan.stop.repetitions, len(folder.records))
    values = _Values(plan.stop, campaign.confidence)
    for record in folder.records:
        values.recall(record, folder)
    for block in range(plan.stop.repetitions):
        for run in schedule.block(cells, block, seed):
            if folder.record(run.number) is not None:
                continue
            if values.enough(run.cell):
                clock.spare()
                continue
            stop.check()
            record, series = _repetition(run, folder, measure, testbed)
            folder.add(record, series)
            values.add(run.cell, series)
            progress = clock.after(record, sum(r.status == "failed" for r in folder.records))
            for listener in listeners:
                listener.recorded(progress, series)


def _repetition(run: Run, folder: Folder, measure: Measure, testbed: Testbed) -> tuple[Record, list[Series]]:
    before = environment.load()[0]
    began, begin = time.time(), time.monotonic()
    series: list[Series] = []
    status, reason = "done", ""
    try:
        series = measure(run.factors, folder.plan.settings, testbed)
    except VigiaError as e:
        status, reason = "failed", str(e)
    events: list[dict[str, Any]] = []
    try:
        events = testbed.marks()
    except VigiaError as e:
        status, reason = "failed", reason or str(e)
    record = Record(
        run=run.number,
        block=run.block,
        cell=run.cell,
        factors=dict(run.factors),
        began=began,
        seconds=time.monotonic() - begin,
        samples=sum(len(s.values) for s in series),
        status=status,
        reason=reason,
        load=(before, environment.load()[0]),
        events=events,
    )
    return record, series


class _Clock:
    """What is left, from what the repetitions took so far."""

    def __init__(self, total: int, done: int) -> None:
        self._total = total
        self._done = done
        self._here = 0
        self._begin = time.monotonic()

    def spare(self) -> None:
        self._total -= 1

    def after(self, record: Record, failed: int) -> Progress:
        self._done += 1
        self._here += 1
        each = (time.monotonic() - self._begin) / self._here
        left = each * max(0, self._total - self._done)
        return Progress(self._done, self._total, failed, left, record)


class _Values:
    """Means of repetitions, for a stop rule that looks at them."""

    def __init__(self, stop: StopRule, confidence: float) -> None:
        self._stop = stop
        self._confidence = confidence
        self._means: dict[int, list[float]] = {}

    def add(self, cell: int, series: list[Series]) -> None:
        values = [v for s in series if s.metric == self._stop.metric for v in s.values if not math.isnan(v)]
        if values:
            self._means.setdefault(cell, []).append(statistics.fmean(values))

    def recall(self, record: Record, folder: Folder) -> None:
        if self._stop.until is None or record.status != "done":
            return
        here = folder.samples_of(record.run)
        metrics, values = here["metric"].to_pylist(), here["value"].to_pylist()
        pairs = zip(metrics, values, strict=True)
        values = [v for metric, v in pairs if metric == self._stop.metric and v is not None]
        if values:
            self._means.setdefault(record.cell, []).append(statistics.fmean(values))

    def enough(self, cell: int) -> bool:
        means = self._means.get(cell, [])
        if self._stop.until is None or len(means) < self._stop.minimum:
            return False
        return narrow_enough(means, self._stop.until, self._confidence)


def narrow_enough(means: list[float], part: float, confidence: float) -> bool:
    """Whether the t-interval of the mean is at most this part of it wide on either side.

    means are one value per repetition, the experimental unit.
    """
    from vigia_statistics import mean_interval  # noqa: PLC0415 - loads scipy, for this rule alone

    interval = mean_interval(means, confidence)
    return interval.upper - interval.estimate <= part * abs(interval.estimate)


@contextmanager
def finished(folder: Folder) -> Iterator[None]:
    """Note in the manifest how the body ended."""
    try:
        yield
    except BaseException as e:
        folder.update(state="interrupted", reason=str(e) or type(e).__name__)
        raise
    folder.merge()
    folder.update(state="done", reason="", load_at_end=list(environment.load()))
