"""Silence when healthy: a day of ordinary operation raises no alert, and the same day with a trouble in it does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from alertkit import rules
from daykit import HOUR, Alert, Day, Trouble, alerts, notation, played

import vigia_catalog
from vigia_dashboards.expressions import check_matchers, labels_of, recorded, selectors

AWAY = Trouble("down", "n3", 14 * HOUR, 14 * HOUR + 600)
"""A node that is taken away for ten minutes, for maintenance."""

DOWN = {
    "VigiaNodeDown",
    "VigiaProbeDown",
    "VigiaExporterDown",
    "VigiaEnforcerDown",
    "VigiaNodeExporterDown",
    "VigiaPeerUnresponsive",
    "VigiaPathLoss",
    "VigiaLossBudgetBurn",
}
"""What a node that is down raises; all but the first are kept back (test_notifications.py)."""


def names(fired: Iterable[Alert]) -> set[str]:
    """Names of the alerts that are messages to people or to the isolation agent."""
    found = map(dict, fired)
    return {a["alertname"] for a in found if a["severity"] != "info"}


def about(fired: Iterable[Alert], node: str) -> bool:
    """Whether every alert is about a node, or a path from it or to it."""
    return all(node in {dict(a).get(k) for k in ("node", "src", "dst", "peer")} for a in fired)


def test_a_day_of_ordinary_operation_raises_no_alert(tmp_path: Path) -> None:
    """But for those about the node that is taken away, while it is, and while its budgets remember it."""
    day = Day(troubles=[AWAY])
    spans = [
        (0, AWAY.begin),
        (AWAY.begin, AWAY.end),
        (AWAY.end, AWAY.end + HOUR),
        (AWAY.end + HOUR, 24 * HOUR),
    ]
    before, away, after, rest = played(day, tmp_path, spans)
    assert names(before) == set()
    assert names(away) == DOWN
    assert about(away, "n3") and about(after, "n3")
    assert names(rest) == set()


def test_ordinary_minutes_raise_no_alert_at_the_pace_of_isolation(tmp_path: Path) -> None:
    """With scrapes and evaluations every second: a scrape that fails, or a burst of seconds, is no alert."""
    day = Day(hours=0.25, step=1, seed=2)
    (fired,) = played(day, tmp_path, [(0, HOUR // 4)], every=1, files=("isolation", "tenants"))
    assert names(fired) == set()


HALF = HOUR // 2
FAULTS = {
    "a path that loses, one that is slow, a flood, a clock": (
        [
            Trouble("loss", "n1", HALF, 2 * HOUR, "n2", 0.03),
            Trouble("slow", "n2", HALF, 2 * HOUR, "n1", 0.3),
            Trouble("flood", "n3", HALF, HALF + 120, "p1"),
            Trouble("clock", "n2", HALF, 2 * HOUR),
        ],
        {
            "VigiaPathLoss": {"n1"},
            "VigiaLossBudgetBurn": {"n1"},
            "VigiaDelayBudgetBurn": {"n2"},
            "VigiaJitterBudgetBurn": {"n2"},
            "VigiaUdpFlood": {"n3"},
            "VigiaClock": {"n2"},
        },
    ),
    "a flood that disturbs another tenant, a host that is busy": (
        [
            Trouble("flood", "n1", HALF, HALF + 600, "p2"),
            Trouble("loss", "n1", HALF, HALF + 600, "n2", 0.2),
            Trouble("busy", "n3", HALF, 2 * HOUR, "", 0.6),
        ],
        {
            "VigiaUdpFlood": {"n1"},
            "VigiaTenantInterference": {"n1"},
            "VigiaPathLoss": {"n1"},
            "VigiaLossBudgetBurn": {"n1"},
            "VigiaHostBusy": {"n3"},
            "VigiaDelayBudgetBurn": {"n1", "n3"},
            "VigiaJitterBudgetBurn": {"n1", "n3"},
        },
    ),
}
"""What is the matter, and the alerts of it, with the nodes that they are about or whose paths they are."""


@pytest.mark.parametrize("what", FAULTS)
def test_the_same_hours_tell_of_a_trouble(what: str, tmp_path: Path) -> None:
    troubles, expected = FAULTS[what]
    before, during = played(
        Day(hours=2, troubles=troubles), tmp_path, [(0, HALF), (HALF, 2 * HOUR)], every=30
    )
    assert names(before) == set()
    seen: dict[str, set[str]] = {}
    for fired in map(dict, during):
        if fired["severity"] != "info":
            seen.setdefault(fired["alertname"], set()).add(fired.get("node") or fired["src"])
    assert seen == expected


def test_the_day_has_whatever_a_rule_reads() -> None:
    """A rule without its series would be silent for another reason than health."""
    read = {str(s.name) for kind in ("alert", "record") for r in rules(kind) for s in selectors(r["expr"])}
    given = {series.partition("{")[0] for series in Day(hours=0.2).series}
    histograms = {n for n in read if (m := vigia_catalog.load().get(n)) and m.type == "histogram"}
    made = {n for n in recorded() if set(map(str, (s.name for s in selectors(recorded()[n])))) & histograms}
    votes = {name for name in read if name.startswith("vigia_probe_") and "unreachable" in name}
    assert votes, "there while a peer of a mesh cannot be reached alone: mesh.test.yml"
    assert read - set(recorded()) - histograms - votes <= given
    assert given & set(recorded()) <= made, "what can be recorded is recorded"


def test_its_series_are_as_they_are_exported() -> None:
    for series in Day(hours=0.2).series:
        check_matchers(series)
        (selector,) = selectors(series)
        name, given = str(selector.name), {m.name for m in selector.matchers.matchers}
        metric = vigia_catalog.load().get(name)
        known = labels_of(name)
        assert known is not None and given <= known, series
        assert metric is None or set(metric.labels) <= given, f"{series} lacks {set(metric.labels) - given}"


def test_a_day_is_the_same_whenever_it_is_played() -> None:
    assert Day(hours=1).series == Day(hours=1).series
    assert Day(hours=1).series != Day(hours=1, seed=2).series


def expanded(text: str) -> list[float | None | str]:
    """Read promtool's notation."""
    out: list[float | None | str] = []
    for word in text.split():
        if word == "stale":
            out.append("stale")
        elif match := re.fullmatch(r"_x(\d+)", word):
            out += [None] * int(match[1])
        elif match := re.fullmatch(r"(-?[\d.e-]+?)([+-][\d.]+)x(\d+)", word):
            out += [float(match[1]) + k * float(match[2]) for k in range(int(match[3]) + 1)]
        else:
            out.append(float(word))
    return out


@pytest.mark.parametrize(
    ("values", "every", "expected"),
    [
        ([1.0, 1.0, 1.0], 1, [1, 1, 1]),
        ([0.0, 5.0, 10.0, 3.0, 2.0, 1.0], 1, [0, 5, 10, 3, 2, 1]),
        ([0.1, 0.2, 0.3], 1, [0.1, 0.2, 0.3]),
        ([None, None, 4.0, None, None, 5.0], 1, [None, None, 4, "stale", None, 5]),
        ([None], 1, [None]),
        ([1.0, 2.0, None, 3.0], 3, [1, None, None, 2, None, None, "stale", None, None, 3, None, None]),
    ],
)
def test_values_are_written_as_promtool_reads_them(
    values: list[float | None], every: int, expected: list[float | None | str]
) -> None:
    assert expanded(" ".join(notation(values, every))) == expected


def test_what_promtool_says_is_read() -> None:
    said = '[{alertname="A", alertstate="firing", node="n\\"1"} 5.7E+03 {alertname="B", alertstate="firing"} 1E+00]'
    assert alerts(said) == {(("alertname", "A"), ("node", 'n\\"1')), (("alertname", "B"),)}
    assert alerts("nil") == set()
