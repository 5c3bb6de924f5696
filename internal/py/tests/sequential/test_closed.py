"""Closed testing with averages: what the definition says, in any order."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vigia_statistics.sequential import closed
from vigia_statistics.sequential.family import required

E_VALUES = st.lists(st.floats(0.0, 1e100), max_size=7)


def _by_definition(e: list[float]) -> list[float]:
    """The smallest average of all sets that a value is in."""
    sets = [s for k in range(1, len(e) + 1) for s in combinations(range(len(e)), k)]
    return [min(sum(e[j] for j in s) / len(s) for s in sets if i in s) for i in range(len(e))]


@given(E_VALUES)
def test_it_is_the_smallest_average_of_all_sets(e: list[float]) -> None:
    assert closed(e) == pytest.approx(_by_definition(e), rel=1e-9)


@given(E_VALUES, st.randoms())
def test_order_does_not_matter(e: list[float], random: object) -> None:
    order = np.random.default_rng(len(e)).permutation(len(e))
    shuffled = closed([e[i] for i in order])
    assert shuffled == pytest.approx(closed(e)[order], rel=1e-12)


@given(E_VALUES)
def test_nothing_is_gained_and_ranks_are_kept(e: list[float]) -> None:
    found = closed(e)
    assert (found <= np.asarray(e) * (1.0 + 1e-12)).all()
    order = np.argsort(e, kind="stable")
    assert (np.diff(found[order]) >= -1e-9 * np.abs(found[order][1:])).all()


def test_one_alone_pays_nothing_and_many_pay_by_their_number() -> None:
    assert closed([20.0]).tolist() == [20.0]
    assert closed([]).tolist() == []
    assert closed([400.0] + [0.0] * 19)[0] == pytest.approx(20.0)
    assert closed([20.0] * 18).tolist() == [20.0] * 18, "those that agree carry each other"


@pytest.mark.parametrize(
    ("e", "said"),
    [([1.0, -0.5], "below 0"), ([1.0, float("nan")], "NaN or infinity"), ([float("inf")], "NaN or infinity")],
)
def test_what_is_no_e_value_is_refused(e: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=f"e_values.*{said}"):
        closed(e)


def test_thousands_take_no_time() -> None:
    """It is linear after sorting: the sets of 2 to the 3000 are not looked at."""
    rng = np.random.default_rng(1)
    e = np.exp(rng.normal(0.0, 3.0, 3000))
    found = closed(e)
    assert found.argmax() == e.argmax()
    assert found.max() <= e.max()
    ascending = np.sort(e)
    averages = np.cumsum(ascending[:-1]) + ascending[-1]
    assert found.max() == pytest.approx((averages / np.arange(2, 3001)).min())


@given(E_VALUES, st.floats(1.5, 1000.0))
def test_what_is_required_is_just_what_is_needed(e: list[float], needed: float) -> None:
    """Each value in turn is put just above and just below it; the others stay."""
    for i, own in enumerate(required(e, needed)):
        for factor, enough in ((1.0 + 1e-6, True), (1.0 - 1e-6, False)):
            changed = [*e[:i], float(own) * factor, *e[i + 1 :]]
            assert (min(_by_definition(changed)[i], float(closed(changed)[i])) >= needed) == enough


def test_alone_nothing_more_is_required() -> None:
    assert required([3.0], 20.0).tolist() == [20.0]
    assert required([3.0, 1e9, 30.0], 20.0).tolist() == [20.0, 37.0, 37.0]
    assert required([], 20.0).size == 0
