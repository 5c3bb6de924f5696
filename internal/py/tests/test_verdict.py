"""Who wins, and when nobody does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vigia_statistics import Comparison, Direction, Verdict, compare, judge, winner


def _family(
    samples: dict[str, list[float]], better: Direction = Direction.LOWER, **options: float
) -> list[Comparison]:
    names = list(samples)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return judge([compare(a, b, samples[a], samples[b]) for a, b in pairs], better, **options)  # type: ignore[arg-type]


def _around(centre: float, n: int = 20, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(centre, 1.0, n))


def test_the_path_that_beats_all_others_wins() -> None:
    samples = {"gre": _around(20, seed=1), "vxlan": _around(26, seed=2), "bridge": _around(23, seed=3)}
    family = _family(samples)
    assert winner(list(samples), family) == "gre"
    assert winner(list(samples), _family(samples, Direction.HIGHER)) == "vxlan"
    assert [c.verdict for c in family] == [Verdict.A, Verdict.A, Verdict.B]
    assert all(c.p_value <= c.adjusted_p_value < 0.05 for c in family)
    assert family[0].shift == pytest.approx(-6, abs=1)
    assert family[0].effect_size == pytest.approx(-1.0)


def test_two_equally_good_paths_tie_though_both_beat_the_third() -> None:
    samples = {"gre": _around(20, seed=1), "vxlan": _around(20, seed=2), "bridge": _around(30, seed=3)}
    family = _family(samples)
    assert family[0].verdict is Verdict.TIE
    assert winner(list(samples), family) is None


def test_too_few_runs_are_not_a_tie() -> None:
    family = _family({"gre": [1.0, 2.0, 3.0], "vxlan": [11.0, 12.0, 13.0]}, minimum_samples=2)
    assert family[0].verdict is Verdict.NOT_ENOUGH_DATA, "three and three cannot reach p = 0.05"
    family = _family({"gre": _around(1, 8), "vxlan": _around(9, 8, 1)}, minimum_samples=10)
    assert family[0].verdict is Verdict.NOT_ENOUGH_DATA


def test_a_difference_within_the_margin_is_a_tie() -> None:
    samples = {"gre": _around(20, 40, 1), "vxlan": _around(22, 40, 2)}
    assert _family(samples)[0].verdict is Verdict.A
    assert _family(samples, margin=2.5)[0].verdict is Verdict.TIE


def test_correcting_for_the_family_takes_a_weak_winner_away() -> None:
    samples = {"gre": _around(20.0, 20, 11), "vxlan": _around(20.75, 20, 12)}
    alone = _family(samples)
    assert alone[0].verdict is Verdict.A and 0.005 < alone[0].p_value < 0.05
    crowd = judge(
        [*alone, *(compare("x", "y", _around(1, 20, s), _around(1, 20, -s + 99)) for s in range(12))],
        Direction.LOWER,
    )
    assert crowd[0].verdict is Verdict.TIE


def test_pairing_removes_what_both_share() -> None:
    rng = np.random.default_rng(5)
    weather = rng.lognormal(3.0, 1.0, 25)
    a, b = weather + rng.normal(0.0, 0.3, 25), weather + rng.normal(1.0, 0.3, 25)
    apart = judge([compare("underlay", "overlay", a, b)], Direction.LOWER)[0]
    twins = judge([compare("underlay", "overlay", a, b, paired=True)], Direction.LOWER)[0]
    assert apart.verdict is Verdict.TIE
    assert twins.verdict is Verdict.A
    assert twins.test == "wilcoxon signed-rank"
    assert -1.4 < twins.lower < twins.shift < twins.upper < -0.8
    with pytest.raises(ValueError, match="25 and 24 values; paired"):
        compare("underlay", "overlay", a, b[1:], paired=True)


def test_nobody_wins_alone() -> None:
    assert winner(["gre"], []) is None
    assert winner([], []) is None


def test_the_readme_says_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[1] / "vigia_statistics" / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own documentation
    assert capsys.readouterr().out.strip() == code.rsplit("# ", 1)[1].strip()
