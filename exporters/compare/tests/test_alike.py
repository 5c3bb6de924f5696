"""The page, the API, and the command line say the same of the same state, for every metric."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest

from vigia_compare import report
from vigia_compare.evaluation import Evaluation, PathSummary
from vigia_compare.findings import EQUIVALENT, NO_COMMON_HOSTS, OPEN, UNLIKE, Finding
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.standings import UNKNOWN, standings
from vigia_statistics import median_interval

from .made import END
from .test_web import Site

SINCE = 1_799_999_940.0
TOLD = "2027-01-15 07:59Z"
TODAY_OR_THEN = "(2027-01-15 )?"
"""Pages tell the day of a moment unless it is today."""
UNITS = re.compile(r"\d\]? (ns|µs|ms|s|%|[kMGT]?bit/s)(?![\w/])")


def cell_of(metric: str) -> Cell:
    return Cell(metric, "remote", "2" if MEASURES[metric].runs else "", "stamp-64")


def pair(cell: Cell, a: str, b: str, verdict: str, **more: Any) -> Finding:
    return Finding(cell, a, b, Kind.CONTEST, verdict, **more)


def size_of(cell: Cell) -> float:
    """A difference that is usual of a metric."""
    return {"seconds": 1.6e-3, "ratio": 0.02, "bytes_per_second": 2e6}[MEASURES[cell.metric].unit]


def better(cell: Cell, winner: str, other: str, times: float, **more: Any) -> Finding:
    """A pair, its names in their order, in which one is better by so many times the usual."""
    a, b = sorted((winner, other))
    sign = 1.0 if (MEASURES[cell.metric].better == "higher") == (a == winner) else -1.0
    low, middle, high = (sign * times * part * size_of(cell) for part in (0.5, 1.0, 1.5))
    return pair(cell, a, b, winner, shift=(min(low, high), middle, max(low, high)), **more)


def state(*pairs: Finding) -> Evaluation:
    """An evaluation of pairs alone, with a median for every path."""
    values = size_of(pairs[0].cell) * np.linspace(1.0, 2.0, 40)
    cells = sorted({p.cell for p in pairs})
    paths = [
        PathSummary(cell, name, 40, median_interval(values))
        for cell in cells
        for name in sorted({n for p in pairs if p.cell == cell for n in (p.a, p.b)})
    ]
    return Evaluation(at=END, findings=pairs, standings=standings(pairs), paths=paths, end=END)


def outputs(found: Evaluation) -> tuple[str, Mapping[str, Any], str]:
    """What the page has of it in words, what the API has of its first cell, and the text of the command line."""
    site = Site(found)
    page = re.sub(
        r"<style>.*?</style>|<details><summary>Everything.*?</details>", "", site.page("/"), flags=re.S
    )
    words = " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
    got = site.client.get("/v1/comparisons").get_json()
    assert site.client.get("/v1/comparisons.txt").text == f"{report.as_text(found)}\n"
    return words, got["comparisons"][0], report.as_text(found)


@pytest.mark.parametrize("metric", MEASURES)
def test_who_wins_over_whom_by_how_much_and_since_when(metric: str) -> None:
    cell = cell_of(metric)
    page, data, text = outputs(
        state(
            better(cell, "ovs-gre", "bridge", 1.0, since=SINCE - 600.0),
            better(cell, "ovs-gre", "vxlan", 5.0, since=SINCE),
            better(cell, "bridge", "vxlan", 4.0, since=SINCE + 60.0),
        )
    )
    assert (data["winner"], data["runner_up"], data["since"]) == ("ovs-gre", "bridge", SINCE)
    assert data["ahead_by"] == [pytest.approx(x * size_of(cell)) for x in (0.5, 1.0, 1.5)]
    by = {
        "seconds": "by 1.60 [0.800, 2.40] ms over bridge",
        "ratio": "by 2.00 [1.00, 3.00] % over bridge",
        "bytes_per_second": "by 16.0 [8.00, 24.0] Mbit/s over bridge",
    }[MEASURES[metric].unit]
    assert data["by"] == by
    assert re.search(rf"ovs-gre {re.escape(by)}, holds since {TODAY_OR_THEN}07:59 UTC", page)
    assert text.count(f"ovs-gre {by}, holds since {TOLD}") == 2, "among the winners, and above its cell"


@pytest.mark.parametrize("metric", MEASURES)
def test_what_is_not_known_says_how_far_it_is(metric: str) -> None:
    cell = cell_of(metric)
    page, data, text = outputs(state(pair(cell, "ovs-gre", "vxlan", OPEN, e_value=14.2, ahead="vxlan")))
    said = "vxlan is ahead of ovs-gre, e = 14 of 20 needed"
    assert data["said"] == f"not known yet: {said}" and not data["decided"]
    assert (data["runner_up"], data["ahead_by"], data["by"], data["since"]) == (None, None, None, None)
    assert data["progress"] == pytest.approx(math.log(14.2) / math.log(20.0))
    assert f"So far Share of the evidence that is there {_title(page)} {said} 88 %" in page
    assert text.count(f"not known yet: {said}") == 2


def _title(page: str) -> str:
    """What the page calls its one measure."""
    found = re.search(r"that is there (.+?) vxlan is ahead", page)
    assert found is not None, page
    return found[1]


@pytest.mark.parametrize("metric", MEASURES)
def test_paths_that_are_equivalent(metric: str) -> None:
    page, data, text = outputs(state(pair(cell_of(metric), "ovs-gre", "vxlan", EQUIVALENT, since=SINCE)))
    assert (data["equivalent"], data["since"], data["by"]) == (["ovs-gre", "vxlan"], SINCE, None)
    assert re.search(f"ovs-gre and vxlan are equivalent holds since {TODAY_OR_THEN}07:59 UTC", page)
    assert text.count(f"ovs-gre and vxlan are equivalent, holds since {TOLD}") == 2


def test_what_else_decides_is_said_everywhere() -> None:
    page, data, text = outputs(state(better(cell_of("rtt"), "a", "b", 1.0, since=SINCE, notes=(UNLIKE,))))
    assert data["note"] == UNLIKE
    assert UNLIKE in page and text.count(f"a ({UNLIKE}) by 1.60") == 2


def test_paths_without_common_hosts_are_told_apart_by_nobody() -> None:
    page, data, text = outputs(state(pair(cell_of("rtt"), "a", "b", NO_COMMON_HOSTS, words="apart")))
    assert data["said"] == "not known: a and b share no pair of hosts"
    assert data["progress"] == 0.0
    assert data["said"] in page and text.count(data["said"]) == 2


def test_where_nothing_competes_there_is_nothing_to_hold() -> None:
    found = state(replace(better(cell_of("rtt"), "a", "b", 1.0), kind=Kind.REFERENCE, verdict="costs"))
    page, data, text = outputs(found)
    assert data["said"] == "nothing competes"
    assert {data[k] for k in ("winner", "runner_up", "ahead_by", "by", "since", "progress", "note")} == {None}
    assert "Nothing competes: RTT (stamp-64)." in page and "nothing competes" in text


@pytest.mark.parametrize("metric", MEASURES)
def test_units_are_written_alike(metric: str) -> None:
    """Every number of the text with a unit is on the page as it is there, and in no other unit."""
    cell = cell_of(metric)
    scale = 1e-2 if MEASURES[metric].unit == "seconds" else 1.0
    won = better(cell, "a", "b", scale, since=SINCE)
    page, _, text = outputs(state(won))
    told = set(UNITS.findall(text))
    assert told and told <= set(UNITS.findall(page)) | {"s"}, (told, set(UNITS.findall(page)))
    assert "µs" in told or scale == 1.0
    for one in re.findall(r"by [\d.]+ \[[\d., ]+\] \S+", text):
        assert one in page
    assert not re.search(r"\d ?(us|μs|usec|Mb/s|Mbps)\b", page + text)


# Who is second


def ahead(*pairs: Finding) -> tuple[str, Sequence[float]]:
    (found,) = standings(pairs)
    return found.runner_up, found.ahead_by


def test_of_several_that_are_beaten_and_not_ordered_the_closest_is_second() -> None:
    cell = cell_of("rtt")
    pairs = [
        better(cell, "win", "alpha", 9.0),
        better(cell, "win", "beta", 2.0),
        pair(cell, "alpha", "beta", OPEN),
    ]
    assert ahead(*pairs)[0] == "beta", "alpha goes before it by name alone"


def test_a_verdict_counts_more_than_an_estimate() -> None:
    """A path that is known to be better than another is before it, whatever the pairs' own hosts say."""
    cell = cell_of("rtt")
    pairs = [
        better(cell, "win", "alpha", 2.0),
        better(cell, "win", "beta", 9.0),
        better(cell, "beta", "alpha", 0.1),
    ]
    assert ahead(*pairs)[0] == "beta"


def test_a_difference_that_is_not_known_is_the_last_to_be_second() -> None:
    cell = cell_of("rtt")
    unknown = pair(cell, "alpha", "win", "win")
    assert ahead(unknown) == ("alpha", (-math.inf, pytest.approx(math.nan, nan_ok=True), math.inf))
    assert ahead(unknown, better(cell, "win", "beta", 2.0), pair(cell, "alpha", "beta", OPEN))[0] == "beta"


@pytest.mark.parametrize("verdict", [OPEN, EQUIVALENT, NO_COMMON_HOSTS])
def test_without_a_winner_nobody_is_second(verdict: str) -> None:
    assert ahead(pair(cell_of("rtt"), "a", "b", verdict, since=SINCE)) == ("", UNKNOWN)


def test_an_interval_without_an_end_stays_without_it() -> None:
    cell = cell_of("rtt")
    one = pair(cell, "a", "b", "b", shift=(1e-3, 2e-3, math.inf))
    assert ahead(one) == ("a", (1e-3, 2e-3, math.inf))
    (found,) = standings([one])
    assert found.by == "by 2.00 [1.00 or more] ms over a"
