"""E-processes against their definitions: integrals over priors, expectations under the null, and duality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from vigia_statistics.samples import Floats
from vigia_statistics.sequential import grounds
from vigia_statistics.sequential.counts import MEMORY, Coin
from vigia_statistics.sequential.grounds import Bounded, Ground, Studentised


def _studentised(x: Floats, scale: float) -> Studentised:
    """Of independent windows: all of them are effective."""
    n = np.array([float(x.size)])
    return Studentised(np.array([x.mean()]), np.array([x.var()]), n, n, scale, 0.0)


def _by_integration(x: Floats, scale: float) -> float:
    """The Bayes factor itself: over effect and deviation, prior normal times 1 / deviation."""

    s0 = float(np.sqrt((x**2).mean()))
    deviations = s0 * np.exp(np.linspace(-3.0, 3.0, 1201))[:, None, None]
    effects = scale * np.linspace(-7.0, 7.0, 1201)
    null = stats.norm.logpdf(x, 0.0, deviations).sum(axis=2)
    # Of the values only their number, mean and squares matter; effects are in deviations.
    means = x.mean() / deviations[:, :, 0]
    gained = x.size * (means * effects - effects**2 / 2.0)
    reference = null.max()
    under = np.exp(null[:, 0] - reference)
    over = (under[:, None] * np.exp(gained) * stats.norm.pdf(effects, 0.0, scale)).sum(axis=1)
    return float(over.sum() * (effects[1] - effects[0]) / under.sum())


@pytest.mark.parametrize(("n", "shift", "scale"), [(3, 2.0, 0.5), (8, 0.5, 0.5), (12, 0.0, 1.0)])
def test_the_t_tests_e_value_is_the_bayes_factor(n: int, shift: float, scale: float) -> None:
    x = np.random.default_rng(n).normal(shift, 1.3, n)
    ground = _studentised(x, scale)
    assert math.exp(float(ground.log_e(np.abs(ground.mean))[0])) == pytest.approx(
        _by_integration(x, scale), rel=1e-3
    )


def test_its_mean_at_any_stopping_time_is_at_most_one() -> None:
    """Of independent normal windows: at fixed times it is 1, at greedy ones no more. Standard errors are told."""
    rng = np.random.default_rng(1)
    x = rng.normal(0.0, 2.5, (200_000, 12))
    n = np.arange(1, 13, dtype=float)
    mean = x.cumsum(axis=1) / n
    variance = np.maximum((x**2).cumsum(axis=1) / n - mean**2, 0.0)
    e = np.exp(Studentised(mean, variance, np.broadcast_to(n, x.shape), n, 0.25, 0.0).log_e(np.abs(mean)))
    for fixed in (3, 7, 11):
        assert e[:, fixed].mean() == pytest.approx(1.0, abs=4.0 * e[:, fixed].std() / math.sqrt(len(e)))
    for target in (1.05, 1.5, 3.0):
        first = np.where((e >= target).any(axis=1), (e >= target).argmax(axis=1), 11)
        stopped = e[np.arange(len(e)), first]
        assert stopped.mean() <= 1.0 + 4.0 * stopped.std() / math.sqrt(len(e))
        assert (e.max(axis=1) >= target).mean() <= 1.0 / target, "Ville's inequality"


def test_a_look_at_a_bounded_mean_is_an_e_value_whatever_its_parts_do() -> None:
    ground = Bounded(np.zeros(1), 0.5, 0.0)

    m = np.linspace(-20.0, 20.0, 20_001)
    log_e = ground.log_e(np.abs(m))

    def expected(deviation: float) -> float:
        return float(np.exp(log_e + stats.norm.logpdf(m, 0.0, deviation)).sum() * (m[1] - m[0]))

    assert expected(0.5) == pytest.approx(1.0, rel=1e-3)
    assert expected(0.4) < expected(0.5)
    two_points = math.exp(float(ground.log_e(np.array([0.5]))[0]))
    assert two_points <= 1.0, "plus or minus the noise is sub-Gaussian of that scale"


GROUNDS: list[Ground] = [
    Studentised(np.array([0.3]), np.array([0.18]), np.array([40.0]), np.array([50.0]), 0.2, math.log(0.5)),
    Studentised(np.array([0.3]), np.array([0.18]), np.array([40.0]), np.array([50.0]), 0.2, 0.0, rare=0.1),
    Bounded(np.array([2.0]), 0.5, math.log(0.04)),
]


@pytest.mark.parametrize("ground", GROUNDS)
def test_intervals_end_where_the_evidence_is_enough(ground: Ground) -> None:
    lower, upper = grounds.covering([ground], 0.05)
    for end in (float(lower[0]), float(upper[0])):
        assert float(grounds.against([ground], end)[0]) == pytest.approx(math.log(20.0), abs=1e-9)
    assert float(grounds.against([ground], float(ground.mean[0]))[0]) < 0.5


def test_the_interval_of_several_is_where_all_agree_and_the_verdict_says_the_same() -> None:
    rng, agreed = np.random.default_rng(2), 0
    for _ in range(200):
        some: list[Ground] = [
            Studentised(
                *(np.array([v]) for v in (rng.normal(0, 0.3), 0.2, rng.uniform(1, 90), 90.0)),
                0.2,
                math.log(w),
            )
            for w in (0.6, 0.4)
        ]
        each = [grounds.covering([g], 0.05) for g in some]
        lower, upper = grounds.covering(some, 0.05)
        if max(low for low, _ in each) > min(high for _, high in each):
            assert (lower, upper) == (min(low for low, _ in each), max(high for _, high in each))
            continue
        agreed += 1
        outside = not float(lower[0]) <= 0.0 <= float(upper[0])
        assert outside == (float(grounds.against(some, 0.0)[0]) >= math.log(20.0))
    assert agreed > 100


def test_equivalence_is_the_weaker_of_two_one_sided_tests() -> None:
    n = np.array([4000.0])
    for mean, bound in ((0.01, 0.05), (-0.02, 0.05)):
        ground = Studentised(np.array([mean]), np.array([0.02]), n, n, 0.2, 0.0)
        ends = [float(grounds.against([ground], end)[0]) for end in (-bound, bound)]
        assert float(grounds.within([ground], bound)[0]) == pytest.approx(min(ends))
    outside = Studentised(np.array([0.08]), np.array([0.02]), n, n, 0.2, 0.0)
    assert float(grounds.within([outside], 0.05)[0]) <= 0.0, (
        "a mean beyond the margin is no evidence for equivalence"
    )
    assert float(grounds.beyond([outside], 0.05)[0]) > math.log(20.0)
    assert float(grounds.beyond([ground], 0.05)[0]) <= 0.0


def test_before_the_first_window_there_is_no_evidence_and_no_interval() -> None:
    nothing = Studentised(np.array([np.nan]), np.array([0.0]), np.zeros(1), np.zeros(1), 0.2, math.log(0.6))
    unseen = Bounded(np.array([np.nan]), 0.5, math.log(0.04))
    assert float(grounds.against([nothing, unseen], 0.0)[0]) <= 0.0
    assert [float(v[0]) for v in grounds.covering([nothing, unseen], 0.05)] == [-math.inf, math.inf]


def test_evidence_is_finite_however_strong() -> None:
    n = np.array([1e6])
    sure = Studentised(np.array([1.0]), np.array([1e-12]), n, n, 0.2, 0.0)
    assert math.exp(float(grounds.against([sure], 0.0)[0])) == pytest.approx(1e100)


@pytest.mark.parametrize("last", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("gap", [1, 2, 30])
def test_no_bet_on_the_coin_gains_under_its_null(last: float, gap: int) -> None:
    """Exactly: over both outcomes, for every chance that the null allows, each bettor's fortune does not grow."""
    chance = (1.0 + MEMORY**gap) / 2.0 if last == 1.0 else 0.5
    outcomes = []
    for came in (1.0, 0.0):
        coin = Coin(1)
        coin.bet(np.array([came]), np.ones(1), np.array([chance]))
        outcomes.append(np.exp(coin.fortunes[:, 0]))
    for p in np.linspace(0.0, chance, 11):
        assert (p * outcomes[0] + (1.0 - p) * outcomes[1] <= 1.0 + 1e-12).all()
    coin = Coin(1)
    coin.bet(np.ones(1), np.zeros(1), np.array([chance]))
    assert float(coin.log_e[0]) == pytest.approx(0.0), "a minute in which the paths do not differ is no throw"


def test_grounds_that_exclude_each_other_leave_what_is_between_them() -> None:
    """A look that takes the noise for less than it is, far from what all minutes show."""
    steady = _studentised(np.random.default_rng(4).normal(0.0, 0.1, 400), 1.0 / 7.0)
    look = Bounded(np.array([4.0]), 0.1, math.log(0.03))
    (alone, _), (_, top) = grounds.covering([steady], 0.05), grounds.covering([look], 0.05)
    lower, upper = grounds.covering([steady, look], 0.05)
    assert (lower, upper) == (alone, top) and lower < 0.0 and upper > 4.0
    unseen = Bounded(np.array([math.nan]), 0.1, math.log(0.03))
    assert grounds.covering([steady, look, unseen], 0.05) == (alone, top)
