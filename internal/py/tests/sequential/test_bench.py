"""The short form of make bench-verdicts, which is in the gate: everything that is required is met."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from . import bench_verdicts as bench
from . import worlds


def test_everything_required_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--short", "--json"]) == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert len(rows) >= 15 and all(r["met"] for r in rows)
    assert "MISSED" not in said.err and said.err.count(" met\n") == len(rows)


def test_a_miss_is_told_and_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence that is counted twice is found out: the yardstick can fail."""
    named = bench.Case("named too easily", bench.Named(worlds.INDEPENDENT, 0.2), "%", 5.0, 200)
    monkeypatch.setattr(bench, "NEEDED", math.log(1.5))
    monkeypatch.setattr(bench, "cases", lambda short: [named])
    assert bench.main([]) == 1
    assert "MISSED" in capsys.readouterr().err


def test_many_verdicts_take_longer_than_one_and_name_no_twin() -> None:
    """A path that is worse on one metric of six is found later than alone; one that is not, never."""
    rng = np.random.default_rng
    alone = bench.Found(worlds.INDEPENDENT, 1.5, 120)(40, rng(3))
    many = bench.FoundAmongMany(worlds.INDEPENDENT, 1.5, 120, differing=1)(40, rng(3))
    assert np.isfinite(many).all() and np.median(many) > np.median(alone)
    none = bench.FoundAmongMany(worlds.INDEPENDENT, 1.5, 60, differing=0)(40, rng(3))
    assert np.isinf(none).sum() >= 38
    # Ten times as slow is beyond doubt, whatever else is asked.
    obvious = bench.FoundAmongMany(worlds.INDEPENDENT, 10.0, 30, differing=6)(40, rng(3))
    assert np.isfinite(obvious).all() and np.median(obvious) <= np.median(many)


def test_bounds_are_exact() -> None:
    share = bench.Case("share", lambda size, rng: np.zeros(size), "%", 5.0, 100)
    assert bench.row(share, np.zeros(59)).bound == pytest.approx(100.0 * (1.0 - 0.05 ** (1 / 59)))
    assert bench.row(share, np.ones(3)).bound == 100.0 and not bench.row(share, np.ones(3)).met
    times = bench.Case("time", lambda size, rng: np.zeros(size), "min", 30.0, 100)
    found = bench.row(times, np.concatenate([np.arange(1.0, 100.0), np.full(9, np.inf)]))
    assert found.measured == pytest.approx(54.5) and 54.5 < found.bound < 70.0 and not found.met
    never = bench.row(times, np.full(50, np.inf))
    assert never.measured == never.bound == math.inf and not never.met
    alarms = bench.Case("alarms", lambda size, rng: np.zeros(size), "a month", 0.1, 100)
    assert bench.row(alarms, np.zeros(100)).bound == pytest.approx(-math.log(0.05) / 100.0)
    told = bench.Case("told", lambda size, rng: np.zeros(size), "min", None, 100)
    assert bench.row(told, np.full(50, np.inf)).met


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{bench.MARKS[0]}\nold\n{bench.MARKS[1]}\nafter\n")
    bench.write(
        page,
        [bench.Row("a rate", 2.5, 3.25, 5.0, 600, "%"), bench.Row("a time", 27.0, math.inf, None, 9, "min")],
    )
    text = page.read_text()
    assert text.startswith(f"before\n{bench.MARKS[0]}\n| what |") and text.endswith(
        f"\n{bench.MARKS[1]}\nafter\n"
    )
    assert "| a rate | 2.5 % | 3.25 % | 5 % | 600 | met |" in text and "old" not in text
    assert "| a time | 27 min | inf min |  | 9 |  |" in text
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="it lacks"):
        bench.write(page, [])


def test_the_page_has_what_is_measured() -> None:
    """Every row of the full form, by its words; figures are those of the machine that wrote them."""
    text = bench.PAGE.read_text()
    assert [c.what for c in bench.cases(short=False) if f"| {c.what} |" not in text] == []
    assert "MISSED" not in text


@pytest.mark.parametrize("world", worlds.WORLDS)
def test_simulated_paths_are_what_they_are_called(world: worlds.World) -> None:
    rng = np.random.default_rng(1)
    made = [v for _, v in worlds.windows(world, rng, 400, 200, fine=0)]
    own = np.array([a - b for a, b in made])
    assert own.mean() == pytest.approx(0.0, abs=0.02)
    loud = np.sqrt(1.0 + 0.6**2 / 2.0) if world.busy else 1.0
    assert own.std() == pytest.approx(worlds.NOISE * math.sqrt(2.0) * loud, rel=0.15)
    r = (own[1:] * own[:-1]).mean() / (own**2).mean()
    assert r == pytest.approx(world.correlation, abs=0.05)
    both = np.array(made)
    shared = np.corrcoef(both[:, 0].ravel(), both[:, 1].ravel())[0, 1]
    assert (shared > 0.5) == world.busy
    early = np.array([a - b for _, (a, b) in worlds.windows(world, rng, 400, 60)])
    minutes = early.reshape(60, 4, 400).mean(axis=1)
    assert minutes.std() == pytest.approx(own.std(), rel=0.5 if world.busy else 0.15)


def test_simulated_losses_have_their_rates_and_come_in_bursts() -> None:
    rng = np.random.default_rng(2)
    lost = np.array([(a, b) for _, a, b in worlds.losses(rng, 200, 2000, (0.001, 0.005))]) / 3000.0
    assert lost[:, 0].mean() == pytest.approx(0.001, rel=0.15)
    assert lost[:, 1].mean() == pytest.approx(0.005, rel=0.15)
    assert lost[:, 1].var() > 10.0 * 0.005 / 3000.0, "much more than binomial counts"
