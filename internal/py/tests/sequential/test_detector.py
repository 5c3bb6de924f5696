"""A path's own level: what is usual is learned, what is not is found, and how often it is false."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from vigia_statistics import Direction
from vigia_statistics.samples import Floats
from vigia_statistics.sequential import QUESTIONS, Change, Detector, Question, Scale
from vigia_statistics.sequential.level import BLOCK, Levels

RTT = QUESTIONS["rtt"]
START = 1_800_000_000.0
DAY = 86400.0


def _fed(
    detector: Detector,
    hours: float,
    ratio: float = 1.0,
    *,
    begin: float | None = None,
    seed: int = 1,
    cycle: float = 0.3,
    noise: float = 0.2,
) -> list[Change]:
    """Feed minutes of a path with a daily cycle; ``ratio`` is its level over the usual one."""
    rng = np.random.default_rng(seed)
    found = []
    begin = detector.last if begin is None else begin
    for minute in range(1, round(hours * 60.0) + 1):
        at = begin + 60.0 * minute
        usual = 61e-6 * math.exp(cycle * math.sin(2.0 * math.pi * at / DAY))
        change = detector.update(at, usual * ratio * math.exp(noise * rng.normal()))
        if change is not None:
            found.append(change)
    return found


def test_a_daily_cycle_is_learned_and_is_no_change() -> None:
    detector = Detector(RTT, START)
    assert detector.learning
    assert _fed(detector, 24.0) == [] and not detector.learning
    assert _fed(detector, 72.0, seed=2) == [] and detector.change is None
    assert 0.0 <= detector.progress < 1.0


@pytest.mark.parametrize(("ratio", "worse"), [(1.35, True), (1 / 1.35, False)])
def test_a_change_is_found_with_its_time_and_size(ratio: float, worse: bool) -> None:
    detector = Detector(RTT, START)
    _fed(detector, 36.0)
    (change,) = _fed(detector, 12.0, ratio, seed=2)
    assert change == detector.change and change.worse is worse and detector.progress == 1.0
    assert abs(change.since - (START + 1.5 * DAY)) <= 2.0 * BLOCK
    assert START + 1.5 * DAY < change.at <= START + 1.5 * DAY + 2.0 * 3600.0
    assert change.estimate == pytest.approx(ratio, rel=0.08)


@pytest.mark.parametrize(("ratio", "hours"), [(1.1, 9.0), (1.5, 3.0), (10.0, 3.0), (1 / 1.5, 3.0)])
def test_a_step_is_found_however_quiet_the_path_is(ratio: float, hours: float) -> None:
    """Noise of 3 % beside a margin of 5 %: three deviations of a block are less than what is allowed."""
    detector = Detector(RTT, START)
    assert _fed(detector, 36.0, noise=0.03) == []
    (change,) = _fed(detector, 12.0, ratio, seed=2, noise=0.03)
    assert change.worse is (ratio > 1.0) and change.at <= START + 1.5 * DAY + hours * 3600.0
    assert abs(change.since - (START + 1.5 * DAY)) <= 2.0 * BLOCK
    assert change.estimate == pytest.approx(ratio, rel=0.05)


def test_a_single_block_of_a_quiet_path_is_no_change_either() -> None:
    detector = Detector(RTT, START)
    _fed(detector, 30.0, noise=0.03)
    assert _fed(detector, 0.25, 1000.0, noise=0.03) == []
    assert _fed(detector, 24.0, seed=3, noise=0.03) == []
    quiet = Detector(RTT, START)
    _fed(quiet, 30.0, noise=0.03)
    assert _fed(quiet, 48.0, 1.03, seed=4, noise=0.03) == [], "within the margin"


def test_more_is_better_for_throughput() -> None:
    detector = Detector(Question(Direction.HIGHER, Scale.RATIO, 0.05), START)
    _fed(detector, 25.0)
    (change,) = _fed(detector, 6.0, 0.6)
    assert change.worse


def test_a_single_block_is_never_a_change_however_large() -> None:
    detector = Detector(RTT, START)
    _fed(detector, 30.0)
    assert _fed(detector, 0.25, 1000.0) == []
    assert _fed(detector, 24.0, seed=3) == []


def test_a_storm_on_the_first_day_does_not_blind_it() -> None:
    detector = Detector(RTT, START)
    _fed(detector, 10.0)
    _fed(detector, 0.5, 50.0)
    assert _fed(detector, 48.0, seed=3) == []
    (change,) = _fed(detector, 24.0, 1.5, seed=4)
    assert change.worse and change.at - change.since <= 6.0 * 3600.0


def test_what_is_within_the_margin_is_no_change() -> None:
    detector = Detector(RTT, START)
    _fed(detector, 30.0)
    assert _fed(detector, 48.0, 1.03, seed=4) == []


def test_a_change_stays_until_a_reset_which_learns_anew() -> None:
    detector = Detector(RTT, START)
    _fed(detector, 30.0)
    (change,) = _fed(detector, 6.0, 2.0)
    assert _fed(detector, 12.0, 2.0) == [] and detector.change == change
    detector.reset(detector.last)
    assert detector.change is None and detector.learning
    assert _fed(detector, 48.0, 2.0, seed=5) == [], "what is now is usual"


def test_without_a_season_four_hours_are_learned() -> None:
    detector = Detector(RTT, START, season=None)
    assert _fed(detector, 4.0, cycle=0.0) == [] and not detector.learning
    (change,) = _fed(detector, 6.0, 1.5, cycle=0.0)
    assert change.worse


def test_windows_count_once_and_missing_ones_not_at_all() -> None:
    detector, other = Detector(RTT, START), Detector(RTT, START)
    for minute in range(1, 200):
        at, value = START + 60.0 * minute, None if minute % 7 == 0 else 61e-6
        detector.update(at, value)
        detector.update(at, 5.0)
        other.update(at, math.nan if value is None else value)
    assert detector.as_data() == other.as_data()
    with pytest.raises(ValueError, match=r"value: -1.0"):
        detector.update(START + 1e6, -1.0)


def test_a_pause_of_a_month_is_over_at_once_and_keeps_the_hour_of_the_day() -> None:
    detector = Detector(RTT, START)
    _fed(detector, 48.0)
    assert _fed(detector, 24.0, begin=detector.last + 1000.0 * DAY, seed=6) == []
    assert float(detector._levels.seen) > 1000 * 96


def test_a_restart_goes_on() -> None:
    whole = Detector(RTT, START, false_alarms_per_month=0.5)
    _fed(whole, 30.1)
    parted = Detector.from_data(RTT, json.loads(json.dumps(whole.as_data(), allow_nan=False)))
    assert _fed(whole, 5.0, 1.5, seed=7) == _fed(parted, 5.0, 1.5, seed=7) != []
    assert whole.as_data() == parted.as_data()
    again = Detector.from_data(RTT, json.loads(json.dumps(whole.as_data(), allow_nan=False)))
    assert again.change == whole.change
    assert len(json.dumps(whole.as_data())) < 12_000


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("version", 2, "version: is not 1"),
        ("question", {}, "question: is another one"),
        ("open", [1], "open: is not a list of 3"),
        ("change", {"at": 1}, "change: is not a change"),
        ("change", {"at": 1, "worse": True}, "change.since: None"),
        ("levels", None, "levels: is not an object"),
        ("season", 5.0, "season: 5.0 s"),
        ("false_alarms_per_month", 0, "false_alarms_per_month: 0.0"),
    ],
)
def test_damaged_state_is_refused_with_the_place(key: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Detector.from_data(RTT, {**Detector(RTT, START).as_data(), key: value})


def _levels(values: Floats, bound: float = 0.05) -> Levels:
    out = Levels(values.shape[1], 96, bound)
    for row in values:
        out.update(row)
    return out


def test_the_sum_grows_by_one_a_block_where_nothing_changes() -> None:
    """What its false alarms follow from: of exact e-values the mean of sum minus blocks is at most 0."""
    rng = np.random.default_rng(8)
    levels = _levels(rng.normal(0.0, 0.1, (96 + 48, 4000)), bound=1e-6)
    sums = np.exp(levels.sums)
    assert sums.mean() <= 48.0 * 1.2


def test_what_is_usual_follows_slowly() -> None:
    rng = np.random.default_rng(9)
    levels = _levels(rng.normal(0.0, 0.1, (96 * 20, 50)) + 0.03 * (np.arange(96 * 20) >= 96)[:, None])
    assert np.median(levels.expected(96 * 20)) == pytest.approx(0.03, abs=0.015)
    assert (levels.log_e < math.log(28_800)).all()


def test_blocks_that_are_missing_are_no_evidence() -> None:
    rng = np.random.default_rng(10)
    values = rng.normal(0.0, 0.1, (96, 3))
    levels = _levels(values)
    before = levels.log_e.copy()
    for _ in range(10):
        levels.update(np.full(3, np.nan))
    assert (levels.log_e == before).all()
    unknown = Levels(1, 96, 0.05)
    for _ in range(96):
        unknown.update(np.full(1, np.nan))
    for _ in range(50):
        unknown.update(rng.normal(0.0, 0.1, 1))
    assert np.isfinite(unknown.variance).all() and not np.isnan(unknown.log_e).any()
