"""E5 as a campaign: its cells, its measurement with real traffic, its report."""

from __future__ import annotations

import numpy as np
import pytest

from vigia.campaign.model import Campaign, Settings, Size
from vigia.report.data import Data, Repetition
from vigia.report.document import Document
from vigia.studies import catalogue
from vigia.studies.guarantees import report
from vigia.studies.guarantees.measurement import MEASUREMENT


def campaign() -> Campaign:
    (found,) = [c for c in catalogue.shipped() if c.name == "e5-a"]
    return found


@pytest.mark.parametrize("size", ["standard", "full"])
def test_the_campaign_fits_its_measurement(size: Size) -> None:
    """Both directions, and every combination of traffic: 110 cells in either size."""
    plan = campaign().plan(size)
    catalogue.check(campaign(), plan, MEASUREMENT)
    cells = plan.cells()
    assert len(cells) == 110
    assert {c["direction"] for c in cells} == {"receive", "send"}
    assert {c["control"] for c in cells} == {"none", "rigid", "borrowing", "paper", "vigia"}
    assert not any(c["a"] == c["b"] == "none" for c in cells)
    assert catalogue.cost(plan, MEASUREMENT).seconds > 0


def test_one_repetition(root: None) -> None:
    cell = {"control": "none", "direction": "send", "a": "tcp-1", "b": "none"}
    settings = Settings.model_validate({"duration": "1s", "warm_up": "1s", "limit": "50Mbit"})
    series = {s.metric: s for s in MEASUREMENT.measure(cell, settings, None)}  # type: ignore[arg-type]
    assert set(series) == {"goodput_a", "share_a", "first_a", "used"}
    assert series["goodput_a"].unit == "bit/s"
    assert series["goodput_a"].values[0] > 0


TCP, UDP = 1448 / 1514, 1400 / 1442
"""Payload in full frames."""


def repetitions(control: str, of_a: float, of_b: float, *, times: int = 8, **more: str) -> list[Repetition]:
    """What A and B got of their guarantees' payload, with a little noise."""
    rng = np.random.default_rng(len(control))
    factors = {"control": control, "direction": "receive", "a": "tcp-1", "b": "udp-1", **more}
    made = []
    for block in range(times):
        noise = rng.uniform(-0.005, 0.005)
        samples = {
            "share_a": np.array([(of_a + noise) * TCP]),
            "share_b": np.array([(of_b + noise) * (UDP if factors["b"] == "udp-1" else TCP)]),
            "first_a": np.array([0.5 * of_a * TCP]),
            "used": np.array([0.95]),
        }
        made.append(Repetition(block, factors, samples, block))
    return made


UNITS = {"share_a": "ratio", "share_b": "ratio", "first_a": "ratio", "used": "ratio"}


def built(*repetitions: list[Repetition]) -> Document:
    return report.build(campaign(), Data([r for some in repetitions for r in some], UNITS))


def test_the_report_says_who_keeps_the_guarantee() -> None:
    document = built(repetitions("none", 0.1, 3.0), repetitions("vigia", 1.0, 1.0))
    assert document.answer == (
        "Host 1 only receives, and tenant A keeps its guarantee in every cell with vigia; it does not with none "
        "(10.1 % against udp-1)."
    )
    kept = {r[0]: r for r in document.sections[0].tables[0].rows}
    assert (kept["vigia"][1], kept["vigia"][2]) == ("kept", "1 of 1")
    assert (kept["none"][1], kept["none"][2]) == ("not kept", "0 of 1")
    assert kept["none"][3].startswith("receive, A tcp-1, B udp-1: 9.6")
    assert any("in the other direction: host 1 receives only" in line for line in document.summary.silent)


def test_one_cell_below_is_a_guarantee_not_kept() -> None:
    document = built(
        repetitions("paper", 1.0, 1.0),
        repetitions("paper", 1.0, 1.0, direction="send"),
        repetitions("paper", 0.8, 1.0, b="tcp-10", direction="send"),
    )
    assert "Tenant A does not keep its guarantee with paper (79.9 % against tcp-10)" in document.answer
    assert "Host 1 only" not in document.answer, "both directions were measured"
    (row,) = document.sections[0].tables[0].rows
    assert row[1:3] == ["not kept", "2 of 3"]


def test_what_reaches_over_the_bound_is_open() -> None:
    document = built(repetitions("vigia", 0.95, 1.0))
    assert document.answer.endswith("it is open with vigia.")


def test_lending_is_judged_where_a_tenant_is_alone() -> None:
    alone = repetitions("borrowing", 1.3, 0.0, b="none")
    few = [
        Repetition(r.run, r.factors, {**r.samples, "used": np.array([0.71])}, r.block)
        for r in repetitions("rigid", 1.0, 0.0, b="none")
    ]
    found = {r[0]: r[7] for r in built(alone, few).sections[0].tables[0].rows}
    assert found == {"borrowing": "kept", "rigid": "not kept"}


def test_shares_are_of_payload_and_the_first_second_is_shown() -> None:
    document = built(repetitions("none", 0.1, 3.0))
    (row,) = document.sections[1].tables[0].rows
    assert row[5].startswith("10.1 [")
    assert row[7].startswith("5.00 [")
    captions = [f.caption for f in document.sections[1].figures]
    assert captions[0].startswith("What tenant A got of its guarantee (the line), host 1 receives; a dot")
    assert "host 1 receives, in the first second" in captions[1]
    assert captions[2].startswith("What tenant B")
    assert all("<svg" in f.svg for f in document.sections[1].figures)


def test_what_contradicts_the_study_is_said_with_a_reason() -> None:
    document = built(
        repetitions("none", 0.1, 3.0),
        repetitions("borrowing", 0.1, 3.0),
        repetitions("borrowing", 0.2, 3.0, b="tcp-10"),
        repetitions("paper", 1.0, 1.0),
        repetitions("paper", 1.0, 1.0, b="tcp-10"),
    )
    assert document.summary.agreement.startswith(
        "partly agrees: 4 of 5 of the study's findings are seen here; not: borrowing under TCP is not kept here"
    )
    assert "the access link drops frames of both tenants" in document.summary.agreement
    assert document.summary.confidence.startswith("high: ")


def test_nothing_beside_another_tenant() -> None:
    assert built(repetitions("none", 1.3, 0.0, b="none")).answer == (
        "No guarantee was measured beside another tenant's traffic."
    )
