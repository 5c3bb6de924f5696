"""A soak's folder: what is appended is read again, also after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.soak import record
from vigia.soak.record import ChurnEvent, Sampled, SoakPlan, SoakRecord

PLAN = SoakPlan("soak", 1.0, 10.0, 600.0, 1000.0, "1", 2)


def begun(folder: Path) -> SoakRecord:
    kept = record.create(folder, PLAN)
    for i in range(3):
        kept.sampled(
            Sampled(
                1000.0 + 1800 * i,
                {"p": {"threads": float(i)}, "q": {"threads": 7.0}},
                {"p": 9},
                i,
                0.5,
                ("q: x",),
            )
        )
    kept.happened(ChurnEvent(1001.0, "flood", False, "why", 2.0))
    return kept


def test_what_is_written_is_read(tmp_path: Path) -> None:
    begun(tmp_path / "a" / "b")
    kept = record.read(tmp_path / "a" / "b")
    assert kept.plan == PLAN
    assert kept.samples[2] == Sampled(
        4600.0, {"p": {"threads": 2.0}, "q": {"threads": 7.0}}, {"p": 9}, 2, 0.5, ("q: x",)
    )
    assert kept.events == (ChurnEvent(1001.0, "flood", False, "why", 2.0),)
    assert kept.hours == 1
    hours, values = kept.series()["threads", "p"]
    assert hours.tolist() == [0, 0.5, 1]
    assert values.tolist() == [0, 1, 2]
    assert set(kept.series()) == {("threads", "p"), ("threads", "q")}


def test_half_a_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    begun(tmp_path)
    with (tmp_path / "samples.jsonl").open("a") as f:
        f.write('{"at": 99')
    assert len(record.read(tmp_path).samples) == 3


def test_half_a_line_in_between_is_an_error(tmp_path: Path) -> None:
    begun(tmp_path)
    file = tmp_path / "samples.jsonl"
    file.write_text(file.read_text().replace("\n", "\n{\n", 1))
    with pytest.raises(VigiaError, match="cannot be read as a soak's folder"):
        record.read(tmp_path)


def test_a_run_of_which_nothing_is_sampled_yet(tmp_path: Path) -> None:
    record.create(tmp_path, PLAN)
    kept = record.read(tmp_path)
    assert (kept.hours, kept.samples, kept.events, kept.series()) == (0, (), (), {})


def test_another_folder_is_none(tmp_path: Path) -> None:
    with pytest.raises(VigiaError, match="name the --output of one"):
        record.read(tmp_path)
    (tmp_path / "plan.json").write_text('{"lab": 1}')
    with pytest.raises(VigiaError, match="name the --output of one"):
        record.read(tmp_path)


def test_a_record_is_not_overwritten(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(VigiaError, match="has a soak already; choose another folder"):
        record.create(tmp_path, PLAN)
    assert len(record.read(tmp_path).samples) == 3
