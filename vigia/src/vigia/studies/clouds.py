"""Campaigns on the network of a cloud: what of a campaign it has paths for, and a lab to measure it in."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from vigia.campaign.model import SIZES, Campaign, Design, Plan
from vigia.errors import VigiaError
from vigia.lab import clouds, naming

__all__ = ["fit"]


def fit(campaign: Campaign, own: str, cloud: str) -> tuple[Campaign, str]:
    """Return the part of a campaign that a cloud has paths for, and the text of a topology of that cloud.

    own is the text of the campaign's topology, which says how fast links are, and where the lab is. The
    machines are the operator's own, as many as the campaign asks for. Raises VigiaError.
    """
    name = clouds.load(cloud).topology
    file = resources.files("vigia.lab").joinpath(f"topologies/{name}.yaml")
    there: dict[str, Any] = yaml.safe_load(file.read_text())
    paths = [p["name"] for p in there["paths"]]
    plans = {size: _within(campaign.plan(size), set(paths)) for size in campaign.sizes}
    cells = [cell for plan in plans.values() if plan is not None for cell in plan.cells()]
    if not cells:
        raise VigiaError(
            f"campaign {campaign.name} measures nothing that the cloud {cloud} has, whose paths are "
            f"{', '.join(paths)}; run it without --cloud"
        )
    fitted = campaign.model_copy(update={size: plans.get(size) for size in SIZES})
    return fitted, _topology(there, yaml.safe_load(own), max(int(c.get("machines", 2)) for c in cells))


def _within(plan: Plan, paths: set[str]) -> Plan | None:
    """Return a plan without the paths that are not there; None if nothing is left."""
    designs = []
    for design in plan.designs:
        factors = dict(design.factors)
        factors["path"] = [p for p in factors.get("path", []) if p in paths]
        if factors["path"]:
            designs.append(Design(factors=factors))
    return plan.model_copy(update={"designs": designs}) if designs else None


def _topology(there: dict[str, Any], own: dict[str, Any], machines: int) -> str:
    kept = [n for n in there["networks"] if n["tenant"] == naming.INFRA]
    return yaml.safe_dump(
        {
            **there,
            **{key: own[key] for key in ("name", "agents", "stack_address")},
            "tenants": [],
            "links": [
                {**link, "rate": own["links"][0]["rate"], "queue": own["links"][0]["queue"]}
                for link in there["links"]
            ],
            "networks": [{**n, "machines": machines} for n in kept],
        },
        sort_keys=False,
    )
