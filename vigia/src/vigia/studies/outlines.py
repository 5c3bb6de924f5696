"""What a campaign would do, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vigia.campaign import design
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign, Plan
from vigia.studies import catalogue

__all__ = ["ABILITY_HEADER", "abilities", "outline", "preview", "state"]

ABILITY_HEADER = (
    "hypothesis",
    "comparisons",
    "repetitions",
    "smallest effect",
    "power",
    "repetitions needed",
)


def state(f: Folder) -> dict[str, object]:
    """Return how far a campaign is, as data."""
    return {
        "name": f.name,
        "state": f.manifest["state"],
        "done": sum(r.status == "done" for r in f.records),
        "failed": sum(r.status == "failed" for r in f.records),
        "total": len(f.plan.cells()) * f.plan.stop.repetitions,
    }


def outline(wanted: Campaign, plan: Plan) -> dict[str, object]:
    """Return what a campaign would do, as data. Raises VigiaError for combinations that its study has not."""
    measurement = catalogue.study(wanted.study).measurement
    catalogue.check(wanted, plan, measurement)
    cost = catalogue.cost(plan, measurement)
    return {
        "campaign": wanted.name,
        "question": wanted.question,
        "combinations": len(plan.cells()),
        "repetitions": plan.stop.repetitions,
        "seconds": round(cost.seconds),
        "traffic_bytes_at_most": round(cost.bytes),
    }


def abilities(wanted: Campaign, plan: Plan) -> list[Sequence[object]]:
    """Return what a plan can find, a row for each hypothesis under ABILITY_HEADER."""
    found = design.abilities(
        catalogue.hypotheses(wanted), plan.cells(), plan.stop.repetitions, wanted.confidence
    )
    return [
        (
            a.hypothesis.name,
            a.questions,
            a.repetitions,
            a.hypothesis.shown(a.hypothesis.smallest_effect),
            f"{a.power:.2f}",
            "more than 200" if a.needed is None else a.needed,
        )
        for a in found
    ]


def preview(wanted: Campaign, plan: Plan) -> str:
    """Return what a campaign would do, in a line: runs, time, traffic."""
    measurement = catalogue.study(wanted.study).measurement
    cost = catalogue.cost(plan, measurement)
    cells, times = len(plan.cells()), plan.stop.repetitions
    scaled = f"; {scale}" if (scale := measurement.scale(plan.settings)) else ""
    end = time.strftime("%H:%M", time.localtime(time.time() + cost.seconds))
    until = f", fewer once {plan.stop.metric} is known to {plan.stop.until:.0%}" if plan.stop.until else ""
    return (
        f"{cells} combinations, {times} repetitions each{until}: {cells * times} runs, order {wanted.order}, "
        f"about {_time(cost.seconds)} (without a break until {end}), at most {cost.bytes / 1e9:.3g} GB of "
        f"traffic{scaled}"
    )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
