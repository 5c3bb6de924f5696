"""Reports: the published examples made anew from their data, what they say, how numbers are written."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labkit import ROOT

from vigia.campaign import folder
from vigia.errors import VigiaError
from vigia.report import build, compare, page, pairing
from vigia.report.data import jitter, load, missing
from vigia.report.document import Document
from vigia.studies import catalogue, running
from vigia.studies.openflow import verdict
from vigia_statistics import Direction

EXAMPLES = ROOT / "docs" / "examples"
NAMES = ("e1", "e2", "e3", "e4", "e5-a", "e5-b")


def documented(f: folder.Folder) -> Document:
    """The report of a campaign, by its study."""
    study = catalogue.study(f.campaign.study)
    return build.assemble(f, study.report, study.measurement.scale(f.plan.settings))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_what_its_data_say(name: str) -> None:
    f = folder.open_folder(EXAMPLES / name)
    document = documented(f)
    rows = (EXAMPLES / "README.md").read_text()
    assert f"| {document.question} | {document.answer} |" in rows
    assert (EXAMPLES / name / "report.pdf").read_bytes().startswith(b"%PDF-")
    text = page.html(document)
    assert document.answer.split(";")[0].split(" [")[0] in text
    assert not re.search(r'(src|href)="(?!samples|manifest|runs|#)', text), "nothing to load"
    assert "<script" not in text
    assert len(f.records) == len(f.plan.cells()) * f.plan.stop.repetitions
    made = load(f)
    assert sum(v.size for r in made.repetitions for v in r.samples.values()) == f.samples().num_rows


def test_the_pages_are_written_beside_the_data(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e3", tmp_path / "e3")
    for name in ("report.html", "report.pdf"):
        (tmp_path / "e3" / name).unlink()
    _, files = running.write_report(folder.open_folder(tmp_path / "e3"), pdf=True)
    assert [f.name for f in files] == ["report.html", "report.pdf"]
    assert files[1].read_bytes().startswith(b"%PDF-")
    assert "Median round trip (interquartile range)" in files[0].read_text()


def test_a_campaign_compared_with_itself_differs_in_nothing() -> None:
    e3 = folder.open_folder(EXAMPLES / "e3")
    pairs = pairing.pairs(e3, e3, "bandwidth")
    assert len(pairs) == 5
    assert not any(p.significant for p in pairs)
    assert all(p.comparison.shift == 0 for p in pairs)
    assert pairs[0].as_json()["metric"] == "bandwidth"
    with pytest.raises(VigiaError, match="have no combination of nothing that both measured"):
        pairing.pairs(e3, e3, "nothing")


def test_the_command_line(vigia: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e4", tmp_path / "e4")
    done = vigia("campaign", "report", str(tmp_path / "e4"), "--no-pdf", "--json")
    assert done.status == 0, done.stderr
    assert (
        done.json["answer"]
        == "Of 10 measures of direct and linuxbridge-vxlan, 1 differs significantly: network (+3.6%)."
    )
    shown = vigia("campaign", "run", "e1", "--dry-run")
    assert "runs, order randomised, about" in shown.stdout
    assert vigia("campaign", "report", "e1", "--directory", str(tmp_path)).status == 1


def test_what_a_repetition_becomes() -> None:
    values = np.array([1.0, 3.0, math.nan, 2.0])
    assert jitter(values) == 1.5
    assert missing(values) == 0.25


def test_a_winner_is_named_only_where_the_tests_separate() -> None:
    low, high = np.arange(1.0, 7.0), np.arange(11.0, 17.0)
    assert compare.judged({"a": low, "b": high}, Direction.LOWER, 0.95).shown == "a"
    assert compare.judged({"a": low, "b": high}, Direction.HIGHER, 0.95).shown == "b"
    assert compare.judged({"a": low, "b": low + 0.1}, Direction.LOWER, 0.95).shown == "tie"
    assert compare.judged({"a": low[:2], "b": high[:2]}, Direction.LOWER, 0.95).shown == "too few data"


def judged(shift: float, spread: float, noise: float = 1e-6) -> str:
    rng = np.random.default_rng(5)

    def around(middle: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        return middle + rng.uniform(-noise, noise, 12)

    return verdict.forwarding(
        around(100e-6 + 2 * shift), around(20e-6 + spread), around(100e-6), around(20e-6), 0.99
    ).verdict


def test_hardware_or_software() -> None:
    assert judged(shift=3e-6, spread=0.5e-6) == "hardware"
    assert judged(shift=200e-6, spread=300e-6) == "software"
    assert judged(shift=200e-6, spread=0.5e-6) == "undecided", "long, but as constant as a pipeline"
    assert judged(shift=10e-6, spread=5e-6, noise=20e-6) == "undecided", "the intervals are too wide"
    none = np.array([])
    assert verdict.forwarding(none, none, none, none, 0.99).verdict == "undecided"


def test_what_happened_meanwhile_is_marked_on_a_timeline(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "e3", tmp_path / "e3")
    runs = json.loads((tmp_path / "e3" / "runs.json").read_text())
    for number, run in ((3, runs[3]), (7, runs[7])):
        at = run["began"] + 0.5 * run["seconds"]
        run["events"] = [{"at": at, "what": f"IPsec of path {number} was rekeyed"}]
    (tmp_path / "e3" / "runs.json").write_text(json.dumps(runs))
    text = page.html(documented(folder.open_folder(tmp_path / "e3")))
    for number, path in ((1, 3), (2, 7)):
        assert f"IPsec of path {path} was rekeyed" in text
        assert f"mark {number}: IPsec of path {path} was rekeyed" in text, "the line is in the figure, too"
    assert "What happened meanwhile" in text and "When what was measured" in text
    unmarked = page.html(documented(folder.open_folder(EXAMPLES / "e3")))
    assert "When what was measured" not in unmarked
