"""A campaign's folder: what is kept of it, in which order campaigns are listed, and what damage does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vigia.campaign import folder
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Record, Series
from vigia.errors import VigiaError

PLAN = {
    "designs": [{"factors": {"path": ["a", "b"]}}],
    "stop": {"repetitions": 2},
}


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Folder]:
    def make(name: str = "t", **more: Any) -> Folder:
        about = {"version": 1, "name": name, "title": "T", "question": "Q?", "study": "overlays"}
        campaign = Campaign.model_validate({**about, "topology": "e1", "standard": PLAN, **more})
        return folder.create(tmp_path, campaign, "standard", {"topology": "text"})

    return make


def record(run: int, status: str = "done", reason: str = "", path: str = "a") -> Record:
    factors = {"path": path, "size": 64}
    return Record(run, run // 2, run % 2, factors, 100.0 + run, 2.0, 3, status, reason, events=[])


SERIES = [Series("rtt", "s", [1.0, math.nan, 3.0]), Series("throughput", "bit/s", [9.0], 1)]


def test_a_new_folder_says_what_is_measured_and_when_it_began(
    made: Callable[..., Folder], tmp_path: Path
) -> None:
    f = made()
    assert f.path.parent == tmp_path
    assert re.fullmatch(r"t-\d{8}T\d{6}Z(-\d+)?", f.name)
    manifest = json.loads((f.path / "manifest.json").read_text())
    assert (manifest["state"], manifest["size"], manifest["topology"]) == ("running", "standard", "text")
    again = folder.open_folder(f.path)
    assert again.campaign == f.campaign
    assert again.records == []
    assert again.samples().num_rows == 0


def test_a_size_that_is_not_there_makes_no_folder(made: Callable[..., Folder], tmp_path: Path) -> None:
    campaign = made().campaign
    before = list(tmp_path.iterdir())
    with pytest.raises(VigiaError, match="campaign t has no full size; run it with --size standard"):
        folder.create(tmp_path, campaign, "full", {})
    assert list(tmp_path.iterdir()) == before


def test_where_nothing_can_be_made(made: Callable[..., Folder], tmp_path: Path) -> None:
    campaign = made().campaign
    (tmp_path / "file").touch()
    with pytest.raises(VigiaError, match=r"cannot be made: .*; choose another --directory"):
        folder.create(tmp_path / "file" / "campaigns", campaign, "standard", {})


def test_campaigns_of_one_second_have_folders_of_their_own(made: Callable[..., Folder]) -> None:
    assert len({made().path for _ in range(5)}) == 5


def test_campaigns_are_listed_in_the_order_in_which_they_began(
    made: Callable[..., Folder], tmp_path: Path
) -> None:
    order = [
        ("b-2", "20261101T000000Z"),
        ("a", "20261102T000000Z"),
        ("a", "20261102T000000Z-2"),
        ("a", "20261102T000000Z-10"),
        ("a-2-b", "20261103T000000Z"),
    ]
    for name, began in reversed(order):
        made(name).path.rename(tmp_path / f"{name}-{began}")
    for stranger in ("notes", "a-2026", "a-20261104T000000Z"):  # without a manifest
        (tmp_path / stranger).mkdir()
    assert [f.name for f in folder.list_folders(tmp_path)] == [f"{n}-{b}" for n, b in order]
    assert folder.latest(tmp_path, "a").name == "a-20261102T000000Z-10"


def test_samples_have_a_row_each_with_every_factor(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(2), SERIES)
    rows = f.samples().to_pylist()
    assert [(r["metric"], r["value"], r["sequence"], r["connection"]) for r in rows] == [
        ("rtt", 1.0, 0, 0),
        ("rtt", None, 1, 0),
        ("rtt", 3.0, 2, 0),
        ("throughput", 9.0, 0, 1),
    ]
    assert {(r["run"], r["block"], r["cell"], r["factor_path"], r["factor_size"]) for r in rows} == {
        (2, 1, 0, "a", "64")
    }
    assert {r["unit"] for r in rows} == {"s", "bit/s"}


def test_a_factor_that_a_repetition_has_not_is_null(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(0), SERIES)
    f.add(Record(1, 0, 1, {"path": "b", "rate": "1Gbit"}, 0, 1, 1), [Series("rtt", "s", [5.0])])
    rows = f.samples().to_pylist()
    assert {(r["run"], r["factor_size"], r["factor_rate"]) for r in rows} == {
        (0, "64", None),
        (1, None, "1Gbit"),
    }


@pytest.mark.parametrize("merged", [False, True])
def test_samples_of_one_repetition(made: Callable[..., Folder], merged: bool) -> None:
    f = made()
    f.add(record(0), SERIES)
    f.add(record(1, path="b"), [Series("rtt", "s", [7.0])])
    if merged:
        f.merge()
    assert f.samples_of(1)["value"].to_pylist() == [7.0]
    assert f.samples_of(0).num_rows == 4


def test_what_is_measured_after_merging_is_read_beside_it(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(0), SERIES)
    f.merge()
    f.add(record(1, path="b"), [Series("rtt", "s", [7.0])])
    assert sorted(set(f.samples()["run"].to_pylist())) == [0, 1]
    f.merge()
    assert list((f.path / "samples").iterdir()) == []
    assert folder.open_folder(f.path).samples().num_rows == 5


def test_a_crash_between_merging_and_removing_counts_nothing_twice(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(0), SERIES)
    part = f.path / "samples" / "000000.parquet"
    kept = part.read_bytes()
    f.merge()
    part.write_bytes(kept)
    assert folder.open_folder(f.path).samples().num_rows == 4


def test_failed_repetitions_are_made_again_and_their_records_kept(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(0), SERIES)
    f.add(record(1, "failed", "no route to host"), [])
    assert f.forget_failed() == 1
    assert [r.run for r in f.records] == [0]
    again = folder.open_folder(f.path)
    assert [r.run for r in again.records] == [0], "the kept record is not read"
    kept = f.path / "runs" / "000001.failed-101.json"
    assert json.loads(kept.read_text())["reason"] == "no route to host"
    again.add(record(1), SERIES)
    assert folder.open_folder(f.path).record(1) == record(1)
    assert again.forget_failed() == 0


def test_a_failed_repetition_has_no_samples(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(0, "failed", "x"), SERIES)  # what it had measured until then
    assert f.samples().num_rows == 0


def test_the_lock_reads_what_another_command_did(made: Callable[..., Folder]) -> None:
    f = made()
    other = folder.open_folder(f.path)
    other.add(record(0), SERIES)
    assert f.records == []
    with f.locked():
        assert [r.run for r in f.records] == [0]


def test_a_published_campaign_has_its_records_in_one_file(made: Callable[..., Folder]) -> None:
    f = made()
    f.add(record(0), SERIES)
    f.add(record(1, "failed", "x"), [])
    one = [json.loads((f.path / "runs" / f"{n:06d}.json").read_text()) for n in (0, 1)]
    for file in (f.path / "runs").iterdir():
        file.unlink()
    (f.path / "runs").rmdir()
    (f.path / "runs.json").write_text(json.dumps(one))
    assert folder.open_folder(f.path).records == f.records


@pytest.mark.parametrize(
    "content", ["", "{", "[]x", '{"run": 1}', '{"run": 1, "load": [0, 0], "colour": "red"}', "7"]
)
def test_a_damaged_record_is_named(made: Callable[..., Folder], content: str) -> None:
    f = made()
    file = f.path / "runs" / "000001.json"
    file.write_text(content)
    with pytest.raises(VigiaError, match=re.escape(f"{file} is not a record of a repetition: ")):
        folder.open_folder(f.path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "campaign": {}}'])
def test_a_damaged_manifest_is_named(made: Callable[..., Folder], content: str) -> None:
    f = made()
    (f.path / "manifest.json").write_text(content)
    with pytest.raises(VigiaError, match=re.escape(f"{f.path}/manifest.json cannot be read: ")):
        folder.open_folder(f.path)


def test_a_manifest_of_earlier_versions_is_read_as_todays(made: Callable[..., Folder]) -> None:
    f = made()
    manifest = json.loads((f.path / "manifest.json").read_text())
    del manifest["size"]
    manifest["campaign"]["small"] = manifest["campaign"].pop("standard")
    manifest["campaign"]["full"] = {**PLAN, "stop": {"repetitions": 30}}
    for name in ("hypotheses", "smoke"):
        del manifest["campaign"][name]
    for full, size, repetitions in ((False, "standard", 2), (True, "full", 30)):
        (f.path / "manifest.json").write_text(json.dumps({**manifest, "version": 1, "full": full}))
        again = folder.open_folder(f.path)
        assert (again.size, again.plan.stop.repetitions) == (size, repetitions)
        assert again.campaign.hypotheses == []
        again.update(state="done")
        assert folder.open_folder(f.path).size == size, "what is written is of today's version"


def test_a_manifest_of_the_future_is_left_alone(made: Callable[..., Folder]) -> None:
    f = made()
    f.update(version=3)
    with pytest.raises(VigiaError, match="was written by another version of vigia; use that one"):
        folder.open_folder(f.path)
