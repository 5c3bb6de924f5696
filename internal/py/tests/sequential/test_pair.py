"""One pair, fed as a service feeds it: what it says, when, and that it goes on where it stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vigia_statistics import Direction
from vigia_statistics.sequential import QUESTIONS, LossPair, Pair, Question, Said, Scale, Verdict, grounds
from vigia_statistics.sequential.engine import Engine

from .worlds import MILD, windows

RTT = QUESTIONS["rtt"]
LOSS = QUESTIONS["loss"]
START = 1_800_000_000.0


def _times(minutes: int, fine: int = 60) -> Iterator[float]:
    """Ends of windows as they come: 15 s in the first hour, then a minute."""
    for minute in range(minutes):
        for part in range(1, 5) if minute < fine else (4,):
            yield START + 60.0 * minute + 15.0 * part


def _watched(ratio: float, minutes: int, seed: int = 1, question: Question = RTT, noise: float = 0.1) -> Pair:
    """A pair of which a takes ``ratio`` times as long as b, by what both have at each moment."""
    rng, pair = np.random.default_rng(seed), Pair(question, START)
    for at in _times(minutes):
        load = math.exp(0.5 * math.sin(at / 7200.0))
        a, b = 61e-6 * load * np.exp(noise * rng.normal(size=2))
        assert pair.update(at, float(a) * ratio, float(b))
    return pair


def test_what_is_obvious_is_said_within_a_minute() -> None:
    """Of direct at 44 µs against an overlay at 1 690 µs nothing was said after five minutes."""
    pair, rng = Pair(RTT, START), np.random.default_rng(1)
    for at in (15.0, 30.0, 45.0, 60.0):
        a, b = np.exp(0.2 * rng.normal(size=2))
        pair.update(START + at, 44e-6 * float(a), 1690e-6 * float(b))
    found = pair.verdict(START + 60.0)
    assert (found.said, found.since) == (Said.A, START + 60.0)
    assert found.upper < 1.0 and found.lower < 44 / 1690 < found.upper


@pytest.mark.parametrize(("ratio", "said"), [(1.35, Said.B), (1 / 1.35, Said.A)])
def test_the_better_one_is_named_by_direction(ratio: float, said: Said) -> None:
    assert _watched(ratio, 90).verdict(START + 5400.0).said is said
    more = Question(Direction.HIGHER, Scale.RATIO, 0.05)
    other = Said.A if said is Said.B else Said.B
    assert _watched(ratio, 90, question=more).verdict(START + 5400.0).said is other


def test_identical_paths_become_equivalent_and_stay_so() -> None:
    pair = _watched(1.0, 240)
    first = pair.verdict(START + 14400.0)
    assert (first.said, first.since) == (Said.EQUIVALENT, START + 14400.0)
    assert 1 / 1.05 < first.lower < 1.0 < first.upper < 1.05
    pair.update(START + 14460.0, 61e-6, 61e-6)
    assert pair.verdict(START + 14460.0).since == first.since


def test_a_difference_that_does_not_matter_is_equivalence() -> None:
    """2 % is named first, being sure; then it is said that it is within 5 %."""
    pair = _watched(1.02, 600, noise=0.03)
    assert pair.verdict(START + 36000.0).said is Said.EQUIVALENT
    assert pair.verdict(START + 36000.0).ahead is Said.B


def test_progress_is_told_on_the_way() -> None:
    pair = _watched(1.1, 4, noise=0.2)
    found = pair.verdict(START + 240.0)
    assert found.said is Said.UNKNOWN and found.since is None
    assert found.progress.startswith(f"{found.ahead.value if found.ahead else ''} is ahead, e = ")
    assert found.progress.endswith("of 20 needed")
    assert found.e_value < 20.0 == found.needed
    nothing = Pair(RTT, START).verdict(START)
    assert nothing.progress.startswith("nobody is ahead, e = 0.") and math.isnan(nothing.estimate)
    assert (nothing.lower, nothing.upper, nothing.windows) == (0.0, math.inf, 0)


@pytest.mark.parametrize(
    ("e", "written"),
    [(0.49, "0.4"), (9.99, "9.9"), (19.99, "19"), (20.0, "20"), (9999.9, "9999"), (3e7, "3e+07")],
)
def test_progress_is_never_rounded_up_to_a_verdict(e: float, written: str) -> None:
    v = Verdict(Said.UNKNOWN, None, Said.A, e, e, 0.0, 20.0, 1.0, 0.5, 2.0, 0.95, Scale.RATIO, 5, 4.0, START)
    assert v.progress == f"a is ahead, e = {written} of 20 needed"


def test_a_window_is_taken_once() -> None:
    pair = _watched(1.2, 5)
    before = pair.as_data()
    assert not pair.update(pair.last, 1.0, 1.0)
    assert not pair.update(pair.last - 60.0, 1.0, 1.0)
    assert pair.as_data() == before


def test_missing_windows_are_left_out() -> None:
    whole, holed = Pair(RTT, START), Pair(RTT, START)
    rng = np.random.default_rng(2)
    for minute in range(1, 200):
        a, b = (float(v) for v in np.exp(0.1 * rng.normal(size=2)))
        at = START + 60.0 * minute
        if minute % 5:
            whole.update(at, a, b)
            holed.update(at, a, b)
        else:
            holed.update(at, None if minute % 2 else a, b if minute % 2 else math.nan)
    assert holed.evidence() == whole.evidence()
    assert holed.evidence().windows == 160


def test_values_below_the_resolution_count_as_it() -> None:
    pair = Pair(QUESTIONS["jitter"], START)
    for minute in range(1, 40):
        pair.update(START + 60.0 * minute, 0.0, 0.0)
    assert pair.evidence().estimate == 1.0


@pytest.mark.parametrize(
    ("a", "b", "name"), [(-1.0, 1.0, "a"), (1e16, 1.0, "a"), (1.0, math.inf, "b"), (1.0, -math.inf, "b")]
)
def test_impossible_values_are_refused_by_name_and_change_nothing(a: float, b: float, name: str) -> None:
    pair = _watched(1.0, 2)
    before = pair.as_data()
    with pytest.raises(ValueError, match=f"^{name}: .* is not a number from 0 to 1e\\+15"):
        pair.update(START + 600.0, a, b)
    with pytest.raises(ValueError, match=r"^at: nan"):
        pair.update(math.nan, 1.0, 1.0)
    assert pair.as_data() == before


def test_a_reset_starts_anew() -> None:
    pair = _watched(1.5, 60)
    assert pair.verdict(START + 3600.0).said is Said.B
    pair.reset(START + 4000.0)
    found = pair.verdict(START + 4000.0)
    assert (found.said, found.windows, found.started) == (Said.UNKNOWN, 0, START + 4000.0)
    assert pair.as_data() == Pair(RTT, START + 4000.0).as_data()


def test_a_verdict_latches_and_the_contrary_starts_anew() -> None:
    pair, rng, at = _watched(1.3, 60), np.random.default_rng(3), START + 3600.0
    first = pair.verdict(at)
    assert first.said is Said.B
    said = []
    for _ in range(600):  # b becomes three times as slow
        at += 60.0
        a, b = np.exp(0.1 * rng.normal(size=2))
        pair.update(at, float(a), 3.0 * float(b))
        said.append(pair.verdict(at))
    words = [v.said for v in said]
    turned = words.index(Said.UNKNOWN)
    assert all(v.since == first.since for v in said[:turned]), "it stays until the contrary is proven"
    assert said[turned].started > START and words[-1] is Said.A


def test_equivalence_is_given_up_when_the_paths_part() -> None:
    pair, at = _watched(1.0, 240), START + 14400.0
    assert pair.verdict(at).said is Said.EQUIVALENT
    rng, said = np.random.default_rng(4), set()
    for _ in range(900):
        at += 60.0
        a, b = np.exp(0.1 * rng.normal(size=2))
        pair.update(at, 2.0 * float(a), float(b))
        said.add(pair.verdict(at).said)
    assert said == {Said.EQUIVALENT, Said.UNKNOWN, Said.B} and pair.verdict(at).said is Said.B


def test_a_pair_is_what_the_simulations_run() -> None:
    """Four pairs at once in one engine, and each by itself as a Pair: the same e-values and intervals."""
    rng = np.random.default_rng(12)
    together, alone = Engine(4, RTT.bound, RTT.noise), [Pair(RTT, START) for _ in range(4)]
    for at, logs in windows(MILD, rng, 4, 90):
        a, b = 61e-6 * np.exp(logs + np.array([[0.0], [0.1]]))
        together.update(at, np.log(a) - np.log(b))
        for i, pair in enumerate(alone):
            assert pair.update(START + at, float(a[i]), float(b[i]))
        if at % 60.0 == 0.0:
            known = together.grounds()
            lower, upper = grounds.covering(known, 0.05)
            for i, pair in enumerate(alone):
                found = pair.evidence()
                assert math.log(found.e_value) == pytest.approx(
                    float(grounds.against(known, 0.0)[i]), abs=1e-6
                )
                assert found.lower == pytest.approx(math.exp(lower[i])) and found.upper == pytest.approx(
                    math.exp(upper[i])
                )


VALUE = st.one_of(st.none(), st.floats(1e-6, 1.0))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0.1, 200.0), VALUE, VALUE), min_size=1, max_size=40), st.integers(0, 40))
def test_stopping_and_going_on_is_as_if_nothing_had_been(
    windows: list[tuple[float, float | None, float | None]], stop: int
) -> None:
    whole, parted, at = Pair(RTT, START), Pair(RTT, START), START
    for i, (length, a, b) in enumerate(windows):
        if i == stop:
            parted = Pair.from_data(RTT, json.loads(json.dumps(parted.as_data(), allow_nan=False)))
        at += length
        whole.update(at, a, b)
        parted.update(at, a, b)
        assert repr(whole.verdict(at)) == repr(parted.verdict(at))
    assert whole.as_data() == parted.as_data()


def test_state_is_small_and_does_not_grow() -> None:
    day = len(json.dumps(_watched(1.1, 60).as_data()))
    week = len(json.dumps(_watched(1.1, 1500).as_data()))
    assert day < 6000 and week < 1.5 * day


def _without(data: dict[str, object], *keys: str) -> dict[str, object]:
    out: dict[str, object] = json.loads(json.dumps(data))
    part = out
    for key in keys[:-1]:
        part = part[key]  # type: ignore[assignment]
    del part[keys[-1]]
    return out


def test_damaged_state_is_refused_with_the_place() -> None:
    data = _watched(1.1, 3).as_data()
    for keys, said in (
        (("version",), "version"),
        (("question",), "question"),
        (("started",), "started"),
        (("last",), "last"),
        (("latch",), "latch"),
        (("engine",), "engine"),
        (("engine", "fine"), "fine"),
        (("engine", "steady", "total"), "steady.total"),
    ):
        with pytest.raises(ValueError, match=f"^{said}.*start anew"):
            Pair.from_data(RTT, _without(data, *keys))
    with pytest.raises(ValueError, match="question: is another one"):
        Pair.from_data(QUESTIONS["jitter"], data)
    broken = json.loads(json.dumps(data))
    broken["engine"]["steady"]["n"] = ["many"]
    with pytest.raises(ValueError, match=r"steady.n: 'many' is not a finite number"):
        Pair.from_data(RTT, broken)
    broken = json.loads(json.dumps(data))
    broken["latch"]["better"] = "c"
    with pytest.raises(ValueError, match=r"latch.better: is 'c'"):
        Pair.from_data(RTT, broken)


def test_differences_are_told_in_the_metrics_unit() -> None:
    question = Question(Direction.LOWER, Scale.DIFFERENCE, 10e-6)
    pair, rng = Pair(question, START), np.random.default_rng(5)
    for minute in range(1, 200):
        a, b = rng.normal(0.0, 5e-6, 2)
        pair.update(START + 60.0 * minute, 1.690e-3 + float(a), 1.290e-3 + float(b))
    found = pair.verdict(START + 12000.0)
    assert found.said is Said.B
    assert found.lower < 400e-6 < found.upper
    assert found.upper - found.lower < 10e-6


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"margin": 0.0}, "margin: 0.0"),
        ({"margin": math.nan}, "margin: nan"),
        ({"floor": 0.0}, "floor: 0.0"),
        ({"noise": -1.0}, "noise: -1.0"),
        ({"scale": Scale.DIFFERENCE, "noise": 0.5}, "noise: 0.5 is for ratios"),
    ],
)
def test_questions_that_make_no_sense_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Question(**{"better": Direction.LOWER, "scale": Scale.RATIO, "margin": 0.05, **fields})  # type: ignore[arg-type]


def _losing(rate_a: float, rate_b: float, minutes: int, seed: int = 6) -> LossPair:
    rng, pair = np.random.default_rng(seed), LossPair(LOSS, START)
    for at in _times(minutes):
        sent = 750 if at <= START + 3600.0 else 3000
        pair.update_counts(
            at, float(rng.binomial(sent, rate_a)), sent, float(rng.binomial(sent, rate_b)), sent
        )
    return pair


def test_the_one_that_loses_more_is_named() -> None:
    pair = _losing(0.01, 0.001, 60)
    found = pair.verdict(START + 3600.0)
    assert (found.said, found.scale) == (Said.B, Scale.DIFFERENCE)
    assert _losing(0.001, 0.01, 60).verdict(START + 3600.0).said is Said.A


def test_one_burst_names_nobody() -> None:
    """A minute without an answer is one throw of the coin, however many probes were lost in it."""
    pair = LossPair(LOSS, START)
    for minute in range(1, 121):
        lost = 3000.0 if minute == 60 else 0.0
        pair.update_counts(START + 60.0 * minute, lost, 3000.0, 0.0, 3000.0)
        found = pair.verdict(START + 60.0 * minute)
        assert found.said is Said.UNKNOWN
    assert found.ahead is Said.B and found.e_value < 3.0


def test_no_losses_are_equivalent_only_after_many_probes() -> None:
    few, many = _losing(0.0, 0.0, 60), _losing(0.0, 0.0, 3000)
    assert few.verdict(START + 3600.0).said is Said.UNKNOWN
    found = many.verdict(START + 180_000.0)
    assert found.said is Said.EQUIVALENT and -0.001 < found.lower < 0.0 < found.upper < 0.001


def test_a_part_of_a_probe_is_no_difference() -> None:
    """Rates over windows give 2.97 and 3.02 where both lost three."""
    pair = LossPair(LOSS, START)
    for minute in range(1, 200):
        pair.update_counts(START + 60.0 * minute, 3.02, 3001.0, 2.97, 2999.0)
    assert pair.evidence().e_value <= 1.0


def test_loss_goes_on_where_it_stopped() -> None:
    pair = _losing(0.004, 0.002, 70)
    other = LossPair.from_data(LOSS, json.loads(json.dumps(pair.as_data(), allow_nan=False)))
    for p in (pair, other):
        p.update_counts(START + 71 * 60.0, 3.0, 3000.0, 0.0, 3000.0)
    assert pair.as_data() == other.as_data()
    assert pair.verdict(START + 71 * 60.0) == other.verdict(START + 71 * 60.0)
    with pytest.raises(ValueError, match=r"^parts"):
        LossPair.from_data(LOSS, _without(pair.as_data(), "engine", "parts"))


def test_a_path_that_sent_nothing_is_missing() -> None:
    pair = LossPair(LOSS, START)
    for minute in range(1, 30):
        pair.update_counts(START + 60.0 * minute, 0.0, 0.0, 5.0, 3000.0)
    assert pair.evidence().windows == 0 and pair.evidence().e_value <= 1.0


@pytest.mark.parametrize(
    "counts",
    [(5.0, 4.0, 0.0, 4.0), (0.0, 4.0, -1.0, 4.0), (0.0, math.inf, 0.0, 4.0), (math.nan, 4.0, 0.0, 4.0)],
)
def test_impossible_counts_are_refused(counts: tuple[float, float, float, float]) -> None:
    pair = LossPair(LOSS, START)
    with pytest.raises(ValueError, match="need 0 <= lost <= sent"):
        pair.update_counts(START + 60.0, *counts)
    with pytest.raises(TypeError, match="update_counts"):
        pair.update(START + 60.0, 0.1, 0.2)
    with pytest.raises(ValueError, match="scale: ratio does not fit counts"):
        LossPair(RTT, START)
