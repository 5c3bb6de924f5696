"""Verdicts: on growth, on what ended, on churn that failed, and on runs that are too short."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from vigia.soak import judgement
from vigia.soak.judgement import Judgement, Slope, judge
from vigia.soak.record import ChurnEvent, SoakRecord

Write = Callable[..., SoakRecord]
BEGUN = 1_700_000_000.0
MIB = float(1 << 20)


def one(found: Judgement, quantity: str, subject: str) -> Slope:
    return next(s for s in found.slopes if (s.limit.quantity, s.subject) == (quantity, subject))


def test_a_healthy_soak_passes(soaked: Write) -> None:
    found = judge(soaked())
    assert found.passed
    assert found.growing == []
    assert found.done == {"flood": 18}
    assert one(found, "memory_bytes", "vigia-probe@lb1").verdict == "within"
    assert one(found, "store_bytes", "prometheus").verdict == "too short", "its head is cut after 3 h"
    assert one(found, "store_bytes", "prometheus").reason == "judged from 4 h on"


@pytest.mark.parametrize(
    ("subject", "quantity", "per_hour", "grows"),
    [
        ("vigia-probe@lb1", "memory_bytes", 3 * MIB, True),
        ("vigia-probe@lb1", "memory_bytes", 0.5 * MIB, False),
        ("vigia-enforcer@lb1", "bpf_maps", 6.0, True),
        ("vigia-enforcer@lb1", "bpf_maps", 1.0, False),
        ("rules vigia-paths", "missed_iterations", 4.0, True),
        ("rules vigia-paths", "rule_share", 0.05, True),
        ("isolation-agent", "database_bytes", 2 * MIB, True),
        ("vigia-probe@lb1", "page_series", 60.0, True),
    ],
)
def test_what_grows_faster_than_it_may(
    soaked: Write, subject: str, quantity: str, per_hour: float, grows: bool
) -> None:
    found = judge(soaked(courses={subject: {quantity: lambda h: 100 * per_hour + per_hour * h}}))
    assert found.passed is not grows
    assert [(s.limit.quantity, s.subject) for s in found.growing] == [(quantity, subject)] * grows
    slope = one(found, quantity, subject)
    assert slope.trend is not None
    assert slope.trend.slope == pytest.approx(per_hour)


def test_the_start_is_left_out(soaked: Write) -> None:
    assert judgement.warm_up(3.0) == pytest.approx(1 / 3)
    assert judgement.warm_up(0.25) == 0.0625
    settles = {"vigia-probe@lb1": {"memory_bytes": lambda h: min(h, 1 / 3) * 300 * MIB}}
    assert judge(soaked(courses=settles)).passed


def test_a_service_that_ended_fails_the_soak(soaked: Write) -> None:
    found = judge(soaked(restarts=2))
    assert not found.passed
    assert found.restarts == 2


def test_churn_that_failed_fails_the_soak(soaked: Write) -> None:
    event = ChurnEvent(BEGUN + 60, "port", False, "the exporter does not show it", 60.0)
    found = judge(soaked(events=(event,)))
    assert not found.passed
    assert found.failures == (event,)
    assert found.done == {"flood": 18}


def test_a_short_soak_judges_what_settles_soon(soaked: Write) -> None:
    leak = {"vigia-enforcer@lb1": {"memory_bytes": lambda h: 900 * MIB * h, "descriptors": lambda h: 60 * h}}
    found = judge(soaked(0.25, leak))
    assert [(s.limit.quantity, s.subject) for s in found.growing] == [("descriptors", "vigia-enforcer@lb1")]
    memory = one(found, "memory_bytes", "vigia-enforcer@lb1")
    assert (memory.verdict, memory.reason) == ("too short", "judged from 1 h on")
    assert memory.trend is not None, "it is shown all the same"


def test_a_soak_of_a_minute_judges_nothing_and_does_not_pass(soaked: Write) -> None:
    found = judge(soaked(1 / 60))
    assert {s.verdict for s in found.slopes} == {"too short"}
    assert found.slopes[0].reason == "5 samples; 24 are needed"
    assert not found.passed


def test_what_could_not_be_read_is_counted(soaked: Write) -> None:
    found = judge(soaked(problems=("prometheus: no answer: x", "lb1: y")))
    assert found.gaps == {"lb1": 1, "prometheus": 1}


def test_as_data(soaked: Write) -> None:
    found = judge(soaked(0.25, events=(ChurnEvent(BEGUN, "reload", False, "no", 1.0),)))
    data: Any = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert data["passed"] is False
    assert data["failures"] == [{"at": BEGUN, "what": "reload", "ok": False, "detail": "no", "seconds": 1.0}]
    threads = next(s for s in data["slopes"] if s["quantity"] == "goroutines")
    assert threads == {
        "quantity": "goroutines",
        "subject": "vigia-probe@lb1",
        "unit": "goroutines",
        "verdict": "within",
        "reason": "",
        "limit_per_hour": 2.0,
        "last": 32.0,
        "per_hour": 0.0,
        "interval": [0.0, 0.0],
        "blocks": 8,
        "dependence": 0.0,
    }
