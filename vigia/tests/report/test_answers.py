"""Verdicts on planted effects: winners, losers, equals, what is open, and what failed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from vigia.campaign.hypotheses import Hypothesis
from vigia.report.answers import Answer, Said, capital, evaluate, place, standings, tally
from vigia.report.data import Data, Repetition

BLOCKS = 14


def planted(
    levels: Mapping[str, float], *, blocks: int = BLOCKS, noise: float = 0.02, seed: int = 1, **factors: Any
) -> list[Repetition]:
    """A repetition of each level in each block: its value with some noise, and a drift that all of a block share."""
    rng = np.random.default_rng(seed)
    made = []
    for block in range(blocks):
        drift = 1 + 0.5 * block
        for level, value in levels.items():
            number = value * drift * math.exp(rng.normal(0, noise))
            made.append(Repetition(len(made), {"path": level, **factors}, {"rtt": np.array([number])}, block))
    return made


def hypothesis(**more: Any) -> Hypothesis:
    usual = {
        "name": "delay", "claim": "Delay differs.", "metric": "rtt", "unit": "s", "test": {"kind": "pairs", "factor": "path"},
        "smallest_effect": 0.3, "margin": 0.05, "spread": 0.1,
    }  # fmt: skip
    return Hypothesis.model_validate({**usual, **more})


def judged(repetitions: list[Repetition], **more: Any) -> list[Answer]:
    return evaluate([hypothesis(**more)], Data(repetitions, {"rtt": "s"}), 0.95)["delay"]


def test_a_winner_and_a_loser_and_what_lies_between() -> None:
    found = judged(planted({"slow": 4.0, "quick": 1.0, "middle": 2.0}))
    assert [(f.winner, f.loser) for f in found] == [
        ("quick", "slow"),
        ("middle", "slow"),
        ("quick", "middle"),
    ]
    (standing,) = standings(found)
    assert (standing.winners, standing.losers) == (["quick"], ["slow"])
    assert standing.shown == "quick wins; slow loses"
    assert found[0].effect[0] == pytest.approx(4.0, rel=0.02)
    assert found[0].shown == "× 3.99 [3.92, 4.10]"
    assert found[0].verdict == "quick wins, slow loses"


def test_a_loser_is_named_where_nobody_wins() -> None:
    """Two are alike, and the third is worse: the winner is open, the loser is not."""
    (standing,) = standings(judged(planted({"bad": 2.0, "one": 1.0, "other": 1.005})))
    assert (standing.winners, standing.losers) == ([], ["bad"])
    assert standing.shown == "bad loses"


def test_higher_is_better_where_it_is() -> None:
    (f,) = judged(planted({"a": 2.0, "b": 1.0}), better="higher")
    assert (f.winner, f.loser, f.outcome) == ("a", "b", Said.ABOVE)


def test_what_lies_within_the_margin_is_equivalent_and_no_win() -> None:
    """A difference of one percent that every block shows: significant, and too small to matter."""
    (f,) = judged(planted({"a": 1.01, "b": 1.0}, noise=0.001))
    assert f.p_value < 0.001
    assert (f.outcome, f.winner, f.verdict) == (Said.EQUAL, None, "equivalent")
    assert standings([f])[0].shown == "equivalent"
    assert judged(planted({"a": 1.01, "b": 1.0}, noise=0.001), margin=0.0)[0].winner == "b"


def test_what_the_noise_hides_is_open() -> None:
    (f,) = judged(planted({"a": 1.05, "b": 1.0}, noise=0.3))
    assert (f.outcome, f.winner) == (Said.OPEN, None)
    assert standings([f])[0].shown == "undecided"


def test_too_few_blocks_decide_nothing_and_show_no_interval() -> None:
    (f,) = judged(planted({"a": 9.0, "b": 1.0}, blocks=5))
    assert f.outcome is Said.TOO_FEW
    assert f.verdict == "too few repetitions: 5, and 6 are needed"
    assert f.shown == "about × 9.01"
    (one,) = judged(planted({"a": 9.0, "b": 1.0}, blocks=1))
    assert (one.outcome, one.shown) == (Said.TOO_FEW, "–")
    assert judged(planted({"a": 9.0, "b": 1.0}, blocks=6))[0].winner == "b"


def test_drift_between_blocks_cancels_out() -> None:
    """The drift is sevenfold, the effect ten percent: within a block it is seen."""
    (f,) = judged(planted({"a": 1.1, "b": 1.0}, noise=0.005))
    assert f.winner == "b"
    assert f.effect[0] == pytest.approx(1.1, rel=0.01)


def silent(repetitions: list[Repetition], path: str, blocks: int, value: float = 0.0) -> list[Repetition]:
    """Nothing arrived on a path in the first blocks."""
    return [
        Repetition(r.run, r.factors, {"rtt": np.array([value])}, r.block)
        if r.factors["path"] == path and r.block < blocks
        else r
        for r in repetitions
    ]


def test_a_cell_whose_measurement_failed_is_not_ranked() -> None:
    found = judged(silent(planted({"a": 1.0, "b": 2.0, "c": 3.0}), "c", 13), better="higher", unit="bit/s")
    assert [f.outcome for f in found] == [Said.BELOW, Said.FAILED, Said.FAILED]
    assert found[1].verdict == "measurement failed: c: rtt 0 bit/s in 13 of 14 repetitions"
    (standing,) = standings(found)
    assert "not ranked: c: rtt 0 bit/s in 13 of 14 repetitions" in standing.shown
    assert standing.winners == [], "who beats only those that were measured has not won"


def test_a_few_failed_repetitions_are_left_out() -> None:
    found = judged(silent(planted({"a": 1.0, "b": 2.0}), "b", 2))
    assert found[0].winner == "a"
    assert found[0].values.size == BLOCKS - 2


def test_loss_of_everything_is_a_failure_where_it_is_said_to_be() -> None:
    losses = {"a": 0.02, "b": 0.01}
    rows = [
        Repetition(r.run, r.factors, {"rtt": np.minimum(r.samples["rtt"], 1.0)}, r.block)
        for r in planted(losses)
    ]
    lost = silent(rows, "a", 14, 1.0)
    scale = {"scale": "difference", "unit": "ratio", "smallest_effect": 0.05, "margin": 0.001}
    assert judged(lost, fails_at=1.0, **scale)[0].verdict == (
        "measurement failed: a: rtt 100 % in 14 of 14 repetitions"
    )
    assert judged(lost, **scale)[0].winner == "b", "else it is the worst of losses"


def test_what_was_never_measured_failed() -> None:
    rows = [
        Repetition(r.run, r.factors, {} if r.factors["path"] == "b" else r.samples, r.block)
        for r in planted({"a": 1.0, "b": 2.0})
    ]
    assert judged(rows)[0].verdict == "measurement failed: b: no rtt in 14 of 14 repetitions"
    nothing = [Repetition(r.run, r.factors, {}, r.block) for r in rows]
    assert evaluate([hypothesis()], Data(nothing, {}), 0.95) == {}, (
        "a metric that nobody has was not measured"
    )


def bounded(value: float, spread: float = 0.01) -> Answer:
    rng = np.random.default_rng(7)
    rows = [
        Repetition(b, {"path": "a"}, {"rtt": np.array([value + rng.uniform(-spread, spread)])}, b)
        for b in range(8)
    ]
    return judged(rows, test={"kind": "bound", "at_least": 0.9}, scale="difference", unit="ratio")[0]


def test_a_bound_is_reached_or_not_or_open() -> None:
    assert (bounded(0.95).outcome, bounded(0.95).verdict) == (Said.ABOVE, "reached")
    assert bounded(0.85).verdict == "not reached"
    assert bounded(0.9).verdict == "undecided"
    assert bounded(0.95).effect[0] == pytest.approx(0.95, abs=0.01), "the value, not its distance"
    assert bounded(0.95).shown.endswith("%")


def test_a_trend_grows_by_so_much_for_ten_times_as_many() -> None:
    made = planted({"1": 1.0, "10": 1.2, "100": 1.44})
    test = {"kind": "trend", "factor": "path", "at": {"1": 1, "10": 10, "100": 100}}
    (f,) = judged(made, test=test)
    assert f.verdict == "grows"
    assert f.effect[0] == pytest.approx(1.2, rel=0.02)
    (flat,) = judged(planted({"1": 1.0, "10": 1.0, "100": 1.0}), test=test)
    assert flat.verdict == "equivalent"


def test_an_interaction_is_a_ratio_of_ratios() -> None:
    made = planted({"plain": 1.0, "bypass": 0.5, "secured": 3.0, "both": 0.75})
    terms = [
        {"metric": "rtt", "weight": w, "where": {"path": p}}
        for p, w in (("both", 1), ("bypass", -1), ("secured", -1), ("plain", 1))
    ]
    (f,) = judged(made, test={"kind": "contrast", "terms": terms})
    assert f.verdict == "falls"
    assert f.effect[0] == pytest.approx(0.5, rel=0.03), "1.5 times beside 3 times"


def test_p_values_are_adjusted_over_the_family() -> None:
    data = Data(planted({"a": 1.0, "b": 1.05}), {})
    alone = evaluate([hypothesis()], data, 0.95)["delay"][0]
    two = [hypothesis(family="f"), hypothesis(name="again", family="f")]
    found = evaluate(two, data, 0.95)
    assert found["delay"][0].adjusted == pytest.approx(2 * alone.p_value)
    wider = found["delay"][0]
    assert wider.upper - wider.lower >= alone.upper - alone.lower


def test_alike_is_rarely_called_different() -> None:
    """Of 200 campaigns without any effect at most one in twenty names a winner, margin or not."""
    named = 0
    for seed in range(200):
        found = judged(planted({"a": 1.0, "b": 1.0, "c": 1.0}, noise=0.1, seed=seed), margin=0.0)
        named += any(f.winner for f in found)
    assert named <= 0.05 * 200 + 6


def test_strata_are_ranked_each_and_named_by_what_differs() -> None:
    rows = planted({"a": 1.0, "b": 2.0}, machines=2, rate="full") + planted(
        {"a": 1.0, "b": 1.0}, machines=8, rate="full"
    )
    found = judged(rows)
    assert [place(f.question, found) for f in found] == ["2", "8"]
    ranked = standings(found)
    assert tally(ranked) == (
        "Of 2 rankings, a wins 1 and loses 0; b wins 0 and loses 1; 1 is equivalent within the margin."
    )
    assert tally(ranked[:1]).startswith("Of 1 ranking, ")
    assert tally([]) == "Nothing was ranked."
    nobody = standings(judged(planted({"a": 1.0, "b": 2.0}, blocks=2)))
    assert tally(nobody) == "Of 1 ranking, nobody wins or loses; 1 is of too few repetitions to decide."


def test_a_sentence_begins_with_a_capital() -> None:
    assert (capital("a b"), capital("")) == ("A b", "")
