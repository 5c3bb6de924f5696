"""Finding studies, the campaigns and topologies that come with them, and checking that a campaign fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vigia.campaign import design, model
from vigia.campaign.catalogue import STUDIES
from vigia.campaign.hypotheses import Hypothesis
from vigia.campaign.model import Campaign, Plan
from vigia.campaign.testbed import Testbed
from vigia.errors import OptionError, VigiaError
from vigia.studies.study import Estimate, Measurement, Study

__all__ = [
    "check",
    "check_design",
    "check_testbed",
    "cost",
    "find",
    "hypotheses",
    "shipped",
    "study",
    "topology_text",
]

_NAME = re.compile(r"^name:\s*(\S+)", re.MULTILINE)


def study(name: str) -> Study:
    """Return the study that a campaign file names."""
    return Study(name)


def shipped() -> list[Campaign]:
    """Return the campaigns that come with the program, by name."""
    return sorted((Study(name).campaign for name in STUDIES), key=lambda c: c.name)


def find(wanted: str) -> tuple[Campaign, Path | None]:
    """Return a shipped campaign by name, or the one in a file, and the file. Raises VigiaError."""
    known = {c.name: c for c in shipped()}
    if wanted in known:
        return known[wanted], None
    path = Path(wanted)
    if path.suffix in (".yaml", ".yml"):
        return model.load(path), path
    raise OptionError(
        f'there is no campaign "{wanted}"; write one of {", ".join(known)}, or a file that ends in .yaml'
    )


def topology_text(wanted: str, beside: Path | None) -> str:
    """Return the text of a campaign's topology: of a file, or the one of that name. Raises VigiaError."""
    if wanted.endswith((".yaml", ".yml")):
        file = (beside.parent if beside else Path()) / wanted
        try:
            return file.read_text()
        except OSError as e:
            raise VigiaError(f"topology {file} cannot be read: {e.strerror}") from e
    found = [text for name in STUDIES if (text := Study(name).topology)]
    known = {m[1]: text for text in found if (m := _NAME.search(text))}
    if wanted not in known:
        names = ", ".join(sorted(known))
        raise VigiaError(f'there is no topology "{wanted}"; write a file, or one of {names}')
    return known[wanted]


def check(campaign: Campaign, plan: Plan, measurement: Measurement) -> None:
    """Raise VigiaError if a combination lacks a factor, has one too many, or a level that does not exist."""
    wanted = measurement.factors
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
                    f'campaign {campaign.name}: "{cell[name]}" is not a level of {name}; write one of {known}'
                )


def hypotheses(campaign: Campaign) -> Sequence[Hypothesis]:
    """Return what a campaign states; if nothing, what its study does."""
    return campaign.hypotheses or Study(campaign.study).campaign.hypotheses


def check_design(campaign: Campaign, plan: Plan) -> None:
    """Raise VigiaError if a plan cannot separate what its hypotheses ask."""
    stated = hypotheses(campaign)
    cells, times = plan.cells(), plan.stop.repetitions
    design.check(campaign.name, design.abilities(stated, cells, times, campaign.confidence))


def check_testbed(campaign: Campaign, plan: Plan, testbed: Testbed) -> None:
    """Raise VigiaError if a combination needs a connection that the testbed has not."""
    for cell in plan.cells():
        path = cell.get("path", cell.get("site"))
        if path is None:
            continue
        try:
            testbed.pairs(str(path), str(cell.get("placement", "cross-node")), int(cell.get("machines", 2)))
        except VigiaError as e:
            raise VigiaError(f"campaign {campaign.name} cannot be run here: {e}") from e


def cost(plan: Plan, measurement: Measurement) -> Estimate:
    """Return what all repetitions of a plan cost together, at most."""
    each = [measurement.estimate(cell, plan.settings) for cell in plan.cells()]
    times = plan.stop.repetitions
    return Estimate(sum(e.seconds for e in each) * times, sum(e.bytes for e in each) * times)
