"""What is asked of a plan's cells, how sure each answer must be, and which plans cannot give it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vigia.campaign import design
from vigia.campaign.hypotheses import Cell, Hypothesis, families
from vigia.campaign.model import Campaign
from vigia.errors import VigiaError

CELLS: list[Cell] = [
    {"path": path, "machines": machines, "protocol": protocol}
    for path in ("a", "b", "c")
    for machines in (2, 4)
    for protocol in ("tcp", "udp")
]


def hypothesis(**more: Any) -> Hypothesis:
    usual = {
        "name": "delay",
        "claim": "Delay differs.",
        "metric": "rtt",
        "test": {"kind": "pairs", "factor": "path"},
        "smallest_effect": 0.3,
        "margin": 0.05,
        "spread": 0.1,
    }
    return Hypothesis.model_validate({**usual, **more})


def test_every_pair_of_levels_where_all_else_is_equal() -> None:
    asked = hypothesis(where={"protocol": ["tcp"]}).questions(CELLS)
    assert [(q.first, q.second, q.stratum["machines"]) for q in asked] == [
        (first, second, machines)
        for machines in (2, 4)
        for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    assert {q.stratum["protocol"] for q in asked} == {"tcp"}
    (first, *_) = asked
    assert [(p.weight, p.metric, p.factors) for p in first.parts] == [
        (1.0, "rtt", {"path": "a", "machines": 2, "protocol": "tcp"}),
        (-1.0, "rtt", {"path": "b", "machines": 2, "protocol": "tcp"}),
    ]
    assert first.deviation == pytest.approx(0.1 * math.sqrt(2))


def test_each_level_beside_a_reference() -> None:
    asked = hypothesis(test={"kind": "pairs", "factor": "path", "reference": "c"}).questions(CELLS)
    assert {(q.first, q.second) for q in asked} == {("a", "c"), ("b", "c")}
    assert len(asked) == 2 * 4
    none = hypothesis(test={"kind": "pairs", "factor": "path", "reference": "z"})
    assert none.questions(CELLS) == [], "a reference that was not measured"


def test_levels_are_compared_as_they_are_written() -> None:
    """Records have numbers where campaign files may have text."""
    text, number = (hypothesis(where={"machines": [level]}).questions(CELLS) for level in ("2", 2))
    assert [q.parts for q in text] == [q.parts for q in number]
    assert len(text) == 6


def test_a_trend_is_the_slope_for_ten_times_as_much() -> None:
    h = hypothesis(test={"kind": "trend", "factor": "rules", "at": {"one": 1, "10": 10, "1000": 1000}})
    cells: list[Cell] = [{"rules": r, "size": 64} for r in ("one", 10, 1000, "full")]
    (q,) = h.questions(cells)
    grows = {"one": 5.0, "10": 7.0, "1000": 11.0}  # two for each decade
    assert sum(p.weight * grows[str(p.factors["rules"])] for p in q.parts) == pytest.approx(2.0)
    assert sum(p.weight for p in q.parts) == pytest.approx(0.0)
    assert h.questions(cells[:2]) == [], "two sizes are no trend"


def test_a_contrast_names_its_cells() -> None:
    terms = [
        {"metric": "large", "weight": 1, "where": {"path": "a", "machines": 2, "protocol": "tcp"}},
        {"metric": "small", "weight": -1, "where": {"path": "b", "machines": 2, "protocol": "tcp"}},
    ]
    (q,) = hypothesis(test={"kind": "contrast", "terms": terms}).questions(CELLS)
    assert [(p.metric, p.weight, p.factors["path"]) for p in q.parts] == [
        ("large", 1.0, "a"),
        ("small", -1.0, "b"),
    ]
    vague = [{**terms[0], "where": {"path": "a"}}, terms[1]]
    assert hypothesis(test={"kind": "contrast", "terms": vague}).questions(CELLS) == [], "four cells, not one"


def test_a_bound_is_asked_of_every_cell() -> None:
    h = hypothesis(test={"kind": "bound", "at_least": 0.9}, scale="difference")
    assert len(h.questions(CELLS)) == len(CELLS)
    assert h.confidence(12, 0.95) == pytest.approx(0.9), "one-sided, and not corrected: all must reach it"


def test_all_intervals_of_a_family_hold_together() -> None:
    alone, first, second = (
        hypothesis(),
        hypothesis(name="one", family="both"),
        hypothesis(name="two", family="both", where={"protocol": ["tcp"]}),
    )
    found = {h.name: (len(questions), size) for h, questions, size in families([alone, first, second], CELLS)}
    assert found == {"delay": (12, 12), "one": (12, 18), "two": (6, 18)}
    assert alone.confidence(12, 0.95) == pytest.approx(1 - 0.05 / 12)


def test_effects_for_people_and_for_the_tests() -> None:
    ratio = hypothesis()
    assert (ratio.shown(0.25), ratio.scaled(0.25)) == ("25.0 %", pytest.approx(math.log(1.25)))
    points = hypothesis(scale="difference", unit="ratio")
    assert (points.shown(0.05), points.scaled(0.05)) == ("5 points", 0.05)
    assert hypothesis(scale="difference", unit="s").shown(0.002) == "2.00 ms"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"smallest_effect": 0.05}, "is not larger than margin; write a larger one"),
        ({"spread": 0}, "greater than 0"),
        ({"test": {"kind": "guess"}}, "'pairs', 'trend', 'contrast', 'bound'"),
        ({"test": {"kind": "trend", "factor": "rules", "at": {"1": 1, "2": 2}}}, "at least 3 items"),
        ({"reduce": "largest"}, "'mean', 'median', 'jitter' or 'lost'"),
    ],
)
def test_mistakes_are_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hypothesis(**more)


# --- what a plan can find ---


def test_a_plan_knows_its_power_and_what_it_lacks() -> None:
    (few,) = design.abilities([hypothesis()], CELLS, 8, 0.95)
    assert (few.questions, few.power, few.enough) == (12, 0.0, False), (
        "8 blocks cannot decide 12 comparisons at all"
    )
    assert few.needed is not None
    (enough,) = design.abilities([hypothesis()], CELLS, few.needed, 0.95)
    assert enough.enough
    assert enough.power >= design.POWER
    (one_less,) = design.abilities([hypothesis()], CELLS, few.needed - 1, 0.95)
    assert not one_less.enough


def test_what_asks_nothing_of_a_plan_is_left_out() -> None:
    assert design.abilities([hypothesis(where={"protocol": ["sctp"]})], CELLS, 9, 0.95) == []


def test_a_plan_that_cannot_separate_is_refused() -> None:
    found = design.abilities([hypothesis(), hypothesis(name="loud", spread=50.0)], CELLS, 9, 0.95)
    with pytest.raises(VigiaError) as refused:
        design.check("mine", found)
    text = str(refused.value)
    assert (
        "campaign mine cannot separate what it asks: delay (12 comparisons) finds an effect of 30.0 %" in text
    )
    assert "in 9 repetitions, not 0.8: 1" in text
    assert "loud (12 comparisons)" in text
    assert "200 repetitions would not do" in text
    design.check("mine", design.abilities([hypothesis()], CELLS, 40, 0.95))


# --- in a campaign ---

ABOUT = {"version": 1, "name": "t", "title": "T", "question": "Q?", "study": "overlays", "topology": "e1"}
PLAN = {"designs": [{"factors": {"path": ["a", "b"]}}], "stop": {"repetitions": 2}}


def test_a_campaign_has_the_sizes_that_are_written() -> None:
    campaign = Campaign.model_validate({**ABOUT, "smoke": PLAN, "full": PLAN})
    assert campaign.sizes == ["smoke", "full"]
    assert campaign.plan("full").stop.repetitions == 2
    with pytest.raises(
        VigiaError, match="campaign t has no standard size; run it with --size smoke or --size full"
    ):
        campaign.plan("standard")
    with pytest.raises(ValueError, match="is missing, as are smoke and full; write at least one size"):
        Campaign.model_validate(ABOUT)


def test_hypotheses_have_names_of_their_own() -> None:
    twice = [hypothesis().model_dump(), hypothesis().model_dump()]
    with pytest.raises(ValueError, match="has a name twice; give each hypothesis its own"):
        Campaign.model_validate({**ABOUT, "standard": PLAN, "hypotheses": twice})
