"""Charts, the drawing of an hour and the matrix: every mark is where its value is, and nothing leaves the frame."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from vigia_compare.site import BAD_LOSS, SOME_LOSS, Mesh
from vigia_compare.timeline import PERIODS, STEP, Event, Timeline
from vigia_compare.web import charts, lanes
from vigia_compare.web.charts import Line, distribution, over_time
from vigia_compare.web.matrix import MOST_WORST, MOST_WRITTEN, Matrix, matrix
from vigia_text import numbers

from .test_web import EVIL, NOW

NAN = math.nan
PLOT = (74.0, charts.WIDTH - 168.0)
"""Pixels between which values are drawn, of the picture's width."""


def parsed(drawing: object) -> ElementTree.Element:
    return ElementTree.fromstring(str(drawing))  # noqa: S314 - our own


def points(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """The points of each line, in pixels."""
    return [
        [(float(x), float(y)) for x, _, y in (p.partition(",") for p in line.attrib["points"].split())]
        for line in root.iter("polyline")
    ]


def ticks(root: ElementTree.Element, side: str) -> list[str]:
    """What is written at an axis: end for that of the left, middle for that of the foot."""
    return [t.text or "" for t in root.iter("text") if t.attrib["class"] == f"tick {side}"]


def timed(*values: float, unit: str = "seconds", start: float = 0.0, end: float = 600.0) -> Any:
    return parsed(over_time([Line("a", np.array(values))], start, end, unit, "title", "told"))


# Lines over time


def test_larger_values_are_higher_and_later_ones_further_right() -> None:
    ((a, b, c),) = points(timed(1.0, 2.0, 4.0))
    assert a[0] < b[0] < c[0] and a[1] > b[1] > c[1]
    assert (a[0], c[0]) == PLOT, "from the first window to the last"
    assert b[0] - a[0] == pytest.approx(c[0] - b[0], abs=0.2)


def test_values_above_zero_are_drawn_by_their_ratios() -> None:
    ((a, b, c),) = points(timed(1e-6, 1e-5, 1e-4))
    assert a[1] - b[1] == pytest.approx(b[1] - c[1], abs=0.2), "ten times is as far wherever it is"


@pytest.mark.parametrize(("values", "unit"), [((0.0, 1.0, 2.0), "seconds"), ((0.01, 0.02, 0.03), "ratio")])
def test_shares_and_values_of_zero_are_drawn_by_their_differences(
    values: tuple[float, ...], unit: str
) -> None:
    root = timed(*values, unit=unit)
    ((a, b, c),) = points(root)
    assert a[1] - b[1] == pytest.approx(b[1] - c[1], abs=0.2)
    assert ticks(root, "end")[0] == numbers.quantity(0.0, unit), "the axis begins at nothing"


def test_an_axis_says_where_its_values_are() -> None:
    root = timed(10e-6, 20e-6, 90e-6)
    assert ticks(root, "end") == ["10.0 µs", "20.0 µs", "50.0 µs"]
    written = {t.text: float(t.attrib["y"]) for t in root.iter("text") if t.attrib["class"] == "tick end"}
    ((first, second, _),) = points(root)
    assert (first[1], second[1]) == (written["10.0 µs"], written["20.0 µs"])


@pytest.mark.parametrize(
    ("length", "second", "count"),
    [(300.0, "08:01", 6), (3600.0, "08:10", 7), (7200.0, "08:30", 5), (86400.0, "12:00", 7)],
)
def test_moments_are_round_and_in_utc(length: float, second: str, count: int) -> None:
    begin = 1_800_000_000.0
    seen = ticks(timed(1.0, 2.0, start=begin, end=begin + length), "middle")
    assert (seen[:2], len(seen)) == (["08:00", second], count)


def test_of_weeks_the_days_are_told() -> None:
    seen = ticks(timed(1.0, 2.0, start=1_800_000_000.0, end=1_800_000_000.0 + 30 * 86400.0), "middle")
    assert 3 <= len(seen) <= 7 and all(re.fullmatch(r"\d\d-\d\d", t) for t in seen)


@pytest.mark.parametrize(
    ("values", "lines", "dots"),
    [
        ((1.0,), 0, 1),
        ((NAN, 1.0, NAN), 0, 1),
        ((NAN, 1.0, 2.0), 1, 0),
        ((1.0, 2.0, NAN), 1, 0),
        ((1.0, NAN, 2.0, NAN, 3.0), 0, 3),
        ((1.0, 2.0, math.inf, 3.0, 4.0), 2, 0),
        ((NAN, NAN), 0, 0),
    ],
)
def test_what_was_not_measured_is_not_drawn(values: Sequence[float], lines: int, dots: int) -> None:
    root = timed(*values)
    assert (len(points(root)), len(list(root.iter("circle")))) == (lines, dots)
    drawn = sum(map(len, points(root))) + dots
    assert drawn == sum(math.isfinite(v) for v in values)


def test_a_path_without_a_value_has_no_name_at_an_end() -> None:
    lines = [Line("known", np.array([1.0, 2.0])), Line("unknown", np.array([NAN, NAN]))]
    for drawing in (
        over_time(lines, 0.0, 60.0, "seconds", "t", "d"),
        distribution(lines, "seconds", "t", "d"),
    ):
        names = [t.text for t in parsed(drawing).iter("text") if "name" in t.attrib["class"]]
        assert names == ["known"]


def test_a_name_is_at_the_last_value_that_is_known() -> None:
    root = timed(5.0, 1.0, NAN)
    (name,) = (t for t in root.iter("text") if "name" in t.attrib["class"])
    assert float(name.attrib["y"]) == points(root)[0][-1][1]


def test_names_of_paths_that_are_alike_do_not_cover_each_other() -> None:
    lines = [Line(f"p{i}", np.array([1.0, 1.0 + i / 1000.0])) for i in range(charts.MOST_LINES)]
    lines.append(Line("underlay", np.array([1.0, 1.0]), reference=True))
    names = [
        t
        for t in parsed(over_time(lines, 0.0, 60.0, "seconds", "t", "d")).iter("text")
        if "name" in t.attrib["class"]
    ]
    at = sorted(float(t.attrib["y"]) for t in names)
    assert len(at) == charts.MOST_LINES + 1
    assert all(b - a >= 14.9 for a, b in pairwise(at))
    assert at[0] >= 0.0 and at[-1] <= charts.HEIGHT


def test_colours_are_of_those_that_compete_and_the_underlay_is_grey() -> None:
    values = np.array([1.0, 2.0])
    lines = [Line("u", values, reference=True), Line("a", values), Line("b", values)]
    classes = [
        x.attrib["class"] for x in parsed(over_time(lines, 0.0, 60.0, "seconds", "t", "d")).iter("polyline")
    ]
    assert classes == ["line reference", "line s0", "line s1"]


def test_names_are_text_and_no_longer_than_their_room() -> None:
    for name in (EVIL, "x" * 500, '"/><script>alert(1)</script>', "]]>", "\x00\x1b[2J"):
        lines = [Line(name, np.array([1.0, 2.0]))]
        for drawing in (
            over_time(lines, 0.0, 60.0, "seconds", name, name),
            distribution(lines, "seconds", name, name),
        ):
            root = parsed(drawing)
            known = {"svg", "title", "desc", "line", "text", "polyline", "path"}
            assert {e.tag for e in root.iter()} <= known
            (label,) = (t.text or "" for t in root.iter("text") if "name" in t.attrib["class"])
            assert len(label) <= 24 and label.isprintable()
            assert (root.findtext("title") or "").isprintable()


# Shares of windows


def steps(root: ElementTree.Element) -> list[tuple[float, float]]:
    """The corners of the first line: where along, and how high."""
    (path, *_) = (e.attrib["d"] for e in root.iter("path"))
    return [(float(x), float(y)) for x, y in re.findall(r"H([\d.]+)V([\d.]+)", path)]


def test_shares_grow_to_all_and_stay() -> None:
    root = parsed(distribution([Line("a", np.array([3.0, NAN, 1.0, 2.0, 2.0]))], "seconds", "t", "d"))
    found = steps(root)
    assert len(found) == 4, "of the windows that were measured"
    assert found == sorted(found, key=lambda p: (p[0], -p[1])), "to the right, and up"
    assert found[-1][1] == 12.0, "the last value is at all of them"
    (path,) = root.iter("path")
    assert path.attrib["d"].endswith(f"H{PLOT[1]:g}"), "and goes on to the margin"
    assert ticks(root, "end") == ["0 %", "25 %", "50 %", "75 %", "100 %"]


def test_half_of_the_windows_are_at_or_below_the_median() -> None:
    root = parsed(distribution([Line("a", np.array([1.0, 2.0, 3.0, 4.0]))], "seconds", "t", "d"))
    half = next(float(t.attrib["y"]) for t in root.iter("text") if t.text == "50 %")
    assert steps(root)[1][1] == half


def test_one_window_is_a_step() -> None:
    root = parsed(distribution([Line("a", np.array([5e-6]))], "seconds", "t", "d"))
    ((x, y),) = steps(root)
    assert PLOT[0] < x < PLOT[1] and y == 12.0


def test_without_any_value_there_is_an_empty_chart() -> None:
    lines = [Line("a", np.full(3, NAN))]
    for drawing in (
        over_time(lines, 0.0, 60.0, "ratio", "t", "d"),
        distribution(lines, "seconds", "t", "d"),
    ):
        root = parsed(drawing)
        assert not points(root) and not list(root.iter("path")) and not list(root.iter("circle"))
        assert root.findtext("title") == "t" and root.findtext("desc") == "d"


# The hour


def event(kind: str = "flood", begin: float = -600.0, end: float = -540.0, **more: Any) -> Event:
    given: dict[str, Any] = {"what": "red floods", "tenant": "red", "node": "n1", **more}
    return Event(kind, NOW + begin, NOW + end, False, **given)


def hour(*events: Event) -> ElementTree.Element:
    return parsed(lanes.drawn(Timeline(NOW - 3600.0, NOW, events)))


def rects(root: ElementTree.Element) -> list[tuple[float, float, float]]:
    return [tuple(float(r.attrib[k]) for k in ("x", "y", "width")) for r in root.iter("rect")]  # type: ignore[misc]


def test_nothing_is_drawn_of_a_quiet_hour() -> None:
    assert lanes.drawn(Timeline(NOW - 3600.0, NOW, [])) == ""


def test_events_are_where_they_were() -> None:
    root = hour(event(begin=-3600.0, end=-1800.0), event(begin=-1800.0, end=0.0))
    (first, second) = rects(root)
    assert first[0] == 220.0 and first[0] + first[2] == pytest.approx(second[0], abs=0.2)
    assert first[2] == pytest.approx(second[2], abs=0.2) and first[1] == second[1], "one tenant, one lane"
    assert second[0] + second[2] == pytest.approx(1100.0 - 12.0, abs=0.2)


@pytest.mark.parametrize(("begin", "end"), [(-90000.0, 90000.0), (0.0, 0.0), (-3600.0, -3600.0)])
def test_events_stay_within_the_hour(begin: float, end: float) -> None:
    ((x, _, width),) = rects(hour(event(begin=begin, end=end)))
    assert x >= 220.0 and width >= 3.0 and x + width <= 1100.0


def test_one_look_is_as_wide_as_a_step() -> None:
    ((_, _, width),) = rects(hour(event(begin=-600.0, end=-600.0)))
    assert width == pytest.approx(STEP / 3600.0 * (1100 - 220 - 12), abs=0.1)


@pytest.mark.parametrize("since", PERIODS)
def test_times_below_the_lanes_are_round_and_few(since: str) -> None:
    length = PERIODS[since].length
    at = NOW // 60.0 * 60.0
    root = parsed(lanes.drawn(Timeline(at - length, at, [event()], step=PERIODS[since].step)))
    shown = [t.text or "" for t in root.iter("text") if "tick" in t.attrib["class"]]
    minutes = [int(h) * 60 + int(m) for h, m in (t.split(":") for t in shown)]
    assert 3 <= len(shown) <= 8
    (apart,) = {(b - a) % 1440 for a, b in pairwise(minutes)}
    assert apart == {"15m": 5, "1h": 10, "6h": 60, "24h": 240}[since]
    assert all(m % min(apart, 60) == 0 for m in minutes)


def test_one_look_of_a_long_period_is_as_wide_as_its_step() -> None:
    step = PERIODS["24h"].step
    found = Timeline(NOW - 86_400.0, NOW, [event(begin=-3600.0, end=-3600.0)], step=step)
    ((_, _, width),) = rects(parsed(lanes.drawn(found)))
    assert width == pytest.approx(step / 86_400.0 * (1100 - 220 - 12), abs=0.1)


def test_lanes_are_of_tenants_and_of_alerts() -> None:
    root = hour(
        event(),
        event("limit", what="red is limited"),
        event("harm", what="blue is hurt", tenant="blue"),
        event("alert", what="VigiaUdpFlood: tenant red", severity="critical"),
        event("alert", what="VigiaUdpFlood: tenant blue", severity="warning"),
    )
    names = [t.text for t in root.iter("text") if "lane" in t.attrib["class"]]
    assert names == ["red floods", "red is limited", "blue is hurt", "VigiaUdpFlood"]
    assert len({y for _, y, _ in rects(root)}) == 4
    critical = [r.findtext("title") for r in root.iter("rect") if "critical" in r.attrib["class"]]
    assert critical == ["VigiaUdpFlood: tenant red"]
    assert root.findtext("desc") == "5 events in 4 lanes; the table below lists them."


def test_lanes_are_bounded_and_their_names_are_text() -> None:
    root = hour(*(event(tenant=f"{EVIL}{i}", what=EVIL) for i in range(100)))
    names = [t.text or "" for t in root.iter("text") if "lane" in t.attrib["class"]]
    assert len(names) == len(rects(root)) == lanes.MOST_LANES
    assert all(len(n) <= 28 and n.isprintable() for n in names)
    assert {e.tag for e in root.iter()} == {"svg", "title", "desc", "line", "text", "rect"}


# The matrix


def between(pairs: dict[tuple[str, str], tuple[float, float]]) -> Matrix:
    return matrix(Mesh(NOW, sorted({n for ends in pairs for n in ends}), pairs))


@pytest.mark.parametrize(
    ("loss", "p99", "heat", "text"),
    [
        (0.0, 1e-3, "h0", "1.00 ms"),
        (0.0, 1.1e-3, "h1", "1.10 ms"),
        (0.0, 6e-3, "h2", "6.00 ms"),
        (0.0, 21e-3, "h3", "21.0 ms"),
        (SOME_LOSS / 2.0, 1e-4, "h0", "100 µs"),
        (SOME_LOSS, 1e-4, "h3", "0.100 % lost"),
        (BAD_LOSS, 1e-4, "h4", "1.00 % lost"),
        (1.0, NAN, "h4", "100 % lost"),
        (NAN, 1e-4, "h0", "100 µs"),
        (0.0, NAN, "h0", numbers.MISSING),
        (NAN, NAN, "", ""),
    ],
)
def test_a_field_tells_loss_before_delay(loss: float, p99: float, heat: str, text: str) -> None:
    row = dict(between({("a", "b"): (loss, p99)}).rows)["a"]
    assert [(f.heat, f.text) for f in row] == [("", ""), (heat, text)]


def test_directions_are_told_apart_and_a_node_does_not_probe_itself() -> None:
    found = between({("a", "b"): (0.5, 1e-4)})
    assert dict(found.rows)["b"][0].text == "", "what b sees of a is not known"
    assert (found.pairs, found.lossy, found.nodes) == (1, 1, ["a", "b"])


def test_the_worst_pairs_go_by_loss_then_by_delay_and_are_bounded() -> None:
    found = between({("a", "b"): (0.0, 9e-3), ("a", "c"): (0.2, NAN), ("b", "c"): (NAN, 1e-2)})
    assert [(w.src, w.dst) for w in found.worst] == [("a", "c"), ("b", "c"), ("a", "b")]
    many = between({(f"n{i}", "z"): (0.0, i * 1e-4) for i in range(MOST_WRITTEN + 10)})
    assert len(many.worst) == MOST_WORST and many.worst[0].src == f"n{MOST_WRITTEN + 9}"


@pytest.mark.parametrize(("count", "written"), [(MOST_WRITTEN, True), (MOST_WRITTEN + 1, False)])
def test_many_nodes_have_signs(count: int, written: bool) -> None:
    names = [f"n{i:02}" for i in range(count)]
    pairs = {(names[0], n): (0.0, 1e-4) for n in names[3:]}
    pairs |= {(names[0], names[1]): (BAD_LOSS, 1e-4), (names[0], names[2]): (SOME_LOSS, 1e-4)}
    found = between(pairs)
    signs = ["1.00 % lost", "0.100 % lost", "100 µs"] if written else ["!", "-", "·"]
    assert found.written is written and [f.text for f in found.rows[0][1]][1:4] == signs
