"""Stopping where it is safe, and only there."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from vigia.errors import Interrupted
from vigia.host.signals import deferred, interrupting

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_waits_for_the_check(number: signal.Signals) -> None:
    reached = False
    with pytest.raises(Interrupted, match=f"^stopped by {number.name}$"), deferred() as stop:
        os.kill(os.getpid(), number)
        reached = True
        stop.check()
    assert reached


def test_without_a_signal_nothing_happens() -> None:
    with deferred() as stop:
        stop.check()


def test_the_first_signal_is_reported() -> None:
    with deferred() as stop:
        for number in SIGNALS:
            os.kill(os.getpid(), number)
        with pytest.raises(Interrupted, match="SIGINT"):
            stop.check()


def test_what_was_there_before_is_there_again() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(ValueError, match="x"), deferred():
        assert [signal.getsignal(number) for number in SIGNALS] != before
        raise ValueError("x")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_in_a_thread_nothing_is_kept() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    inside = []

    def work() -> None:
        with deferred() as stop:
            inside.append([signal.getsignal(number) for number in SIGNALS])
            stop.check()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


def test_what_nobody_asked_for_is_handed_on() -> None:
    with deferred() as outer:
        with deferred():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted, match="SIGTERM"):
            outer.check()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_interrupts_and_more_of_them_leave_the_removal_alone(number: signal.Signals) -> None:
    before = [signal.getsignal(n) for n in SIGNALS]
    removed = False
    with pytest.raises(Interrupted, match=f"^stopped by {number.name}$"), interrupting():
        try:
            os.kill(os.getpid(), number)
            pytest.fail("it goes on")
        finally:
            for more in SIGNALS:
                os.kill(os.getpid(), more)
            removed = True
    assert removed and [signal.getsignal(n) for n in SIGNALS] == before


def test_a_signal_before_or_after_it_is_anothers() -> None:
    with pytest.raises(Interrupted, match="SIGTERM"), deferred() as stop:
        with interrupting():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        stop.check()


def test_in_a_thread_nothing_is_interrupted() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    inside = []

    def work() -> None:
        with interrupting():
            inside.append([signal.getsignal(number) for number in SIGNALS])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
