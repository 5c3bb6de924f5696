"""The body of a request, on its way from the event loop to a thread of the application."""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable

from werkzeug.exceptions import BadRequest, RequestEntityTooLarge, RequestTimeout

__all__ = ["BodyBroken", "BodyLate", "BodyPipe", "BodyTooLarge"]

ROOM = 256 << 10
"""Bytes that wait for the application; then the client has to."""


class BodyBroken(BadRequest, OSError):
    """A body that ends early or is none; an OSError for those who read it, 400 for clients."""


class BodyLate(RequestTimeout, OSError):
    """A body that does not come in time: 408."""


class BodyTooLarge(RequestEntityTooLarge, OSError):
    """A body that grew beyond the server's bound: 413."""


class BodyPipe(io.RawIOBase):
    """Raw stream of a body. The loop feeds it, one thread reads it.

    Reading raises BodyLate when the body is not complete within ``seconds``
    of the first read, BodyTooLarge, or BodyBroken. All are OSError, and
    exceptions that Flask answers by itself.
    """

    def __init__(self, seconds: float, wanted: Callable[[], None]) -> None:
        """``wanted`` is called by the reading thread when it begins to read and when there is room again."""
        self._seconds = seconds
        self._wanted = wanted
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._deadline: float | None = None
        self._ended = False
        self._error: OSError | None = None

    def feed(self, data: bytes) -> bool:
        """Add what has arrived; return whether there is room for more."""
        with self._changed:
            self._chunks.append(data)
            self._size += len(data)
            self._changed.notify()
            return self._size < ROOM

    def end(self) -> None:
        """Mark the end of the body."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def fail(self, error: OSError) -> None:
        """Let the next read raise error, unless the body is complete."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify()

    @property
    def begun(self) -> bool:
        """Whether the application has begun to read."""
        return self._deadline is not None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Read what is there, waiting for the first of it; 0 at the end of the body."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
            self._wanted()
        with self._changed:
            self._await(self._deadline)
            if not self._chunks:
                return 0
            chunk = self._chunks.popleft()
            taken = min(len(chunk), len(buffer))
            buffer[:taken] = chunk[:taken]
            if taken < len(chunk):
                self._chunks.appendleft(chunk[taken:])
            was_full = self._size >= ROOM
            self._size -= taken
            has_room = was_full and self._size < ROOM
        if has_room:
            self._wanted()
        return taken

    def _await(self, deadline: float) -> None:
        """Wait for data or the end. Raises OSError."""
        while not self._ended:
            if self._error is not None:
                raise self._error
            left = deadline - time.monotonic()
            if left <= 0:
                raise BodyLate(f"the body was not complete within {self._seconds:g} s")
            if self._chunks:
                return
            self._changed.wait(left)
