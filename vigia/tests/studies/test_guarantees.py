"""E5 as a campaign: its cells, its measurement with real traffic, its report."""

from __future__ import annotations

import numpy as np
import pytest

from vigia.campaign.model import Campaign, Settings
from vigia.report.data import Data, Repetition
from vigia.studies import catalogue
from vigia.studies.guarantees import report
from vigia.studies.guarantees.measurement import MEASUREMENT


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e5-a"]
    return found


@pytest.mark.parametrize("full", [False, True])
def test_the_campaign_fits_its_measurement(full: bool) -> None:
    plan = campaign().plan(full)
    catalogue.check(campaign(), plan, MEASUREMENT)
    cells = plan.cells()
    assert len(cells) == (15 if not full else 110)
    assert {c["control"] for c in cells} == {"none", "rigid", "borrowing", "paper", "vigia"}
    assert not any(c["a"] == c["b"] == "none" for c in cells)
    assert catalogue.cost(plan, MEASUREMENT).seconds > 0


def test_one_repetition(root: None) -> None:
    cell = {"control": "none", "direction": "send", "a": "tcp-1", "b": "none"}
    settings = Settings.model_validate({"duration": "1s", "warm_up": "1s", "limit": "50Mbit"})
    series = {s.metric: s for s in MEASUREMENT.measure(cell, settings, None)}  # type: ignore[arg-type]
    assert set(series) == {"goodput_a", "share_a", "used"}
    assert series["goodput_a"].unit == "bit/s"
    assert series["goodput_a"].values[0] > 0


def repetition(control: str, a: float, b: float) -> Repetition:
    factors = {"control": control, "direction": "receive", "a": "tcp-1", "b": "udp-1"}
    samples = {"share_a": np.array([a]), "share_b": np.array([b]), "used": np.array([1.0])}
    return Repetition(1, factors, samples)


def test_the_report_says_who_keeps_the_guarantee() -> None:
    data = Data(
        [repetition("none", 0.1, 3.0), repetition("vigia", 0.96, 1.0), repetition("vigia", 0.95, 1.0)],
        {"share_a": "ratio", "share_b": "ratio", "used": "ratio"},
    )
    document = report.build(campaign(), data)
    assert "keeps its guarantee with vigia" in document.answer
    # Payload of what was guaranteed in frames: 0.1 of frames is 0.1046 of the payload in them.
    assert "none (10.5 %)" in document.answer
    (table,) = document.sections[0].tables
    assert [row[3] for row in table.rows] == ["none", "vigia"]
    of_a, of_b = document.sections[0].figures
    assert of_a.caption == "What tenant A got of its guarantee (the line), host 1 receives"
    assert of_b.caption.startswith("What tenant B")
    assert all("<svg" in f.svg for f in (of_a, of_b))
