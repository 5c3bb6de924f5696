"""What every part of make bench is given, and how it runs the benchmarks that are there already."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidebyside.figures import Figure, Growth

__all__ = ["ROOT", "Bench", "Part", "PartError", "go_metrics"]

ROOT = Path(__file__).resolve().parents[2]

Result = Figure | Growth


class PartError(Exception):
    """A part could not be measured."""


@dataclass(frozen=True)
class Bench:
    """What a part works with."""

    folder: Path
    """Files of its own."""
    short: bool
    """Whether all works, and not how fast: for tests."""
    repetitions: int
    say: Callable[[str], None]
    whole: bool = False
    """Whether all of the corpus of attacks is asked for, and not its sample."""

    def run(self, *argv: str, **environment: str) -> str:
        """Run a command in the repository and return its standard output; what it says of its way is shown.

        Raises PartError when it fails; 1 is what benchmarks end with whose budgets are missed, and no failure.
        """
        words = " ".join(argv[:4])
        with subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        ) as child:
            try:
                out, _ = child.communicate()
            except BaseException:  # interrupted: it has to take away what it made, which a kill would leave
                child.terminate()
                child.wait(120)
                raise
        if child.returncode not in {0, 1}:
            raise PartError(f"{words} ended with {child.returncode}: {out[-500:]}")
        return out

    def once(self, name: str, make: Callable[[], str]) -> str:
        """Return what make returned the first time: parts share it, and a run that was cut has it already."""
        file = self.folder / name
        if not file.exists():
            file.write_text(make())
        return file.read_text()

    def document(self, *argv: str, **environment: str) -> dict[str, Any]:
        """Run a command that writes a JSON document into the file that --json names, and return it."""
        file = self.folder / "document.json"
        file.unlink(missing_ok=True)
        out = self.run(*argv, f"--json={file}", **environment)
        if not file.exists():
            raise PartError(f"{' '.join(argv[:4])} wrote no figures: {out[-500:]}")
        found = json.loads(file.read_text())
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True)
class Part:
    """One part."""

    name: str
    what: str
    seconds: float
    """Roughly how long it takes on two processors."""
    body: Callable[[Bench], Iterator[Result]]
    whole_seconds: float | None = None
    """Of the whole corpus, where it is one of attacks."""

    def takes(self, *, whole: bool) -> float:
        """Return roughly how many seconds it takes."""
        return self.whole_seconds if whole and self.whole_seconds is not None else self.seconds


_LINE = re.compile(r"^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(.*)$")


def go_metrics(output: str) -> dict[str, list[dict[str, float]]]:
    """Return what go test's benchmarks reported, by name: unit and value, once for each line."""
    found: dict[str, list[dict[str, float]]] = {}
    for m in filter(None, map(_LINE.match, output.splitlines())):
        words = m[2].split()
        found.setdefault(m[1], []).append({u: float(v) for v, u in zip(words[::2], words[1::2], strict=True)})
    return found


def each(metrics: Sequence[Mapping[str, float]], unit: str) -> list[float]:
    """Return a unit's value of every line."""
    return [m[unit] for m in metrics if unit in m]
