"""Answers of servers that are not trusted."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator

import httpx
import pytest

from vigia_http import IDENTITY, AnswerError, AnswerLate, AnswerTooLarge, read


def answer(*parts: bytes, pause: float = 0.0, **headers: str) -> httpx.Response:
    class Stream(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for part in parts:
                time.sleep(pause)
                yield part

    return httpx.Response(200, headers=headers, stream=Stream())


def test_what_is_within_bounds_is_read() -> None:
    assert read(answer(b"ab", b"", b"cd"), 4, 60.0) == b"abcd"
    assert read(answer(), 0, 60.0) == b""


def test_bounds_of_size() -> None:
    with pytest.raises(AnswerTooLarge, match="larger than 3 bytes"):
        read(answer(b"ab", b"cd"), 3, 60.0)


def test_the_time_is_for_the_whole() -> None:
    with pytest.raises(AnswerLate, match=r"not complete within 0\.05 s"):
        read(answer(*[b"x"] * 100, pause=0.01), 1000, 0.05)


def test_compressed_answers_are_refused() -> None:
    bomb = gzip.compress(b" " * (1 << 20))
    answered = answer(bomb, **{"Content-Encoding": "gzip"})
    with pytest.raises(AnswerError, match="compressed"):
        read(answered, 1 << 30, 60.0)
    assert IDENTITY["Accept-Encoding"] == "identity"
