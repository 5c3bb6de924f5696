"""The engine: every repetition once, whatever happens; a study of a few lines stands for the slow ones."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from vigia.campaign import engine, folder
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign, StopRule
from vigia.campaign.samples import Record, Series
from vigia.errors import Interrupted, VigiaError
from vigia.host.signals import Deferred


class Study:
    """Gives the same samples for the same combination; fails where it is told to."""

    def __init__(self, fails: set[tuple[str, int]] | None = None, stop_after: int | None = None) -> None:
        self.made: list[dict[str, Any]] = []
        self.fails = fails or set()
        self.stop_after = stop_after

    def measure(self, factors: Any, settings: Any, testbed: Any) -> list[Series]:
        if len(self.made) == self.stop_after:
            raise KeyboardInterrupt
        self.made.append(dict(factors))
        if (factors["path"], factors["size"]) in self.fails:
            raise VigiaError("no answer from 10.0.0.1")
        noise = 1.0 if factors["path"] == "steady" else 1.0 + len(self.made) % 7
        return [
            Series("rtt", "s", [noise * 1e-3, math.nan, 2e-3]),
            Series("throughput", "bit/s", [noise * 1e6], 1),
        ]


class Quiet:
    """A testbed on which nothing happens."""

    description: dict[str, Any] = {}

    def pairs(self, path: str, placement: str, machines: int) -> list[Any]:
        return []

    def marks(self) -> list[dict[str, Any]]:
        return []


def campaign(repetitions: int = 4, **stop: Any) -> Campaign:
    return Campaign.model_validate(
        {
            "version": 1,
            "name": "t",
            "title": "T",
            "question": "Q?",
            "study": "overlays",
            "topology": "e1",
            "standard": {
                "designs": [{"factors": {"path": ["steady", "shaky"], "size": [64, 128]}}],
                "stop": {"repetitions": repetitions, **stop},
            },
        }
    )


@pytest.fixture
def root_folder(tmp_path: Path) -> Path:
    return tmp_path / "campaigns"


def new(root: Path, **how: Any) -> Folder:
    return folder.create(root, campaign(**how), "standard", {"environment": {}, "topology": ""})


def run(f: Folder, study: Study | None = None) -> Study:
    """Run a campaign and return the study that it measured."""
    measured = study or Study()
    engine.execute(f, measured.measure, Quiet(), Deferred(), [])
    return measured


def test_everything_is_measured_once_in_random_order(root_folder: Path) -> None:
    f = new(root_folder)
    s = run(f)
    assert len(s.made) == len(f.records) == 16
    assert {r.status for r in f.records} == {"done"}
    assert s.made[:4] != s.made[4:8], "blocks have different orders"
    table = f.samples()
    assert table.num_rows == 16 * 4
    assert {"factor_path", "factor_size", "run", "block", "cell"} <= set(table.column_names)
    assert table["value"].null_count == 16, "a lost packet is a sample without a value"


def test_a_resumed_campaign_makes_what_is_missing(root_folder: Path) -> None:
    first, f = Study(stop_after=5), new(root_folder)
    with pytest.raises(KeyboardInterrupt), engine.finished(f):
        run(f, first)
    assert len(first.made) == 5
    again = folder.latest(root_folder, "t")
    assert again.manifest["state"] == "interrupted"
    with engine.finished(again):
        second = run(again)
    assert len(second.made) == 11
    assert again.manifest["state"] == "done"
    whole = run(new(root_folder))
    assert first.made + second.made == whole.made, "the order is that of an uninterrupted campaign"


def test_a_failed_repetition_is_recorded_and_the_campaign_goes_on(root_folder: Path) -> None:
    f = new(root_folder)
    run(f, Study(fails={("shaky", 128)}))
    failed = [r for r in f.records if r.status == "failed"]
    assert len(f.records) == 16
    assert len(failed) == 4
    assert {r.reason for r in failed} == {"no answer from 10.0.0.1"}
    assert f.forget_failed() == 4
    healed = run(f)
    assert len(healed.made) == 4
    kept = sorted(p.name for p in (f.path / "runs").glob("*.failed-*.json"))
    assert len(kept) == 4, "what failed stays on record"
    assert len(folder.open_folder(f.path).records) == 16


def test_a_request_to_stop_is_met_between_repetitions(root_folder: Path) -> None:
    s, f, stop = Study(), new(root_folder), Deferred()

    class Asks:
        def recorded(self, progress: engine.Progress, series: list[Series]) -> None:
            if progress.done == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop._keep)
    try:
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            engine.execute(f, s.measure, Quiet(), stop, [Asks()])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(s.made) == len(f.records) == 3


def test_it_stops_early_where_the_interval_is_narrow(root_folder: Path) -> None:
    f = new(root_folder, repetitions=10, until=0.05, metric="throughput", minimum=3)
    s = run(f)
    counts = {(p, n): 0 for p in ("steady", "shaky") for n in (64, 128)}
    for made in s.made:
        counts[made["path"], made["size"]] += 1
    assert counts["steady", 64] == counts["steady", 128] == 3
    assert counts["shaky", 64] == counts["shaky", 128] == 10
    resumed = run(folder.open_folder(f.path))
    assert resumed.made == [], "what was enough stays enough"


def test_narrow_enough() -> None:
    assert engine.narrow_enough([10.0, 10.1, 9.9, 10.0], 0.05, 0.95)
    assert not engine.narrow_enough([10.0, 14.0, 6.0], 0.05, 0.95)
    assert StopRule(repetitions=5).until is None


def test_progress_has_an_eta_and_counts_failures(root_folder: Path) -> None:
    f, seen = new(root_folder, repetitions=1), []

    class Hears:
        def recorded(self, progress: engine.Progress, series: list[Series]) -> None:
            seen.append(progress)

    engine.execute(f, Study(fails={("steady", 64)}).measure, Quiet(), Deferred(), [Hears()])
    assert [(p.done, p.total) for p in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert seen[-1].failed == 1
    assert seen[-1].left == 0
    assert seen[0].left > 0


def test_half_written_repetitions_do_not_count(root_folder: Path) -> None:
    f = new(root_folder)
    run(f)
    # As a crash leaves it: samples without a record, a record half written.
    (f.path / "runs" / "000003.json").unlink()
    (f.path / "runs" / "000004.json").rename(f.path / "runs" / "000004.json.new")
    (f.path / "samples" / "000005.new").write_bytes(b"PAR1")
    again = folder.open_folder(f.path)
    assert len(again.records) == 14
    assert again.samples().num_rows == 14 * 4
    run(again)
    assert again.samples().num_rows == 16 * 4


def test_merging_keeps_every_sample_and_may_be_repeated(root_folder: Path) -> None:
    f = new(root_folder)
    run(f)
    before = f.samples().to_pylist()
    f.merge()
    assert not list((f.path / "samples").glob("*.parquet"))
    merged = pq.read_table(f.path / "samples.parquet").to_pylist()
    assert sorted(map(str, merged)) == sorted(map(str, before))
    f.merge()
    assert folder.open_folder(f.path).samples().num_rows == len(before)


def test_two_commands_do_not_share_a_folder(root_folder: Path) -> None:
    f = new(root_folder)
    other = folder.open_folder(f.path)
    with f.locked(), pytest.raises(VigiaError, match="is being run by another command"), other.locked():
        pass


def test_folders_are_found_by_campaign_or_by_name(root_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        VigiaError, match=r'nothing was measured yet for "t" in .*; run: vigia campaign run t'
    ):
        folder.latest(root_folder, "t")
    one, two = new(root_folder), new(root_folder)
    assert one.path != two.path
    assert folder.latest(root_folder, "t").path == two.path
    assert folder.latest(root_folder, one.name).path == one.path
    assert folder.latest(tmp_path, str(one.path)).path == one.path
    (root_folder / "notes").mkdir()
    assert [f.path for f in folder.list_folders(root_folder)] == [one.path, two.path]
    with pytest.raises(VigiaError, match="is not the folder of a campaign"):
        folder.open_folder(root_folder / "notes")
    one.path.joinpath("manifest.json").write_text("{")
    with pytest.raises(VigiaError, match=r"manifest\.json cannot be read"):
        folder.open_folder(one.path)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_engine import Quiet, Study
from vigia.campaign import engine, folder
from vigia.host.signals import Deferred
print("ready", flush=True)
f = folder.open_folder(Path({path!r}))
with f.locked(), engine.finished(f):
    engine.execute(f, Study().measure, Quiet(), Deferred(), [])
print("complete", flush=True)
"""


