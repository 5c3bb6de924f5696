"""What is asked of Prometheus again and what is not: known windows, late samples, gaps, and all that ends them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from vigia_compare import source as sources
from vigia_compare.source import AGAIN, WHOLE, Memory, Source
from vigia_compare.windows import LATE, Grid
from vigia_prometheus import Prometheus, Unavailable
from vigia_statistics.samples import Floats

BEGUN = 1_763_853_617.123
COUNT = 30
QUESTION = "q[$within]"


class Recorded:
    """A server: a value for each minute and series, those that have none left out."""

    def __init__(self) -> None:
        self.series: dict[str, dict[int, float]] = {}
        self.asked: list[tuple[str, int, int]] = []
        """Questions, with the first and the last minute of each."""
        self.away = False
        self.clock = "1"

    def record(self, name: str, minutes: range, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, len(name), minutes.start])
        self.series.setdefault(name, {}).update(zip(minutes, rng.random(len(minutes)).tolist(), strict=True))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("refused")
        asked = {k: v[0] for k, v in parse_qs(request.content.decode()).items()}
        if request.url.path.endswith("/query"):
            value = [float(asked["time"]), self.clock]
            return self._answer("vector", [{"metric": {}, "value": value}])
        first, last = (round((float(asked[k]) - BEGUN) / 60.0, 3) for k in ("start", "end"))
        assert first == int(first) and last == int(last), "windows end where they ended"
        self.asked.append((asked["query"], int(first), int(last)))
        result = []
        for name, values in self.series.items():
            points = [
                [BEGUN + 60.0 * m, repr(values[m])] for m in range(int(first), int(last) + 1) if m in values
            ]
            if points:
                result.append({"metric": {"path": name, "probe": "p"}, "values": points})
        return self._answer("matrix", result)

    @staticmethod
    def _answer(kind: str, result: list[Any]) -> httpx.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    def client(self) -> Prometheus:
        return Prometheus("http://made.test", transport=httpx.MockTransport(self))


def grid(minute: int, count: int = COUNT) -> Grid:
    return Grid.before(BEGUN + 60.0 * minute, 60.0, 60.0 * count)


def values(source: Source, minute: int, question: str = QUESTION) -> Mapping[str, Floats]:
    return {s.labels["path"]: s.values for s in source.windows(question, grid(minute))}


def same(a: Mapping[str, Floats], b: Mapping[str, Floats]) -> None:
    assert set(a) == set(b)
    for name, expected in b.items():
        np.testing.assert_array_equal(a[name], expected)


@pytest.fixture
def server() -> Recorded:
    made = Recorded()
    made.record("a", range(200))
    made.record("b", range(20, 200))
    return made


@pytest.fixture
def source(server: Recorded) -> Source:
    return Source(server.client(), Memory())


def fresh(server: Recorded, minute: int) -> Mapping[str, Floats]:
    """What is read without a memory; the question is not counted."""
    before = list(server.asked)
    found = values(Source(server.client()), minute)
    server.asked = before
    return found


def test_each_window_is_asked_for_once_and_the_newest_again(server: Recorded, source: Source) -> None:
    for minute in range(100, 130):
        same(values(source, minute), fresh(server, minute))
    whole, *later = server.asked
    assert whole == ("q[59999ms]", 100 - COUNT + 1, 100)
    assert later == [("q[59999ms]", m - AGAIN, m) for m in range(101, 130)]


def test_nothing_is_asked_while_no_window_ends(server: Recorded, source: Source) -> None:
    first = values(source, 100)
    same(values(source, 100), first)
    assert len(server.asked) == 1


def test_questions_do_not_share_windows(server: Recorded, source: Source) -> None:
    values(source, 100)
    values(source, 101, "other[$within]")
    values(source, 101)
    assert [(q, b - a + 1) for q, a, b in server.asked] == [
        ("q[59999ms]", COUNT),
        ("other[59999ms]", COUNT),
        ("q[59999ms]", 1 + AGAIN),
    ]


def test_late_samples_are_seen(server: Recorded, source: Source) -> None:
    """A rule that was evaluated late, or a part of the samples that came late."""
    late = {m: server.series["a"].pop(m) for m in (99, 100)}
    server.series["b"][100] = 7.0
    assert np.isnan(values(source, 100)["a"][-2:]).all()
    server.series["a"].update(late)
    server.series["b"][100] = 0.5
    found = values(source, 101)
    same(found, fresh(server, 101))
    assert found["b"][-2] == 0.5


def test_what_comes_later_still_is_seen_within_the_hour(server: Recorded, source: Source) -> None:
    """As what an agent has kept while its store was away."""
    late = {m: server.series["a"].pop(m) for m in range(80, 97)}
    values(source, 100)
    server.series["a"].update(late)
    hour = int(WHOLE / 60.0)
    for minute in range(101, 100 + hour + 1):
        found = values(source, minute)
        lengths = server.asked[-1][2] - server.asked[-1][1] + 1
        assert lengths == (COUNT if minute == 100 + hour else 1 + AGAIN)
    same(found, fresh(server, 100 + hour))
    values(source, 100 + hour + 1)
    assert len(range(*server.asked[-1][1:])) == AGAIN, "and then no more for an hour"


def test_what_was_deleted_is_forgotten_within_the_hour(server: Recorded, source: Source) -> None:
    values(source, 100)
    del server.series["b"]
    assert "b" in values(source, 101)
    assert set(values(source, 100 + int(WHOLE / 60.0))) == {"a"}


@pytest.mark.parametrize("gap", [2, 10, COUNT - AGAIN - 1])
def test_a_pause_is_made_up_for_by_one_question(server: Recorded, source: Source, gap: int) -> None:
    """The program stood still, or Prometheus was away: what it has recorded of the time is asked for."""
    values(source, 100)
    server.away = True
    for minute in (101, 102):
        with pytest.raises(Unavailable):
            values(source, minute)
    server.away = False
    for name in ("a", "b"):
        for m in range(101, 103):
            del server.series[name][m]
    found = values(source, 100 + gap)
    same(found, fresh(server, 100 + gap))
    assert server.asked[-1][1:] == (100 + 1 - AGAIN, 100 + gap)
    assert np.isnan(found["a"][-gap:][:2]).all(), "what was not recorded is no window"


def test_after_a_pause_of_the_whole_period_all_is_asked_for(server: Recorded, source: Source) -> None:
    values(source, 100)
    values(source, 100 + COUNT - AGAIN)
    assert server.asked[-1][1:] == (100 - AGAIN + 1, 100 + COUNT - AGAIN)
    same(values(source, 190), fresh(server, 190))


def test_paths_come_and_go(server: Recorded, source: Source) -> None:
    values(source, 100)
    server.series["b"] = {m: v for m, v in server.series["b"].items() if m <= 100}
    server.record("new", range(103, 200))
    for minute in range(101, 101 + 2 * COUNT):
        found = values(source, minute)
        same(found, fresh(server, minute))
    assert set(found) == {"a", "new"}


@pytest.mark.parametrize(
    "other",
    [
        Grid.before(BEGUN + 6000.0, 120.0, 60.0 * COUNT),
        grid(100, COUNT + 1),
        grid(99),
        Grid.before(BEGUN + 6060.0, 300.0, 6000.0),
    ],
    ids=["window", "period", "clock set back", "both"],
)
def test_another_grid_begins_anew(server: Recorded, source: Source, other: Grid) -> None:
    values(source, 100)
    source.windows(QUESTION, other)
    _, first, last = server.asked[-1]
    assert last - first == round((other.end - other.start) / 60.0)


def test_rules_that_are_evaluated_at_another_part_of_the_minute_begin_anew(server: Recorded) -> None:
    """Groups are named anew, or moved to another file."""
    memory, asked = Memory(), []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(parse_qs(request.content.decode()))
        return Recorded._answer("matrix", [])

    source = Source(Prometheus("http://made.test", transport=httpx.MockTransport(answer)), memory)
    source.windows(QUESTION, grid(100))
    source.windows(QUESTION, Grid.before(BEGUN + 6075.5, 60.0, 60.0 * COUNT))
    starts = [float(a["start"][0]) for a in asked]
    assert starts == pytest.approx([BEGUN + 60.0 * 71, BEGUN + 60.0 * 71 + 75.5])


def test_memory_is_bounded(server: Recorded) -> None:
    """What does not fit is asked for as a whole, and is as right as the rest."""
    memory = Memory(most=2 * COUNT)
    source = Source(server.client(), memory)
    for minute in (100, 101):
        for question in (QUESTION, "other[$within]"):
            same(values(source, minute, question), fresh(server, minute))
            assert memory.size <= memory.most
    lengths = [last - first + 1 for _, first, last in server.asked]
    assert lengths == [COUNT, COUNT, 1 + AGAIN, COUNT]
    for i in range(3):
        server.record(f"more-{i}", range(102, 200))
    same(values(source, 102), fresh(server, 102))
    assert memory.size == 0
    assert sources.MOST_VALUES * 8 <= 32e6


def test_whatever_happens_it_is_as_if_all_had_been_read(server: Recorded) -> None:
    rng = np.random.default_rng(51)
    source = Source(server.client(), Memory())
    minute, known = 40, 40
    server.series = {"a": {m: 1.0 for m in range(known)}}
    for _ in range(400):
        minute += int(rng.choice([0, 1, 1, 1, 2, 5, 40], p=[0.1, 0.3, 0.2, 0.2, 0.1, 0.08, 0.02]))
        for m in range(known, minute + 1):
            for name in "abc":
                if rng.random() < 0.7:
                    server.series.setdefault(name, {})[m] = float(rng.random())
        known = max(known, minute + 1)
        server.away = bool(rng.random() < 0.1)
        with contextlib.suppress(Unavailable):
            values(source, minute)
        server.away = False
        same(values(source, minute), fresh(server, minute))


# When windows end


@pytest.mark.parametrize(
    ("said", "end"),
    [
        (BEGUN - 60.0, BEGUN - 60.0),
        (BEGUN - LATE, BEGUN - LATE),
        (BEGUN - 3600.0, None),
        (BEGUN + 3600.0, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_windows_end_where_the_rules_were_evaluated_last(
    server: Recorded, said: float, end: float | None
) -> None:
    """What cannot be: by the clock, whole minutes that are over for long enough."""
    server.clock = {"nan": "NaN", "inf": "+Inf"}.get(repr(said), f"{said:.3f}")
    found = Source(server.client()).last_recorded(BEGUN)
    assert found == pytest.approx(end if end is not None else (BEGUN - LATE) // 60.0 * 60.0)
