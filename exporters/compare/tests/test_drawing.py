"""Pieces of the pages: moments, axes, banners, lanes, how numbers and times are written."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import Markup

from vigia_compare.config import Config
from vigia_compare.findings import EQUIVALENT, NO_COMMON_HOSTS, OPEN, Finding
from vigia_compare.moments import moment
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.site import Mesh
from vigia_compare.standings import standings
from vigia_compare.timeline import LENGTH, Event, Timeline
from vigia_compare.web import charts, frame
from vigia_compare.web.comparison import Banner, Column, _banner, _natural, _value
from vigia_compare.web.lanes import MOST_LANES, drawn
from vigia_compare.web.matrix import MOST_WORST, MOST_WRITTEN, matrix
from vigia_config import ConfigError, load

from .made import END

NOW = 1_800_000_000.0
CELL = Cell("rtt", "remote", "", "stamp-64")
PAIR = Finding(CELL, "a", "b", Kind.CONTEST, OPEN)


# Moments


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2h", NOW - 7200.0),
        ("-2h", NOW - 7200.0),
        ("90s", NOW - 90.0),
        ("1.5m", NOW - 90.0),
        ("31d", NOW - 31 * 86400.0),
        ("0s", NOW),
        ("1799999000", 1_799_999_000.0),
        ("1799999000.25", 1_799_999_000.25),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15T08:00:00", NOW),
        ("2027-01-15 08:00", NOW),
        ("2027-01-15T09:00:00+01:00", NOW),
        ("2027-01-15", NOW - 8 * 3600.0),
    ],
)
def test_moments_as_people_write_them(text: str, at: float) -> None:
    assert moment(text, NOW) == pytest.approx(at)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2 h",
        "2w",
        "h",
        "1e9",
        "99999999999h",
        "2027-13-01",
        "2027-01-15T25:00",
        "0001-01-01T00:00:00+23:59",
        "9" * 40,
        "nan",
        "inf",
        "\u0661\u0667\u0669\u0669\u0669\u0669\u0669\u0660\u0660\u0660",
        "1799999000; rm",
        "2h\n",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not a moment; write for example|is not in the past|is before 1970"
    ):
        moment(text, NOW)


def test_what_is_before_all_data_is_refused() -> None:
    with pytest.raises(ValueError, match="is before 1970; write for example 2h"):
        moment("999999999d", NOW)


@pytest.mark.parametrize("text", ["2999-01-01", "1800000061"])
def test_what_is_not_in_the_past_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not in the past; write for example 2h"):
        moment(text, NOW)
    assert moment("1800000059", NOW) == NOW + 59.0, "clocks may differ by a minute"


# Axes


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-5, 1e-1, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        (2e-5, 8e-3, [3e-5, 1e-4, 3e-4, 1e-3, 3e-3]),
        (1e-4, 1e-3, [1e-4, 2e-4, 5e-4, 1e-3]),
    ],
)
def test_decades_are_round(low: float, high: float, ticks: Sequence[float]) -> None:
    assert charts._decades(low, high, 6) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 0.011, [0.0, 0.005, 0.01]),
        (-1.0, 1.0, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        (40.0, 47.0, [40.0, 42.0, 44.0, 46.0]),
    ],
)
def test_steps_are_round(low: float, high: float, ticks: Sequence[float]) -> None:
    assert charts._steps(low, high, 6) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "share", "log"),
    [
        ([1e-5, 1e-2], False, True),
        ([0.0, 1e-2], False, False),
        ([-1e-6, 1e-2], False, False),
        ([1e-5, 1e-2], True, False),
        ([math.nan], False, False),
    ],
)
def test_an_axis_is_logarithmic_where_all_is_above_zero(
    values: Sequence[float], share: bool, log: bool
) -> None:
    axis = charts._axis(np.array(values), 100.0, 0.0, share)
    assert axis.log == log
    assert axis(axis.low) == pytest.approx(100.0) and axis(axis.high) == pytest.approx(0.0)
    assert axis(axis.high * 1e9) == pytest.approx(0.0), "nothing is drawn outside"


def test_values_that_hardly_differ_do_not_fill_the_chart() -> None:
    axis = charts._axis(np.array([1.0, 1.01]), 100.0, 0.0, False)
    assert axis(1.0) - axis(1.01) < 5.0


def _texts(chart: Markup, kind: str) -> list[tuple[float, str]]:
    root = ElementTree.fromstring(str(chart))  # noqa: S314 - our own
    return [(float(e.attrib["y"]), e.text or "") for e in root.iter("text") if kind in e.attrib["class"]]


def test_names_at_one_height_are_pushed_apart_and_stay_inside() -> None:
    lines = [charts.Line(f"path-{i}", np.full(5, 1.0)) for i in range(charts.MOST_LINES)]
    lines.append(charts.Line("other", np.full(5, 9.0)))
    heights = sorted(y for y, _ in _texts(charts.over_time(lines, 0.0, 60.0, "seconds", "t", "d"), "name"))
    assert len(heights) == charts.MOST_LINES + 1
    assert min(b - a for a, b in pairwise(heights)) >= 14.9
    assert heights[0] >= 0.0 and heights[-1] <= charts.HEIGHT


@pytest.mark.parametrize(
    ("heights", "placed"),
    [
        ([], []),
        ([50.0], [50.0]),
        ([0.0], [12.0]),
        ([50.0, 52.0], [50.0, 65.0]),
        ([50.0, 52.0, 200.0], [50.0, 65.0, 200.0]),
        ([12.0, 268.0, 269.0, 270.0], [12.0, 240.0, 255.0, 270.0]),
        ([250.0, 260.0, 270.0], [240.0, 255.0, 270.0]),
    ],
)
def test_names_are_moved_no_more_than_they_have_to(heights: list[float], placed: list[float]) -> None:
    assert charts._apart(heights) == pytest.approx(placed)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 1.0])
def test_as_many_names_as_there_may_be_fit_at_any_height(at: float) -> None:
    room = charts.HEIGHT - 42.0
    placed = charts._apart([12.0 + at * room] * (charts.MOST_LINES + 1))
    assert placed[0] >= 12.0 and placed[-1] <= 12.0 + room
    assert min(b - a for a, b in pairwise(placed)) >= 14.9


def test_long_names_are_cut() -> None:
    chart = charts.over_time([charts.Line("x" * 200, np.ones(3))], 0.0, 60.0, "seconds", "t", "d")
    ((_, name),) = _texts(chart, "name")
    assert len(name) <= 24 and name.endswith("…")


@pytest.mark.parametrize(
    ("length", "first"),
    [(300.0, "08:00"), (3600.0, "08:00"), (7200.0, "08:00"), (86400.0, "08:00"), (30 * 86400.0, None)],
)
def test_times_along_a_chart_are_round(length: float, first: str | None) -> None:
    chart = charts.over_time([charts.Line("a", np.ones(4))], NOW, NOW + length, "seconds", "t", "d")
    ticks = [t for _, t in _texts(chart, "middle")]
    assert 2 <= len(ticks) <= 9
    assert first is None or ticks[0] in (first, "12:00")
    assert all(re.fullmatch(r"\d\d:\d0|\d\d:\d\d|\d\d-\d\d", t) for t in ticks)


def test_the_reference_is_grey_and_takes_no_colour() -> None:
    lines = [
        charts.Line("a", np.ones(3)),
        charts.Line("under", np.ones(3), reference=True),
        charts.Line("b", np.ones(3)),
    ]
    assert [colour for colour, _ in charts._numbered(lines)] == ["s0", "reference", "s1"]


def test_markup_in_words_of_a_chart_is_text() -> None:
    evil = "<script>x</script>\u202e"
    chart = charts.over_time([charts.Line(evil, np.ones(3))], 0.0, 60.0, evil, evil, evil)
    assert "<script" not in chart and "\u202e" not in chart
    ElementTree.fromstring(str(chart))  # noqa: S314 - our own


# Banners


def decided(a: str, b: str, verdict: str, since: float, shift: tuple[float, float, float]) -> Finding:
    return replace(PAIR, a=a, b=b, verdict=verdict, since=since, shift=shift)


def banner(*pairs: Finding) -> Banner:
    cell = pairs[0].cell
    return _banner(Column(cell), standings(pairs)[0])


def test_a_winner_holds_since_its_last_verdict_and_is_told_over_the_second() -> None:
    found = banner(
        decided("a", "b", "b", END - 60.0, (1e-3, 2e-3, 3e-3)),
        decided("a", "c", "c", END - 50.0, (4e-3, 5e-3, 6e-3)),
        decided("b", "c", "b", END - 30.0, (-9e-4, -7e-4, -5e-4)),
    )
    assert (found.state, found.answer, found.since) == ("won", "b", END - 30.0)
    assert found.by == "by 700 [500, 900] µs over c"


@pytest.mark.parametrize(
    ("metric", "winner", "shift", "said"),
    [
        ("rtt", "a", (-3e-3, -2e-3, -1e-3), "by 2.00 [1.00, 3.00] ms over b"),
        ("rtt", "b", (1e-3, 2e-3, 3e-3), "by 2.00 [1.00, 3.00] ms over a"),
        ("tcp_throughput", "a", (1e6, 2e6, 3e6), "by 16.0 [8.00, 24.0] Mbit/s over b"),
        ("tcp_throughput", "b", (-3e6, -2e6, -1e6), "by 16.0 [8.00, 24.0] Mbit/s over a"),
        ("loss", "a", (-0.03, -0.02, -0.01), "by 2.00 [1.00, 3.00] % over b"),
        ("rtt", "a", (-math.inf, -2e-3, -1e-3), "by 2.00 [1.00 or more] ms over b"),
        ("rtt", "a", (-math.inf, math.nan, math.inf), "over b"),
    ],
)
def test_how_far_a_winner_is_ahead(
    metric: str, winner: str, shift: tuple[float, float, float], said: str
) -> None:
    pair = replace(decided("a", "b", winner, 1.0, shift), cell=replace(CELL, metric=metric))
    assert banner(pair).by == said


def test_equal_paths_hold_since_both_are_known_to_be() -> None:
    found = banner(
        replace(PAIR, verdict=EQUIVALENT, since=100.0),
        replace(PAIR, a="a", b="c", verdict="a", since=300.0),
        replace(PAIR, a="b", b="c", verdict="b", since=400.0),
    )
    assert (found.state, found.answer, found.since) == ("equal", "a and b are equivalent", 100.0)


def test_what_is_open_says_how_far_the_evidence_is() -> None:
    found = banner(replace(PAIR, e_value=math.sqrt(20.0), ahead="a"))
    assert (found.state, found.progress) == ("open", pytest.approx(0.5))
    assert found.answer == "not known yet: a is ahead of b, e = 4.4 of 20 needed"
    apart = banner(replace(PAIR, verdict=NO_COMMON_HOSTS, words="apart"))
    assert (apart.state, apart.answer) == ("open", "not known: a and b share no pair of hosts")


def test_a_lone_path_competes_with_nobody() -> None:
    assert _banner(Column(CELL), None).state == "alone"


@pytest.mark.parametrize(
    ("loss", "heat"), [(0.0, "h0"), (0.0009, "h0"), (0.005, "h1"), (0.03, "h2"), (0.1, "h3"), (0.5, "h4")]
)
def test_heat_of_loss_is_the_difference_to_the_best(loss: float, heat: str) -> None:
    column = Column(replace(CELL, metric="loss"))
    value = _value(column, "a", loss, 0.0, None)
    assert (value.heat, value.times) == (heat, "")


def test_what_is_not_measured_has_no_heat() -> None:
    value = _value(Column(CELL), "a", math.nan, 1e-3, None)
    assert (value.text, value.heat, value.times) == ("–", "", "")
    assert _value(Column(CELL), "a", 1e-3, math.nan, None).heat == "", "nothing competes"


def test_rates_are_put_in_their_order() -> None:
    given = ["bulk-udp 1Gbit", "bulk-udp 200Mbit", "bulk-udp", "bulk-udp 20Mbit"]
    assert sorted(given, key=_natural) == [
        "bulk-udp",
        "bulk-udp 20Mbit",
        "bulk-udp 200Mbit",
        "bulk-udp 1Gbit",
    ]


# The matrix


def test_fields_are_written_up_to_so_many_nodes() -> None:
    for count, written in ((MOST_WRITTEN, True), (MOST_WRITTEN + 1, False)):
        names = [f"n{i}" for i in range(count)]
        pairs = {(a, b): (0.0, 2e-3) for a in names for b in names}
        table = matrix(Mesh(NOW, names, pairs))
        assert (table.written, table.rows[0][1][0].text) == (written, "2.00 ms" if written else "·")
        assert len(table.worst) == MOST_WORST


@pytest.mark.parametrize(
    ("loss", "p99", "heat", "text"),
    [
        (0.0, 0.0005, "h0", "500 µs"),
        (0.0, 0.003, "h1", "3.00 ms"),
        (0.0, 0.01, "h2", "10.0 ms"),
        (0.0, 0.05, "h3", "50.0 ms"),
        (0.002, 0.0005, "h3", "0.200 % lost"),
        (1.0, math.nan, "h4", "100 % lost"),
        (math.nan, 0.0005, "h0", "500 µs"),
        (0.0, math.nan, "h0", "–"),
        (math.nan, math.nan, "", ""),
    ],
)
def test_a_pair_of_nodes(loss: float, p99: float, heat: str, text: str) -> None:
    table = matrix(Mesh(NOW, ["a", "b"], {("a", "b"): (loss, p99)}))
    field = table.rows[0][1][1]
    assert (field.heat, field.text) == (heat, text)


def test_the_worst_pairs_lose_most_and_are_slowest() -> None:
    pairs = {
        ("a", "b"): (0.0, 9.0),
        ("b", "a"): (0.5, math.nan),
        ("a", "c"): (0.5, 1.0),
        ("c", "a"): (0.0, 1.0),
    }
    table = matrix(Mesh(NOW, ["a", "b", "c"], pairs))
    assert [(w.src, w.dst) for w in table.worst] == [("a", "c"), ("b", "a"), ("a", "b"), ("c", "a")]
    assert (table.pairs, table.lossy) == (4, 2)


# Lanes


def event(kind: str, at: float, tenant: str = "red", **more: object) -> Event:
    made = Event(kind, NOW - at, NOW - at + 60.0, False, f"{tenant} {kind}", tenant, "n1")
    return replace(made, **more)  # type: ignore[arg-type]


def hour(*events: Event) -> Timeline:
    return Timeline(NOW - LENGTH, NOW, events)


def test_an_hour_without_events_is_not_drawn() -> None:
    assert drawn(hour()) == ""


def test_events_of_a_tenant_share_a_lane() -> None:
    root = ElementTree.fromstring(  # noqa: S314 - our own
        str(
            drawn(
                hour(
                    event("flood", 600.0),
                    event("flood", 1200.0),
                    event("limit", 590.0),
                    event("alert", 500.0, what="VigiaUdpFlood: tenant red", severity="critical"),
                    event("harm", 400.0, "blue"),
                )
            )
        )
    )
    lanes = [e.text for e in root.iter("text") if "lane" in e.attrib["class"]]
    assert lanes == ["red floods", "red is limited", "VigiaUdpFlood", "blue is hurt"]
    bars = list(root.iter("rect"))
    assert len(bars) == 5 and bars[0].attrib["y"] == bars[1].attrib["y"]
    assert [b.attrib["class"].split()[1:] for b in bars] == [
        ["flood"],
        ["flood"],
        ["limit"],
        ["alert", "critical"],
        ["harm"],
    ]
    assert all(b.findtext("title") for b in bars), "the same in words"


def test_bars_stay_inside_and_are_wide_enough_to_be_seen() -> None:
    root = ElementTree.fromstring(  # noqa: S314 - our own
        str(
            drawn(
                hour(
                    event("flood", LENGTH + 500.0),
                    event("flood", 10.0, end=NOW + 500.0),
                    event("flood", 900.0, end=NOW - 900.0),
                )
            )
        )
    )
    width = float(root.attrib["viewBox"].split()[2])
    for bar in root.iter("rect"):
        left, wide = float(bar.attrib["x"]), float(bar.attrib["width"])
        assert left >= 0.0 and left + wide <= width and wide >= 3.0


def test_many_lanes_are_bounded() -> None:
    root = ElementTree.fromstring(str(drawn(hour(*(event("flood", 60.0, f"t{i}") for i in range(99))))))  # noqa: S314
    assert len([e for e in root.iter("text") if "lane" in e.attrib["class"]]) == MOST_LANES


# How things are written


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (9000, "2.5 h")],
)
def test_how_long_something_lasted(seconds: float, text: str) -> None:
    assert frame._lasted(seconds) == text


def test_moments_have_their_date_unless_it_is_today() -> None:
    now = datetime.now(UTC)
    assert re.fullmatch(r'<time datetime="[^"]+Z">\d\d:\d\d UTC</time>', frame._clock(now.timestamp()))
    assert frame._clock(1_700_000_000.0, seconds=True).endswith(">2023-11-14 22:13:20 UTC</time>")
    assert (frame._clock(0.0), frame._clock(math.nan)) == ("–", "–")


@pytest.mark.parametrize(("ratio", "text"), [(0.0, "0 %"), (0.999, "99 %"), (1.0, "100 %"), (0.505, "50 %")])
def test_progress_is_never_rounded_up(ratio: float, text: str) -> None:
    assert frame._whole(ratio) == text


def test_addresses_carry_what_was_chosen_and_nothing_else() -> None:
    assert frame._address("/", probe="", show=None) == "/"
    assert frame._address("/mesh", path='a"b&c', at="2h") == "/mesh?path=a%22b%26c&at=2h"


@pytest.mark.parametrize(
    ("given", "console"),
    [("http://h:9874", "http://h:9874/"), ("https://h/vigia/", "https://h/vigia/")],
)
def test_the_console_may_be_elsewhere(given: str, console: str) -> None:
    assert Config.model_validate({"console": given}).console == console


@pytest.mark.parametrize(
    "given", ["h:9874", "javascript:alert(1)", "http://u:p@h/", "http://h/?x=1", "http://h/\n", ""]
)
def test_what_is_no_console_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a console; write for example"):
        Config.model_validate({"console": given})


@pytest.mark.parametrize("given", ["h:9874", "javascript:alert(1)", "http://h:0"])
def test_a_file_with_such_a_console_names_the_field(tmp_path: Path, given: str) -> None:
    (tmp_path / "compare.yaml").write_text(f'listen: 127.0.0.1:9875\nconsole: "{given}"\n')
    with pytest.raises(
        ConfigError, match=r"compare\.yaml:\d+:.* console: .*write for example http://127\.0\.0\.1:9874"
    ):
        load(tmp_path / "compare.yaml", Config)


def test_the_shipped_configuration_names_the_console() -> None:
    shipped = Path(__file__).resolve().parents[3] / "deploy/compare/compare.yaml"
    assert "# console: " in shipped.read_text()
    assert load(shipped, Config).console is None
