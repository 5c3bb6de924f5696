"""Limits: each says what it holds for, in which unit, and why; the first that matches holds."""

from __future__ import annotations

import pytest

from vigia.soak import limits
from vigia.soak.limits import LIMITS


@pytest.mark.parametrize(
    ("quantity", "subject", "per_hour"),
    [
        ("memory_bytes", "vigia-probe@lb1", 1 << 20),
        ("memory_bytes", "vigia-compare", 2 << 20),
        ("memory_bytes", "prometheus", 24 << 20),
        ("memory_bytes", "ovs-vswitchd@ovs1", 2 << 20),
        ("memory_bytes", "alertmanager", 2 << 20),
        ("page_series", "vigia-exporter@ovs2", 20),
        ("page_series", "prometheus", 60),
    ],
)
def test_the_first_that_matches_holds(quantity: str, subject: str, per_hour: float) -> None:
    found = limits.of(quantity, subject)
    assert found is not None
    assert found.per_hour == per_hour


def test_what_has_no_limit_is_not_judged() -> None:
    assert limits.of("resident_bytes", "prometheus") is None
    assert limits.of("head_series", "vigia-probe@lb1") is None


def test_every_limit_can_hold_and_says_why() -> None:
    for limit in LIMITS:
        subject = limit.subjects.replace("*", "x")
        assert limits.of(limit.quantity, subject) is limit, "an earlier one hides it"
        assert limit.per_hour > 0
        assert limit.hours > 0
        assert limit.unit
        assert limit.why


def test_one_lost_object_for_each_flood_is_above_every_limit_of_objects() -> None:
    counted = [
        x for x in LIMITS if x.unit in ("descriptors", "threads", "goroutines", "maps", "pins", "qdiscs")
    ]
    assert len(counted) == 6
    assert all(x.per_hour < 3600 / 600 for x in counted)
