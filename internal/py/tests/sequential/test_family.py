"""Many pairs: what is true of each in any order, what a restart keeps, what is said of all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vigia_statistics.sequential import QUESTIONS, Family, LossPair, Pair, Said, Verdict, closed

START = 1_800_000_000.0
LEVELS = {"bridge": 1.0, "gre": 1.0, "vxlan": 1.3}
KEYS = [
    f"{m} {a}/{b}"
    for m in ("rtt", "jitter", "loss")
    for a, b in (("bridge", "gre"), ("bridge", "vxlan"), ("gre", "vxlan"))
]


def _watched(
    keys: list[str], minutes: int, seed: int = 1, judged: bool = False
) -> tuple[Family, Mapping[str, Verdict]]:
    """Three paths on three metrics, fed in the order of ``keys``; noise and losses are by path, not by order."""
    rng, family = np.random.default_rng(seed), Family()
    said: Mapping[str, Verdict] = {}
    for minute in range(1, minutes + 1):
        at = START + 60.0 * minute
        values = {p: v * float(np.exp(0.2 * rng.normal())) for p, v in LEVELS.items()}
        lost = {p: float(rng.binomial(3000, 0.002)) for p in LEVELS}
        for key in keys:
            metric, _, pair = key.partition(" ")
            a, b = pair.split("/")
            if metric == "loss":
                family.watch_loss(key, QUESTIONS[metric], START).update_counts(
                    at, lost[a], 3000.0, lost[b], 3000.0
                )
            else:
                family.watch(key, QUESTIONS[metric], START).update(at, values[a], values[b])
        if judged or minute == minutes:
            said = family.judge(at)
    return family, said


def test_the_slow_one_is_named_against_both_and_the_others_are_not() -> None:
    _, said = _watched(KEYS, 120)
    for metric in ("rtt", "jitter"):
        assert said[f"{metric} bridge/vxlan"].said is Said.A
        assert said[f"{metric} gre/vxlan"].said is Said.A
        assert said[f"{metric} bridge/gre"].said is not Said.A
    assert all(v.said is Said.UNKNOWN for k, v in said.items() if k.startswith("loss"))


def test_adjusted_values_are_those_of_closed_testing() -> None:
    family, said = _watched(KEYS, 20)
    alone = {k: p.evidence() for k, p in family.pairs.items()}
    assert [said[k].adjusted_e_value for k in alone] == closed([e.e_value for e in alone.values()]).tolist()
    assert [said[k].e_equivalent for k in alone] == closed([e.e_equivalent for e in alone.values()]).tolist()
    assert all(said[k].e_value == e.e_value for k, e in alone.items())


@settings(max_examples=6)
@given(st.permutations(KEYS))
def test_the_order_of_pairs_does_not_matter(keys: list[str]) -> None:
    _, said = _watched(keys, 30, judged=True)
    _, other = _watched(KEYS, 30, judged=True)
    for key in KEYS:
        mine, theirs = said[key], other[key]
        assert (mine.said, mine.since, mine.ahead) == (theirs.said, theirs.since, theirs.ahead)
        assert mine.adjusted_e_value == pytest.approx(theirs.adjusted_e_value, rel=1e-9)


def _fits(said: Verdict, margin: float) -> bool:
    """Whether the interval says what the verdict says."""
    if said.said is Said.UNKNOWN:
        named = not said.lower < 1.0 < said.upper
        alike = 1.0 / (1.0 + margin) <= said.lower and said.upper <= 1.0 + margin
        return not named and not alike
    if said.said is Said.EQUIVALENT:
        return 1.0 / (1.0 + margin) <= said.lower <= said.upper <= 1.0 + margin
    return said.upper <= 1.0 if said.said is Said.A else said.lower >= 1.0


@pytest.mark.parametrize("seed", range(12))
def test_an_interval_says_what_the_verdict_of_a_family_says(seed: int) -> None:
    """Pairs from alike to far apart, all that is between too, judged once: nothing is latched from before."""
    rng, family = np.random.default_rng(seed), Family()
    minutes = int(rng.integers(8, 600))
    for k in range(24):
        pair = family.watch(str(k), QUESTIONS["rtt"], START)
        apart, noise = (0.0, 0.02, 0.05, 0.1, 0.3, 2.0)[k % 6], (0.01, 0.03, 0.1, 0.3)[k // 6]
        for minute in range(1, minutes):
            a, b = np.exp(rng.normal((apart, 0.0), noise))
            pair.update(START + 60.0 * minute, float(a), float(b))
    said = family.judge(START + 60.0 * minutes)
    wrong = {k: (v.said, v.lower, v.upper) for k, v in said.items() if not _fits(v, QUESTIONS["rtt"].margin)}
    assert not wrong
    assert len({v.said for v in said.values()}) > 1, "one kind of verdict shows nothing"
    assert all(v.lower <= v.estimate <= v.upper for v in said.values())


def test_an_interval_is_as_wide_as_a_crowd_asks_for() -> None:
    rng = np.random.default_rng(5)
    values = [(float(a), float(b)) for a, b in np.exp(rng.normal((0.05, 0.0), 0.1, (30, 2)))]
    spans = []
    for others in (0, 200):
        family = Family()
        for key in ("it", *map(str, range(others))):
            pair = family.watch(key, QUESTIONS["rtt"], START)
            for minute, (a, b) in enumerate(values, 1):
                pair.update(START + 60.0 * minute, *((a, b) if key == "it" else (1.0, 1.0 + 1e-9 * minute)))
        it = family.judge(START + 60.0 * 40)["it"]
        assert it.lower < it.estimate < it.upper
        spans.append(math.log(it.upper / it.lower))
    assert spans[0] < spans[1] < math.inf


def test_a_crowd_of_equals_raises_what_is_needed() -> None:
    """The same evidence that names one alone does not in a crowd where nothing else differs."""
    rng = np.random.default_rng(3)
    alone, crowd = Family(), Family()
    minute, one = 0, None
    while one is None or one.said is Said.UNKNOWN:
        minute += 1
        at = START + 60.0 * minute
        a, b = (float(v) for v in np.exp(0.2 * rng.normal(size=2)))
        alone.watch("x", QUESTIONS["rtt"], START).update(at, a, 1.3 * b)
        crowd.watch("x", QUESTIONS["rtt"], START).update(at, a, 1.3 * b)
        for other in range(40):
            p, q = (float(v) for v in np.exp(0.2 * rng.normal(size=2)))
            crowd.watch(f"other {other}", QUESTIONS["rtt"], START).update(at, p, q)
        one = alone.judge(at)["x"]
    among = crowd.judge(START + 60.0 * minute)["x"]
    assert one.said is Said.A and minute < 240
    assert one.e_value == among.e_value == one.adjusted_e_value >= 20.0
    assert among.adjusted_e_value < 0.2 * one.adjusted_e_value
    assert among.said is Said.UNKNOWN


def test_a_restart_in_the_middle_changes_nothing() -> None:
    family, said = _watched(KEYS, 40, judged=True)
    data = json.dumps(family.as_data(), allow_nan=False)
    again = Family.from_data(json.loads(data))
    assert json.dumps(again.as_data()) == data and again.alpha == family.alpha
    assert all(v.since == said[k].since for k, v in again.judge(START + 2400.0).items())
    at = START + 2460.0
    for f in (family, again):
        for key, pair in f.pairs.items():
            if isinstance(pair, LossPair):
                assert pair.update_counts(at, 9.0, 3000.0, 1.0, 3000.0)
            else:
                assert pair.update(at, 1.0, 1.0 if "gre" in key else 2.0)
    assert repr(family.judge(at)) == repr(again.judge(at))


def test_watching_again_keeps_what_is_known_unless_another_question_is_asked() -> None:
    family, _ = _watched(KEYS, 10)
    pair = family.pairs["rtt bridge/gre"]
    assert family.watch("rtt bridge/gre", QUESTIONS["rtt"], START + 9e5) is pair
    other = family.watch("rtt bridge/gre", QUESTIONS["rtt_p99"], START + 9e5)
    assert other is not pair and (other.started, other.evidence().windows) == (START + 9e5, 0)
    assert isinstance(family.watch("loss bridge/gre", QUESTIONS["loss"], START), Pair)
    assert not isinstance(family.pairs["loss bridge/gre"], LossPair)
    family.forget("rtt bridge/gre")
    family.forget("never watched")
    assert "rtt bridge/gre" not in family.judge(START + 9e5)


def test_an_empty_family_says_nothing() -> None:
    assert Family().judge(START) == {}
    assert Family.from_data(json.loads(json.dumps(Family().as_data()))).judge(START) == {}


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, math.nan])
def test_an_alpha_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha: .* is outside"):
        Family(alpha)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version: is not 1"),
        ({"alpha": "much"}, "alpha: 'much'"),
        ({"pairs": []}, "pairs: is not an object"),
        ({"pairs": {"x": 1}}, "pairs.x: question: is not an object of"),
        ({"pairs": {"x": {"question": {"better": "lower"}}}}, "pairs.x: question: is not an object of"),
    ],
)
def test_damaged_state_is_refused_with_the_place(change: dict[str, object], said: str) -> None:
    family, _ = _watched(KEYS[:1], 2)
    with pytest.raises(ValueError, match=said):
        Family.from_data({**family.as_data(), **change})


def test_damage_in_a_pair_is_told_by_its_key() -> None:
    family, _ = _watched(KEYS, 2)
    data = json.loads(json.dumps(family.as_data()))
    data["pairs"]["loss bridge/gre"]["engine"]["sides"]["side"] = []
    with pytest.raises(ValueError, match=r"pairs.loss bridge/gre: sides.side: is not a list of 1 numbers"):
        Family.from_data(data)
    data["pairs"]["loss bridge/gre"]["question"]["better"] = "sideways"
    with pytest.raises(ValueError, match=r"pairs.loss bridge/gre: 'sideways'"):
        Family.from_data(data)
