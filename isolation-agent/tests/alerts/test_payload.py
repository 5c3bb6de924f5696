"""The parser of Alertmanager's messages: times, neighbours, and texts that nobody meant well."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isolation_agent.alerts.payload import FUTURE, PAST, BadPayload, Payload, parse_alert, parse_payload

from ..support.world import World, alert, instant, payload

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
NEVER = "0001-01-01T00:00:00Z"
SEEDS = sorted((Path(__file__).parent / "testdata").glob("*.json"))


def parse(*alerts: Any) -> Payload:
    return parse_payload(json.dumps(payload(*alerts)).encode(), 100, NOW)


# Times


@pytest.mark.parametrize(
    ("starts", "right"),
    [
        (NOW, True),
        (NOW - PAST, True),
        (NOW - PAST - timedelta(microseconds=1), False),
        (NOW + FUTURE, True),
        (NOW + FUTURE + timedelta(microseconds=1), False),
        (NOW - timedelta(days=300), True),
    ],
)
def test_the_window_around_now(starts: datetime, right: bool) -> None:
    found = parse(alert(starts))
    assert [a.started for a in found.alerts] == ([starts] if right else [])
    assert found.refused_total == (not right)


def test_the_window_is_as_the_guide_says() -> None:
    assert (timedelta(days=366), timedelta(days=1)) == (PAST, FUTURE)
    page = (Path(__file__).parents[3] / "docs/how-to/isolation-agent.md").read_text()
    assert "366 days before" in page
    assert "1 day after" in page


def test_other_zones_are_the_same_instant() -> None:
    elsewhere = (NOW + timedelta(hours=14)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "+14:00"
    (found,) = parse(alert(NOW, startsAt=elsewhere)).alerts
    assert found.started == NOW
    assert found.started.tzinfo is UTC


@pytest.mark.parametrize(
    ("ends", "meant"),
    [
        (NEVER, None),
        ("0001-01-01T00:00:00+00:00", None),
        (None, None),
        (instant(NOW), NOW),
        ("2026-01-02T03:04:05.678901999Z", NOW),
    ],
)
def test_ends(ends: str | None, meant: datetime | None) -> None:
    (found,) = parse(alert(NOW, endsAt=ends)).alerts
    assert found.ended == meant


@pytest.mark.parametrize("field", ["startsAt", "endsAt"])
@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "0001-01-01T00:00:01Z",
        "0000-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:04:60Z",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02 03:04:05Z",
        "\uff12\uff10\uff12\uff16-01-02T03:04:05Z",
        "",
    ],
)
def test_times_that_cannot_be_right(field: str, text: str) -> None:
    found = parse(alert(NOW), alert(NOW, **{field: text}), alert(NOW))
    assert len(found.alerts) == 2
    assert [(r.position, r.field) for r in found.refused] == [(1, f"alerts[1].{field}")]
    assert json.loads(found.refused[0].content)[field] == text


def test_a_refusal_says_which_clock_it_was_held_against() -> None:
    (refused,) = parse(alert(NOW, startsAt="9999-12-31T23:59:59Z")).refused
    assert refused.problem == (
        "alerts[0].startsAt: is not within 366 days before and 1 day after 2026-01-02T03:04:05+00:00, "
        "which is now here; correct the clock that is wrong"
    )


def test_one_alert_or_a_whole_message() -> None:
    for text in (alert(NOW), payload(alert(NOW))):
        assert len(parse_alert(json.dumps(text).encode(), 10, NOW)) == 1
    with pytest.raises(BadPayload, match=r"alerts\[0\]\.startsAt"):
        parse_alert(json.dumps(payload(alert(NOW, startsAt=NEVER))).encode(), 10, NOW)


# What nobody meant well. The seeds are messages that once did harm, or nearly.


def harmless(raw: bytes) -> Payload | None:
    """Parse; whatever the text is, it is refused whole or every alert is taken or refused."""
    try:
        found = parse_payload(raw, 1000, NOW)
    except BadPayload as e:
        text = str(e)
        assert text.isprintable(), text
        assert len(text) < 500
        return None
    assert len(found.alerts) + found.refused_total == len(json.loads(raw)["alerts"])
    assert len(found.refused) == min(found.refused_total, 100)
    for taken in found.alerts:
        assert NOW - PAST <= taken.started <= NOW + FUTURE
        assert taken.ended is None or NOW - PAST <= taken.ended <= NOW + FUTURE
    for refused in found.refused:
        assert refused.problem.isprintable()
        assert len(refused.content) <= 2000
    return found


def test_there_are_seeds() -> None:
    assert len(SEEDS) >= 12


@pytest.mark.parametrize("seed", SEEDS, ids=lambda p: p.stem)
def test_seeds_do_no_harm(seed: Path, world: World) -> None:
    raw = seed.read_bytes()
    found = harmless(raw)
    status = world.post_raw(raw).status_code
    assert status == (400 if found is None else 202 if found.refused else 200)
    world.step()
    assert world.inbox_depth() == 0
    assert "inbox.dropped" not in world.audit_events(), "what was accepted can be handled"


def mutations(raw: bytes, count: int, source: random.Random) -> list[bytes]:
    """Texts that differ from a seed in some bytes, or have some of them twice, or end early."""
    made = []
    for _ in range(count):
        text = bytearray(raw)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(text)) if text else 0
            kind = source.randrange(4)
            if kind == 0:
                text[at : at + 1] = bytes([source.randrange(256)])
            elif kind == 1:
                text[at:at] = text[at : at + source.randrange(40)]
            elif kind == 2:
                del text[at : at + source.randrange(20)]
            else:
                text[at : at + 1] = source.choice(
                    (b'"', b"{", b"}", b",", b":", b"9" * 30, b"\\u0000", b"\xff")
                )
        made.append(bytes(text))
    return made


@pytest.mark.parametrize("seed", SEEDS, ids=lambda p: p.stem)
def test_neighbours_of_the_seeds_do_no_harm(seed: Path) -> None:
    raw = seed.read_bytes()
    for text in mutations(raw, 100, random.Random(seed.name)):  # noqa: S311 - the same every time
        harmless(text)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS, ids=lambda p: p.stem)
def test_more_neighbours_of_the_seeds_do_no_harm(seed: Path) -> None:
    raw = seed.read_bytes()
    for text in mutations(raw, 20_000, random.Random()):  # noqa: S311 - other ones every time
        harmless(text)


SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
TREE = st.recursive(SCALAR, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_value_in_any_field_is_taken_or_refused_alone(data: st.DataObject) -> None:
    changed = alert(NOW)
    for field in data.draw(st.lists(st.sampled_from(sorted(changed)), min_size=1, max_size=3)):
        changed[field] = data.draw(TREE)
    raw = json.dumps(payload(alert(NOW), changed)).encode()
    found = harmless(raw)
    if found is not None:
        assert found.alerts, "the good neighbour is kept"
