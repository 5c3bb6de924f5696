"""The pipe between the event loop and the thread that reads a body."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest
from werkzeug.exceptions import HTTPException

from vigia_service.server.body import ROOM, BodyBroken, BodyLate, BodyPipe, BodyTooLarge
from vigia_testing import eventually


def pipe(seconds: float = 60.0, wanted: Callable[[], None] = lambda: None) -> BodyPipe:
    return BodyPipe(seconds, wanted)


def test_what_is_fed_is_read() -> None:
    body = pipe()
    for part in (b"hel", b"lo\nwor", b"ld"):
        assert body.feed(part)
    body.end()
    stream = io.BufferedReader(body, 4)
    assert stream.readline() == b"hello\n"
    assert stream.read() == b"world"
    assert stream.read() == b""


def test_reading_waits_for_what_comes() -> None:
    body, got = pipe(), []
    thread = threading.Thread(target=lambda: got.append(io.BufferedReader(body).read()))
    thread.start()
    for i in range(100):
        body.feed(b"%d," % i)
    body.end()
    thread.join(60)
    assert got == [b"".join(b"%d," % i for i in range(100))]


def test_it_says_when_it_is_full_and_when_there_is_room_again() -> None:
    calls: list[int] = []
    body = pipe(wanted=lambda: calls.append(1))
    assert body.feed(b"x" * (ROOM - 1))
    assert not body.feed(b"xx")
    body.end()
    buffer = bytearray(1)
    assert body.readinto(buffer) == 1
    assert len(calls) == 1, "the first read"
    assert body.readinto(buffer) == 1
    assert len(calls) == 2, "room again"
    assert body.readinto(buffer) == 1
    assert len(calls) == 2


def test_the_deadline_is_for_the_whole_body_and_begins_with_the_first_read() -> None:
    body = pipe(seconds=0.1)
    body.feed(b"x")
    threading.Event().wait(0.2)  # longer than the deadline: it must not have begun
    assert body.readinto(bytearray(1)) == 1
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.01):
            body.feed(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(BodyLate, match=r"not complete within 0\.1 s"):
            io.BufferedReader(body).read()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("error", "status"), [(BodyBroken, 400), (BodyLate, 408), (BodyTooLarge, 413)])
def test_failures_are_both_for_readers_and_for_flask(error: type[HTTPException], status: int) -> None:
    body = pipe()
    thread_error: list[BaseException] = []

    def read() -> None:
        try:
            io.BufferedReader(body).read()
        except OSError as e:
            thread_error.append(e)

    thread = threading.Thread(target=read)
    thread.start()
    body.feed(b"x")
    body.fail(error("this is wrong"))  # type: ignore[arg-type]
    eventually(lambda: thread_error, "the reader to hear of it")
    thread.join()
    (found,) = thread_error
    assert isinstance(found, HTTPException)
    assert (found.code, found.description) == (status, "this is wrong")


def test_a_body_that_is_complete_does_not_fail_afterwards() -> None:
    body = pipe(seconds=0.0)
    body.feed(b"all")
    body.end()
    body.fail(BodyBroken("the client has gone"))
    assert io.BufferedReader(body).read() == b"all"


def test_the_first_failure_is_the_one_that_is_told() -> None:
    body = pipe()
    body.fail(BodyTooLarge("first"))
    body.fail(BodyBroken("second"))
    with pytest.raises(BodyTooLarge):
        body.readinto(bytearray(1))
