"""The lab's container: what it does when the lab cannot be brought up."""

from __future__ import annotations

import io

import pytest

from vigia.compose import lab as container
from vigia.console import Steps
from vigia.errors import Interrupted, VigiaError
from vigia.host.signals import deferred
from vigia.lab import model, topology, up


def attempts(monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | None]) -> tuple[int, str]:
    """Bring a lab up whose attempts end so; return how many there were, and what was printed."""
    made = []

    def bring_up(*_: object) -> None:
        made.append(1)
        outcome = outcomes[len(made) - 1]
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(up, "bring_up", bring_up)
    monkeypatch.setattr(container, "_PAUSE", 0.0)
    said = io.StringIO()
    with deferred() as stop:
        container._bring_up(model.resolve(topology.default()), Steps(said), stop)
    return len(made), said.getvalue()


def test_what_fails_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    count, said = attempts(monkeypatch, [VigiaError("ovs1 is slow"), None])
    assert count == 2
    assert "attempt 1 of 3 failed: ovs1 is slow" in said


def test_what_always_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VigiaError, match="third"):
        attempts(monkeypatch, [VigiaError("first"), VigiaError("second"), VigiaError("third")])


def test_being_stopped_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        attempts(monkeypatch, [Interrupted("stopped by SIGTERM"), None])
