"""Signals that ask the program to stop: kept until it can, or an error that undoes what was begun."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vigia.errors import Interrupted

__all__ = ["Deferred", "deferred", "interrupting"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Deferred:
    """What has been asked for since deferred began."""

    def __init__(self) -> None:
        self._number: int | None = None

    def check(self) -> None:
        """Raise Interrupted if the program was asked to stop."""
        if self._number is not None:
            raise Interrupted(f"stopped by {signal.Signals(self._number).name}")

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._number = self._number or number


@contextmanager
def deferred() -> Iterator[Deferred]:
    """Keep SIGINT, SIGTERM and SIGHUP: nothing stops half-way, only where check is called.

    In another thread than the main one, which alone gets signals, nothing is kept.
    One inside another hands on what it kept, since nobody may have asked it at the end.
    """
    kept = Deferred()
    if threading.current_thread() is not threading.main_thread():
        yield kept
        return
    before = {number: signal.signal(number, kept._keep) for number in _STOPPING}
    try:
        yield kept
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
            outer = getattr(handler, "__self__", None)
            if isinstance(outer, Deferred):
                outer._number = outer._number or kept._number


@contextmanager
def interrupting() -> Iterator[None]:
    """Have the first of SIGINT, SIGTERM and SIGHUP raise Interrupted wherever the program is.

    More of them do nothing: what was made is removed on the way out, once. In another thread than the main
    one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for other in _STOPPING:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