def test_killed_at_random_points_it_ends_with_the_same_samples(root_folder: Path) -> None:
    f = new(root_folder, repetitions=40)
    script = KILLED.format(tests=str(Path(__file__).parent), path=str(f.path))
    complete, kills = False, 0
    chance = random.SystemRandom()
    while not complete:
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if kills < 3:
            time.sleep(chance.uniform(0.0, 0.15))
            child.kill()
            kills += 1
        complete = "complete" in child.stdout.read()
        child.wait()
        child.stdout.close()
    again = folder.open_folder(f.path)
    table = again.samples()
    assert len(again.records) == 160
    assert table.num_rows == 160 * 4
    assert (
        len(
            set(
                zip(
                    table["run"].to_pylist(),
                    table["metric"].to_pylist(),
                    table["sequence"].to_pylist(),
                    strict=True,
                )
            )
        )
        == 640
    )
    assert json.loads((f.path / "manifest.json").read_text())["state"] == "done"


def test_a_record_reads_back(root_folder: Path) -> None:
    f = new(root_folder)
    record = Record(
        3, 0, 1, {"path": "a", "size": 64}, 1.5, 2.5, 2, load=(0.5, 1.0), events=[{"at": 2.0, "what": "x"}]
    )
    f.add(record, [Series("rtt", "s", [1.0, 2.0])])
    assert folder.open_folder(f.path).record(3) == record
