"""What is said of pairs and of cells: progress, verdicts, ranks and the units that they are told in."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest

from vigia_compare import report
from vigia_compare.counters import counted, grown
from vigia_compare.evaluation import Evaluation
from vigia_compare.findings import (
    COSTS,
    EQUIVALENT,
    NO_COMMON_HOSTS,
    OPEN,
    SAVES,
    Finding,
    apart,
    leading,
    spelled,
)
from vigia_compare.levels import Level
from vigia_compare.measures import MEASURES
from vigia_compare.paths import Kind
from vigia_compare.readings import Cell
from vigia_compare.standings import Standing, standings
from vigia_statistics.sequential import Change, Scale

from .made import END, HOSTS

CELL = Cell("rtt", "remote", "", "stamp-64")
OPEN_PAIR = Finding(CELL, "a", "b", Kind.CONTEST, OPEN)


def contest(a: str, b: str, verdict: str, e_value: float = 0.0) -> Finding:
    return replace(OPEN_PAIR, a=a, b=b, verdict=verdict, e_value=e_value)


def table(*pairs: Finding) -> Standing:
    (found,) = standings(pairs)
    return found


# Words of a pair


@pytest.mark.parametrize(
    ("e_value", "text"),
    [
        (0.0, "0"),
        (0.99, "0.9"),
        (1.0, "1"),
        (9.99, "9.9"),
        (10.0, "10"),
        (19.999, "19"),
        (9999.9, "9999"),
        (1e4, "1e4"),
        (9.99e12, "1e12"),
    ],
)
def test_evidence_is_spelled_and_never_rounded_up(e_value: float, text: str) -> None:
    assert spelled(e_value) == text
    assert float(text) <= e_value


@pytest.mark.parametrize(
    ("e_value", "e_equivalent", "progress"),
    [
        (0.0, 0.0, 0.0),
        (0.5, 1.0, 0.0),
        (math.sqrt(20.0), 0.0, 0.5),
        (2.0, math.sqrt(20.0), 0.5),
        (20.0, 0.0, 1.0),
        (1e300, 0.0, 1.0),
    ],
)
def test_progress_is_the_share_of_the_logarithm_of_what_is_further(
    e_value: float, e_equivalent: float, progress: float
) -> None:
    pair = replace(OPEN_PAIR, e_value=e_value, e_equivalent=e_equivalent)
    assert pair.progress == pytest.approx(progress)


@pytest.mark.parametrize("verdict", ["a", "b", EQUIVALENT, COSTS, SAVES])
def test_a_verdict_is_all_of_the_progress(verdict: str) -> None:
    assert replace(OPEN_PAIR, verdict=verdict).progress == 1.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verdict": "a"}, "a is better than b"),
        ({"verdict": "b"}, "b is better than a"),
        ({"verdict": EQUIVALENT}, "a and b are equivalent"),
        ({"e_value": 4.26, "ahead": "b"}, "b is ahead of a, e = 4.2 of 20 needed"),
        ({"e_value": 4.26, "ahead": "a", "needed": 160.0}, "a is ahead of b, e = 4.2 of 160 needed"),
        ({"e_value": 1.0, "e_equivalent": 7.0, "ahead": "a"}, "a and b look alike, e = 7 of 20 needed"),
        ({"e_equivalent": 0.9, "ahead": "a"}, "a is ahead of b, e = 0 of 20 needed"),
        ({}, "neither a nor b is ahead, e = 0 of 20 needed"),
        ({"verdict": NO_COMMON_HOSTS, "words": "apart"}, "apart"),
        ({"kind": Kind.ELEMENT, "verdict": COSTS}, "b is better than a"),
        ({"kind": Kind.ELEMENT, "verdict": SAVES}, "a is better than b"),
    ],
)
def test_a_pair_in_words(changed: dict[str, object], said: str) -> None:
    assert replace(OPEN_PAIR, **changed).said == said  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "shift", "said"),
    [
        ("rtt", (1e-6, 2e-6, 3e-6), "a has 2.00 [1.00, 3.00] µs above b"),
        ("jitter", (-math.inf, 2e-3, math.inf), "a has 2.00 [–, –] ms above b"),
        ("loss", (0.001, 0.02, 0.03), "a has 2.00 [0.100, 3.00] % above b"),
        ("tcp_throughput", (-3e8, -2e8, -1e8), "a has -1.60 [-2.40, -0.800] Gbit/s above b"),
        ("rtt", (-math.inf, math.nan, math.inf), "nothing is known yet of a above b"),
    ],
)
def test_a_cost_is_told_in_the_unit_of_its_metric(
    metric: str, shift: tuple[float, float, float], said: str
) -> None:
    cost = Finding(replace(CELL, metric=metric), "a", "b", Kind.REFERENCE, OPEN, Scale.DIFFERENCE)
    assert replace(cost, shift=shift).said == said


@pytest.mark.parametrize("metric", MEASURES)
def test_who_leads_depends_on_which_way_is_better(metric: str) -> None:
    less, more = leading("a", "b", metric, -1e-9), leading("a", "b", metric, 1e-9)
    assert (less, more) == (("a", "b") if MEASURES[metric].better == "lower" else ("b", "a"))
    assert leading("a", "b", metric, 0.0) == leading("a", "b", metric, math.nan) == ""
    assert leading("b", "a", metric, 1e-9) == less, "to swap the paths turns the sign"


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "s1-d1"), (3, "s3-d3"), (4, " and 1 more"), (9, " and 6 more")]
)
def test_hosts_that_are_apart_are_spelled_out_up_to_three(count: int, shown: str) -> None:
    hosts = [(f"s{i}", f"d{i}") for i in range(1, count + 1)]
    text = apart("a", hosts, "b", [("x", "y")])
    listed = text.partition("a (")[2].partition(")")[0]
    assert listed.endswith(shown) and listed.count("-") == min(count, 3)
    assert "b (x-y)" in text and "b between s1-d1 as well" in text


# Words of a cell


@pytest.mark.parametrize("order", list(permutations("abcd")))
def test_a_full_order_is_told_whatever_the_names(order: tuple[str, ...]) -> None:
    pairs = [contest(a, b, min(a, b, key=order.index)) for a, b in combinations("abcd", 2)]
    found = table(*pairs)
    assert (list(found.paths), list(found.ranks)) == (list(order), [1, 2, 3, 4])
    assert (found.winner, found.said, found.progress) == (order[0], order[0], 1.0) and found.decided


def test_a_winner_needs_every_pair_and_others_may_stay_open() -> None:
    open_below = contest("b", "c", OPEN, 2.0)
    found = table(contest("a", "b", "a"), contest("a", "c", "a"), open_below)
    assert (found.winner, list(found.ranks)) == ("a", [1, 2, 2])
    short = table(contest("a", "b", "a"), contest("a", "c", OPEN, 2.0), open_below)
    assert (short.winner, short.decided, list(short.paths)) == ("", False, ["a", "c", "b"])
    assert short.progress == pytest.approx(math.log(2.0) / math.log(20.0))


def test_the_best_may_be_several_that_are_equivalent() -> None:
    pairs = [contest("a", "b", EQUIVALENT), contest("a", "c", "a")]
    found = table(*pairs, contest("b", "c", "b"))
    assert (list(found.level), found.winner, found.decided) == (["a", "b"], "", True)
    assert (list(found.ranks), found.said) == ([1, 1, 3], "a and b are equivalent")
    unsure = table(*pairs, contest("b", "c", OPEN))
    assert not unsure.decided, "c may be better than b, which is no worse than a"


def test_an_open_cell_names_the_pair_with_the_least_evidence() -> None:
    words = "a (n1-n2) and c (n3-n4) share no pair of hosts"
    little, more = contest("a", "b", OPEN, 1.5), contest("b", "c", OPEN, 15.0)
    for pairs in permutations((little, more)):
        assert table(*pairs).said == f"not known yet: {little.said}"
        assert table(*pairs).progress == little.progress
    lone = replace(contest("a", "c", NO_COMMON_HOSTS), words=words)
    both = table(little, more, lone)
    assert both.said == f"not known yet: {little.said}; a and c share no pair of hosts"
    assert both.progress == 0.0, "it never gets there without common hosts"
    assert table(lone).said == "not known: a and c share no pair of hosts"


def test_an_open_cell_tells_how_far_the_leader_is_not_how_alike_the_others_are() -> None:
    behind = contest("b", "c", OPEN, 0.3)
    ahead = [replace(contest("a", n, OPEN, e), ahead="a") for n, e in (("b", 6.3), ("c", 4.2))]
    for pairs in permutations((behind, *ahead)):
        found = table(*pairs)
        assert found.said == "not known yet: a is ahead of c, e = 4.2 of 20 needed"
        assert found.progress == ahead[1].progress
    won = table(contest("a", "b", "a"), ahead[1], behind)
    assert won.said == "not known yet: a is ahead of c, e = 4.2 of 20 needed"
    later = table(contest("a", "b", EQUIVALENT), contest("a", "c", "a"), replace(behind, ahead="b"))
    assert later.said == "not known yet: b is ahead of c, e = 0.3 of 20 needed", (
        "nothing of the leader's is open"
    )


def test_a_leader_without_common_hosts_never_gets_there() -> None:
    apart = replace(contest("a", "c", NO_COMMON_HOSTS), words="apart")
    found = table(replace(contest("a", "b", OPEN, 6.0), ahead="a"), apart, contest("b", "c", OPEN, 2.0))
    assert found.progress == 0.0
    assert found.said == "not known yet: a is ahead of b, e = 6 of 20 needed; a and c share no pair of hosts"


def test_verdicts_that_form_a_circle_decide_nothing() -> None:
    found = table(contest("a", "b", "a"), contest("b", "c", "b"), contest("a", "c", "c"))
    assert not found.decided and found.said == "not known: verdicts form a circle"
    assert list(found.ranks) == [2, 2, 2]


def test_each_cell_stands_by_itself_and_costs_do_not_compete() -> None:
    far = replace(contest("a", "b", "b"), cell=replace(CELL, placement="local"))
    cost = replace(contest("a", "direct", COSTS), kind=Kind.REFERENCE)
    found = standings([contest("a", "b", "a"), far, cost])
    assert [(s.cell.placement, s.winner) for s in found] == [("local", "b"), ("remote", "a")]
    assert standings([cost]) == standings([]) == []


# The report


def line_of(text: str, beginning: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(beginning)]
    return " ".join(found.split())


def test_bounds_that_are_not_known_are_dashes_and_null() -> None:
    pair = replace(OPEN_PAIR, ratio=(0.0, math.nan, math.inf), ahead="b")
    found = Evaluation(at=END, findings=[pair], standings=standings([pair]))
    line = line_of(report.as_text(found), "  a - b")
    assert line == "a - b – -100 to – % 0 of 20 0 not known yet, b is ahead –"
    unknown = replace(pair, ratio=(math.nan, math.nan, math.nan))
    line = line_of(report.as_text(replace(found, findings=[unknown])), "  a - b")
    assert line == "a - b – – 0 of 20 0 not known yet, b is ahead –"
    (said,) = report.as_json(found)["comparisons"][0]["pairs"]
    assert said["ratio"] == [0.0, None, None] and said["shift"] == [None, None, None]
    assert (said["since"], said["evidence_since"], said["words"]) == (None, None, None)


def test_an_equivalence_shows_the_evidence_for_it() -> None:
    pair = replace(OPEN_PAIR, verdict=EQUIVALENT, e_value=0.2, e_equivalent=31.0, ratio=(0.99, 1.0, 1.01))
    line = line_of(report.as_text(Evaluation(at=END, findings=[pair])), "  a - b")
    assert "31 of 20" in line and "+0 % -1 to +1 %" in line
    assert "31" not in line_of(
        report.as_text(Evaluation(at=END, findings=[replace(pair, verdict=OPEN)])), "  a - b"
    )


def test_cells_go_in_the_order_of_the_metrics_and_words_are_said_once() -> None:
    names = list(MEASURES)
    pairs = [
        replace(contest(a, b, OPEN), cell=replace(CELL, metric=m, machines="4"), words="evil\x1b[31m")
        for m in reversed(names)
        for a, b in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    found = Evaluation(at=END, findings=pairs, standings=standings(pairs))
    assert [c["metric"] for c in report.as_json(found)["comparisons"]] == names
    text = report.as_text(found)
    assert [line.split()[0] for line in text.splitlines() if ", 4 machines, stamp-64" in line] == names
    assert text.count("evil\\x1b[31m") == len(names) and "\x1b" not in text


@pytest.mark.parametrize(
    ("metric", "estimate", "worse", "said"),
    [
        ("rtt", 1.25, True, "worse than usual since 2027-01-15 08:00Z: +25 %"),
        ("jitter", 0.5, False, "better than usual since 2027-01-15 08:00Z: -50 %"),
        ("loss", 0.02, True, "worse than usual since 2027-01-15 08:00Z: +2.00 %"),
        ("loss", -0.0005, False, "better than usual since 2027-01-15 08:00Z: -0.0500 %"),
        ("tcp_throughput", 0.9, True, "worse than usual since 2027-01-15 08:00Z: -10 %"),
    ],
)
def test_a_level_is_told_as_a_share_and_loss_as_a_difference(
    metric: str, estimate: float, worse: bool, said: str
) -> None:
    change = Change(END, END, worse, estimate)
    found = Evaluation(at=END, levels=[Level(replace(CELL, metric=metric), "gre", HOSTS, change)])
    assert report.as_text(found) == f"{metric} of gre n1 to n2 (stamp-64) is {said}"
    (data,) = report.as_json(found)["changes_of_level"]
    assert (data["change"], data["worse"], data["machines"]) == (estimate, worse, None)


def test_a_counter_grows_by_the_difference_of_its_two_ends() -> None:
    text = grown('c{a="b"}')
    assert text.count('c{a="b"}[$half]') == 2 and text.count("offset $window") == 1
    assert text.endswith(">= 0)"), "one that was started anew has no value"
    more = counted("c", "vigia-exporter")
    assert (
        more.startswith(f"({grown('c')} or ")
        and 'up{job="vigia-exporter"}[$half] offset $window) == 1' in more
    )
    assert np.all([t.count("(") == t.count(")") for t in (text, more)])
