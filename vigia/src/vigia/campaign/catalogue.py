"""Which measurement each study has, and the check that a campaign fits it."""

from __future__ import annotations

from collections.abc import Mapping

from vigia.campaign.bed import Bed
from vigia.campaign.measurements import Estimate, Measurement
from vigia.campaign.measurements.guarantees import Guarantees
from vigia.campaign.measurements.isolation import Isolation
from vigia.campaign.measurements.managers import Managers
from vigia.campaign.measurements.openflow import OpenFlow
from vigia.campaign.measurements.overlays import Overlays
from vigia.campaign.measurements.shuffle import Shuffle
from vigia.campaign.model import Campaign, Plan, Settings, Study
from vigia.errors import VigiaError

__all__ = ["check", "check_bed", "cost", "measurement", "scale"]

_MEASUREMENTS: Mapping[Study, Measurement] = {
    "overlays": Overlays(),
    "openflow": OpenFlow(),
    "isolation": Isolation(),
    "managers": Managers(),
    "guarantees": Guarantees(),
    "shuffle": Shuffle(),
}


def measurement(study: Study) -> Measurement:
    """Return the measurement of a study."""
    return _MEASUREMENTS[study]


def scale(study: Study, settings: Settings) -> str:
    """Say to what a study's rates are scaled, where links are made for it; empty where they are not."""
    if study not in ("guarantees", "shuffle"):
        return ""
    made = (
        f"links of {8 * settings.limit / 1e6:g} Mbit/s (1 Gbit/s in the study): what a small machine carries"
    )
    if study == "guarantees":
        return f"{made}; traffic is counted for {settings.duration:g} s after {settings.warm_up:g} s"
    return f"{settings.hosts} hosts, {made}; {settings.partition} bytes from each machine to each other one"


def check(campaign: Campaign, plan: Plan) -> None:
    """Raise VigiaError if a combination lacks a factor, has one too many, or a level that does not exist."""
    wanted = measurement(campaign.study).factors
    for cell in plan.cells():
        for name in sorted(wanted.keys() ^ cell.keys()):
            problem = "is missing" if name in wanted else "is unknown"
            raise VigiaError(
                f"campaign {campaign.name}: the factor {name} {problem}; "
                f"{campaign.study} has {', '.join(wanted)}"
            )
        for name, levels in wanted.items():
            if levels is not None and str(cell[name]) not in levels:
                known = ", ".join(levels)
                raise VigiaError(
                    f'campaign {campaign.name}: "{cell[name]}" is no level of {name}; write one of {known}'
                )


def check_bed(campaign: Campaign, plan: Plan, bed: Bed) -> None:
    """Raise VigiaError if a combination needs a connection that the bed has not."""
    for cell in plan.cells():
        path = cell.get("path", cell.get("site"))
        if path is None:
            continue
        try:
            bed.pairs(str(path), str(cell.get("placement", "cross-node")), int(cell.get("machines", 2)))
        except VigiaError as e:
            raise VigiaError(f"campaign {campaign.name} cannot be run here: {e}") from e


def cost(campaign: Campaign, plan: Plan) -> Estimate:
    """Return what all repetitions cost together, at most."""
    study = measurement(campaign.study)
    each = [study.estimate(cell, plan.settings) for cell in plan.cells()]
    times = plan.stop.repetitions
    return Estimate(sum(e.seconds for e in each) * times, sum(e.bytes for e in each) * times)
