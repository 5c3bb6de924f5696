"""The short run of make fuzz: every target, on its seeds and on a hundred texts near them."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import run, targets
from fuzz.__main__ import go_targets, main
from fuzz.run import Finding, fuzz, seeds
from fuzz.targets import TARGETS, Target

TEXTS = 120


@pytest.mark.parametrize("name", TARGETS)
def test_texts_near_the_seeds_do_no_harm(name: str) -> None:
    *findings, tried = fuzz(name, random.Random(name), texts=TEXTS)  # noqa: S311 - the same every time
    assert findings == []
    assert isinstance(tried, int) and tried >= TEXTS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_begins_with_something_good(name: str) -> None:
    assert len(seeds(name)) >= 2, f"put some into {targets.SEEDS / name}"


def test_every_folder_of_seeds_is_a_targets() -> None:
    assert {p.name for p in targets.SEEDS.iterdir()} <= set(TARGETS)


def test_a_finding_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(raw: bytes) -> None:
        assert b"x" not in raw, "an x"

    monkeypatch.setattr(run, "SEEDS", tmp_path)
    monkeypatch.setitem(TARGETS, "broken", Target(check))  # type: ignore[arg-type]
    # A second of a clock that goes on with each text, however long that takes.
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 1000, process_time=time.process_time)
    monkeypatch.setattr(run, "time", clock)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/good").write_bytes(b"[1, 2]")
    assert main(["--seconds", "1", "broken"]) == 1
    said = capsys.readouterr().out
    assert "AssertionError: an x" in said and "findings in 1: broken" in said
    kept = [p for p in (tmp_path / "broken").iterdir() if p.name != "good"]
    assert kept and all(b"x" in p.read_bytes() for p in kept)
    *findings, _ = fuzz("broken", random.Random(1))  # noqa: S311
    assert len(findings) == len(kept) and all(isinstance(f, Finding) for f in findings)


def test_names_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == [*TARGETS, *go_targets()]
    assert main(["--list", "webhook", "fastloop.FuzzSite"]) == 0
    assert capsys.readouterr().out.split() == ["webhook", "isolation-agent/enforcer/fastloop.FuzzSite"]
    with pytest.raises(SystemExit):
        main(["nothing-like-it"])
