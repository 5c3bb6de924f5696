"""Reading the answers of HTTP servers that are not trusted: bounded in size and in time as a whole."""

from __future__ import annotations

import time

import httpx

__all__ = ["IDENTITY", "AnswerError", "AnswerLate", "AnswerTooLarge", "read"]

IDENTITY = {"Accept-Encoding": "identity"}
"""Headers of a request: an answer that was compressed could unpack to a thousand times its bound."""


class AnswerError(Exception):
    """An answer that is not read to its end."""


class AnswerTooLarge(AnswerError):
    """More bytes than allowed."""


class AnswerLate(AnswerError):
    """Not complete in time, though every part of it came in time."""


def read(answer: httpx.Response, most: int, seconds: float) -> bytes:
    """Return the body of a streamed answer: at most so many bytes, within so many seconds from now.

    The client's own timeout is for each part; here it is for all of them.
    Raises AnswerError and httpx.HTTPError.
    """
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise AnswerError("it is compressed though that was not asked for")
    deadline = time.monotonic() + seconds
    out = bytearray()
    for part in answer.iter_raw():
        out += part
        if len(out) > most:
            raise AnswerTooLarge(f"it is larger than {most} bytes")
        if time.monotonic() > deadline:
            raise AnswerLate(f"it is not complete within {seconds:g} s")
    return bytes(out)
