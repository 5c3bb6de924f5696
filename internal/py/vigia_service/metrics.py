"""The metrics that every program has of itself, in a registry of its own."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from vigia_catalog import Factory

__all__ = ["SelfMetrics", "revision"]

_STAMP = "_revision.txt"


@cache
def revision(package: str) -> str:
    """Return the short commit id of a package's source, or unknown.

    An image is stamped when it is built (``_revision.txt`` in the package); in a checkout git knows.
    """
    folder = files(package)
    try:
        return folder.joinpath(_STAMP).read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        pass
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(str(folder))), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5.0,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"


class SelfMetrics:
    """Process, build and reload metrics of a part, and the factory for its others."""

    def __init__(self, part: str, distribution: str, package: str) -> None:
        """``part`` is the catalogue's name of the program, the others those of its Python source."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they are no metrics of the catalogue
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.make = make = Factory(part, self.registry)
        self._reload_ok = make.gauge(f"vigia_{part}_config_last_reload_successful")
        self._reload_time = make.gauge(f"vigia_{part}_config_last_reload_success_timestamp_seconds")
        build = make.gauge(f"vigia_{part}_build_info")
        runtime = f"python{platform.python_version()}"
        build.labels(version(distribution), revision(package), runtime).set(1)

    def reloaded(self, ok: bool) -> None:
        """Record the outcome of loading the configuration, the first time included."""
        self._reload_ok.set(ok)
        if ok:
            self._reload_time.set_to_current_time()
