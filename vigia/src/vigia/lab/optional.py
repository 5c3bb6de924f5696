"""Paths that a lab has only where the machine can: they are left out, never replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vigia.errors import VigiaError
from vigia.lab import ipsec, model, openflow, sriov
from vigia.lab.model import Lab
from vigia.lab.schema import PathSpec
from vigia.lab.topology import Topology

__all__ = ["without_impossible"]


def _sriov(path: PathSpec) -> None:
    sriov.take(2, path.device)


def _controller(path: PathSpec) -> None:
    if path.rules == "os-ken":
        openflow.check_controller()


_CHECKS: Mapping[str, Callable[[PathSpec], None]] = {
    "ipsec": lambda path: ipsec.check(),
    "sriov": _sriov,
    "overlay": _controller,
}
"""Raises VigiaError if the machine cannot have the path; one of another kind every lab can have."""


def without_impossible(lab: Lab) -> tuple[Lab, dict[str, str]]:
    """Return the lab without the optional paths that the machine cannot have, and the reason of each."""
    reasons: dict[str, str] = {}
    for path in lab.topology.paths:
        if path.optional and path.kind in _CHECKS:
            try:
                _CHECKS[path.kind](path)
            except VigiaError as e:
                reasons[path.name] = str(e)
    for path in lab.topology.paths:  # and what goes over them
        if path.over in reasons and path.name not in reasons:
            reasons[path.name] = f"there is no {path.over}"
    if not reasons:
        return lab, reasons
    given = lab.topology.model_dump(mode="json")
    given["paths"] = [p for p in given["paths"] if p["name"] not in reasons]
    given["networks"] = [n for n in given["networks"] if n["path"] not in reasons]
    return model.resolve(Topology.model_validate(given)), reasons
