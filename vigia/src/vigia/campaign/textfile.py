"""Progress of a campaign as a text file that node_exporter's textfile collector reads."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile

from vigia.campaign.engine import Progress
from vigia.campaign.folder import Folder
from vigia.campaign.samples import Series
from vigia.errors import OptionError, VigiaError
from vigia_catalog import Factory

__all__ = ["Textfile"]


class Textfile:
    """Hears about each repetition and writes the whole file anew, so that a reader never sees half of it."""

    def __init__(self, file: Path, folder: Folder) -> None:
        """Raises VigiaError if the file cannot be written there."""
        if file.suffix != ".prom":
            raise OptionError(f"--textfile {file}: the collector reads files that end in .prom; rename it")
        if not file.parent.is_dir():
            raise OptionError(f"--textfile {file}: {file.parent} is not a folder; make it, or choose another")
        self._file = file
        self._labels = (folder.campaign.name, folder.campaign.study)
        self._registry = CollectorRegistry()
        make = Factory("campaign", self._registry)
        self._repetitions = make.gauge("vigia_campaign_repetitions")
        self._left = make.gauge("vigia_campaign_remaining_seconds")
        self._last = make.gauge("vigia_campaign_last_repetition_timestamp_seconds")
        self._duration = make.gauge("vigia_campaign_last_repetition_duration_seconds")
        self._count("planned", len(folder.plan.cells()) * folder.plan.stop.repetitions)
        self._count("done", sum(r.status == "done" for r in folder.records))
        self._count("failed", sum(r.status == "failed" for r in folder.records))
        try:
            self._write()
        except OSError as e:
            raise VigiaError(f"--textfile {file}: cannot be written: {e.strerror}") from e

    def recorded(self, progress: Progress, series: list[Series]) -> None:
        """Write how far the campaign is; a full disk is no reason to stop measuring."""
        self._count("planned", progress.total)
        self._count("done", progress.done - progress.failed)
        self._count("failed", progress.failed)
        self._left.labels(*self._labels).set(progress.left)
        self._last.labels(*self._labels).set(progress.record.began + progress.record.seconds)
        self._duration.labels(*self._labels).set(progress.record.seconds)
        with suppress(OSError):
            self._write()

    def _count(self, state: str, repetitions: int) -> None:
        self._repetitions.labels(*self._labels, state).set(repetitions)

    def _write(self) -> None:
        write_to_textfile(str(self._file), self._registry)
        self._file.chmod(0o644)  # the collector runs as another user
