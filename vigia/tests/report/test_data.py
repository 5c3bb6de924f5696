"""Samples arranged for questions: the repetition is the unit, and what was lost is not a value."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from vigia.campaign import folder
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Record, Series
from vigia.report.data import Data, Repetition, jitter, load, mean, median, missing, published

NAN = math.nan


@pytest.fixture
def data() -> Data:
    """Two paths, three repetitions; one packet of the first was lost, and nothing of the last arrived."""
    return Data(
        [
            Repetition(0, {"path": "a", "size": 64}, {"rtt": np.array([1.0, NAN, 3.0])}),
            Repetition(1, {"path": "b", "size": 64}, {"rtt": np.array([5.0, 5.0]), "rate": np.array([9.0])}),
            Repetition(2, {"path": "a", "size": 128}, {"rtt": np.array([NAN, NAN])}),
        ],
        {"rtt": "s", "rate": "bit/s"},
    )


def test_repetitions_of_some_levels(data: Data) -> None:
    assert [r.run for r in data.where(path="a")] == [0, 2]
    assert [r.run for r in data.where(path="a", size=64)] == [0]
    assert [r.run for r in data.where(size="64")] == [0, 1], "a level is what it is written as"
    assert [r.run for r in data.where()] == [0, 1, 2]
    assert list(data.where(colour="red")) == []


def test_levels_come_in_the_order_of_the_campaign(data: Data) -> None:
    assert data.levels("size") == [64, 128]
    assert data.levels("size", path="b") == [64]
    assert data.levels("colour") == []


def test_a_repetition_is_one_number(data: Data) -> None:
    assert list(data.each("rtt", mean)) == [2.0, 5.0], "the last has none"
    assert list(data.each("rate", mean)) == [9.0]
    assert list(data.each("rtt", missing, path="a")) == [pytest.approx(1 / 3), 1.0]
    assert data.each("delay", mean).size == 0


def test_samples_of_all_repetitions_together(data: Data) -> None:
    assert list(data.pooled("rtt")) == [1.0, 3.0, 5.0, 5.0]
    assert data.pooled("delay").size == 0


def test_packets_are_counted_whatever_they_met(data: Data) -> None:
    assert data.lost("rtt") == (3, 7)
    assert data.lost("rtt", path="b") == (0, 2)
    assert data.lost("delay") == (0, 0)


@pytest.mark.parametrize(
    ("reduce", "values", "wanted"),
    [
        (mean, [1.0, NAN, 3.0], 2.0),
        (median, [1.0, NAN, 30.0, 2.0], 2.0),
        (jitter, [1.0, 4.0, 2.0], 2.5),
        (jitter, [1.0, NAN, 4.0], 3.0),
        (missing, [1.0, NAN, 4.0, NAN], 0.5),
        (missing, [1.0], 0.0),
    ],
)
def test_what_a_repetition_becomes(reduce: object, values: list[float], wanted: float) -> None:
    assert callable(reduce)
    assert reduce(np.array(values)) == wanted


@pytest.mark.parametrize(("reduce", "values"), [(mean, [NAN]), (median, []), (jitter, [1.0]), (missing, [])])
def test_of_nothing_there_is_no_number(reduce: object, values: list[float]) -> None:
    assert callable(reduce)
    assert math.isnan(reduce(np.array(values)))


def test_what_is_loaded_is_what_was_measured(tmp_path: Path) -> None:
    about = {"version": 1, "name": "t", "title": "T", "question": "Q?", "study": "overlays", "topology": "e1"}
    small = {"designs": [{"factors": {"path": ["a", "b"]}}], "stop": {"repetitions": 2}}
    f = folder.create(tmp_path, Campaign.model_validate({**about, "standard": small}), "standard", {})
    made = [  # in the order of measurement; a plan has the cells in another one
        Record(0, 0, 1, {"path": "b"}, 10.0, 1.0, 2),
        Record(1, 0, 0, {"path": "a"}, 12.0, 1.0, 2),
        Record(2, 1, 0, {"path": "a"}, 14.0, 1.0, 0, "failed", "no answer"),
    ]
    for r in made:
        series = [Series("rtt", "s", [r.run + 0.5, NAN]), Series("rate", "bit/s", [r.run * 10.0])]
        f.add(r, series if r.status == "done" else [])
    found = load(f)
    assert [(r.run, dict(r.factors)) for r in found.repetitions] == [(1, {"path": "a"}), (0, {"path": "b"})]
    assert found.units == {"rtt": "s", "rate": "bit/s"}
    first = found.repetitions[0].samples
    assert list(first) == ["rtt", "rate"]
    assert first["rtt"][0] == 1.5
    assert math.isnan(first["rtt"][1])
    assert list(first["rate"]) == [10.0]


def test_an_empty_folder_has_no_data(tmp_path: Path) -> None:
    about = {"version": 1, "name": "t", "title": "T", "question": "Q?", "study": "overlays", "topology": "e1"}
    small = {"designs": [{"factors": {"path": ["a"]}}], "stop": {"repetitions": 2}}
    found = load(
        folder.create(tmp_path, Campaign.model_validate({**about, "standard": small}), "standard", {})
    )
    assert (found.repetitions, found.units) == ([], {})


def test_a_published_table_has_its_comments_left_out() -> None:
    rows = published("shuffle", "job")
    assert rows[0]["competitors"] == "none"
    assert all(float(r["job_s"]) > 0 for r in rows)
    with pytest.raises(FileNotFoundError):
        published("shuffle", "nothing")
