"""What a fault is, and all of them: the table of docs/concepts/faults.md is made of this."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from faults.load import Load
from faults.site import Site

__all__ = ["FAULTS", "Expected", "Fault", "Scene", "fault"]


@dataclass(frozen=True)
class Scene:
    """Where a fault is done."""

    site: Site
    load: Load
    stored: dict[str, int]
    """How many series of each name Prometheus had at the beginning."""


@dataclass(frozen=True)
class Expected:
    """What a fault may do besides; everything else is a failure."""

    restarts: str = ""
    """Services that are started again, as a regular expression."""
    tells: str = ""
    """Alerts that are rightly told, as a regular expression of their names."""
    loses: bool = False
    """Whether packets, or who answers them, are really gone for a while."""
    limits: bool = False
    """Whether somebody is rightly limited."""
    moves: str = ""
    """Devices that are really made anew, as a regular expression."""

    def may_restart(self, service: str) -> bool:
        return bool(re.fullmatch(self.restarts, service))

    def may_tell(self, alert: str) -> bool:
        return bool(re.fullmatch(self.tells, alert))


Course = Callable[[Scene], Iterator[None]]
"""Does the fault and waits until it is noticed; after the yield takes it away."""


@dataclass(frozen=True)
class Fault:
    """One fault, done to the running site."""

    name: str
    group: str
    what: str
    promise: str
    course: Course
    expected: Expected
    short: bool
    """Whether the gate's short form has it."""


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    group: str,
    what: str,
    promise: str,
    expected: Expected = Expected(),  # noqa: B008 - it cannot be changed
    *,
    short: bool = False,
) -> Callable[[Course], Course]:
    """Put a fault on the list. what and promise are sentences of the table."""

    def put(course: Course) -> Course:
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, group, what, promise, course, expected, short)
        return course

    return put
