"""What a person sees while a campaign runs."""

from __future__ import annotations

from types import TracebackType

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from vigia.campaign.engine import Progress
from vigia.campaign.folder import Folder
from vigia.campaign.model import shown
from vigia.campaign.samples import Series
from vigia.console import Steps

__all__ = ["Watcher"]


class Watcher:
    """A bar with the time that is left on a terminal; elsewhere a line per repetition."""

    def __init__(self, steps: Steps, folder: Folder) -> None:
        self._steps = steps
        self._total = len(folder.plan.cells()) * folder.plan.stop.repetitions
        self._live: Live | None = None

    def __enter__(self) -> Watcher:
        if self._steps.is_terminal:
            self._live = self._steps.live(self._bar(0, self._total, "starting"))
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def recorded(self, progress: Progress, series: list[Series]) -> None:
        """Show a repetition."""
        r = progress.record
        failed = f", {progress.failed} failed" if progress.failed else ""
        left = f"about {_left(progress.left)} left{failed}"
        if self._live:
            self._live.update(self._bar(progress.done, progress.total, f"{shown(r.factors)}, {left}"))
            return
        verdict = f"{r.samples} samples" if r.status == "done" else f"FAILED: {r.reason}"
        self._steps.line(f"{progress.done}/{progress.total}  {shown(r.factors)}: {verdict}; {left}")

    @staticmethod
    def _bar(done: int, total: int, text: str) -> Table:
        line = Table.grid(padding=(0, 1))
        line.add_row(f"{done}/{total}", ProgressBar(total=max(1, total), completed=done, width=30), text)
        return line


def _left(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
