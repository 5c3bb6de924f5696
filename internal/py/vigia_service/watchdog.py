"""Ends a service that hangs, so that systemd or the container engine starts it again."""

from __future__ import annotations

import faulthandler
import logging
import threading
from collections.abc import Callable
from types import TracebackType

from vigia_service import systemd
from vigia_service.server import Server

__all__ = ["PATIENCE", "Watchdog", "web_server_hung"]

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds for which a service may hang."""

_LOOKS = 6
"""How often it is looked at within that time."""

_STDERR = 2

_ANSWER_WITHIN = 10.0
"""Seconds within which a web server's loop has to take its turn."""


class Watchdog:
    """While in its context, the process ends with code 1 when it has hung for ``patience`` seconds.

    ``hung`` says why, or nothing; it is asked in a thread. The end comes from a
    timer outside of the interpreter, which is set anew while all is well: it also
    ends a process in which no Python code runs any more. Where each thread stood
    is then on standard error. systemd's watchdog (WatchdogSec= of the unit) is told
    when the timer is set: it ends a process that is stopped, too, whose timer stands still.
    """

    def __init__(self, hung: Callable[[], str], patience: float = PATIENCE) -> None:
        self._hung = hung
        self._patience = patience
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> None:
        self._set_timer()
        self._thread.start()

    def __exit__(self, _kind: type[BaseException] | None, _e: object, _at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        before = ""
        while not self._stop.wait(self._patience / _LOOKS):
            why = self._hung()
            if not why:
                self._set_timer()
            elif not before:
                _log.error(
                    "cannot go on; unless that changes, the process ends to be started again",
                    extra={"err": why, "seconds": self._patience},
                )
            before = why

    def _set_timer(self) -> None:
        faulthandler.dump_traceback_later(self._patience, exit=True, file=_STDERR)
        systemd.works()


def web_server_hung(server: Server) -> str:
    """Return that the loop of a web server has stopped, or nothing."""
    if server.answers(_ANSWER_WITHIN):
        return ""
    return f"the web server has not taken its turn for {_ANSWER_WITHIN:g}s"
