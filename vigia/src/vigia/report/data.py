"""A campaign's samples, arranged for questions: by combination, by repetition."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from vigia.campaign.folder import Folder
from vigia.campaign.model import Factor, Settings

__all__ = [
    "REDUCE",
    "Data",
    "Floats",
    "Repetition",
    "joined",
    "load",
    "mean",
    "median",
    "missing",
    "published",
]

Floats = NDArray[np.float64]
Reduce = Callable[[Floats], float]
Completed = Callable[[Mapping[str, Factor], Settings], Mapping[str, Factor]]
"""Gives the cells of a campaign of an earlier version the factors that it did not vary."""


@dataclass(frozen=True)
class Repetition:
    """One repetition: its factors, and its samples by metric, in the order of measurement."""

    run: int
    factors: Mapping[str, Factor]
    samples: Mapping[str, Floats]
    """NaN is a packet that was lost."""
    block: int = 0
    """Blocks hold every combination once."""


class Data:
    """All repetitions that were done."""

    def __init__(
        self,
        repetitions: list[Repetition],
        units: Mapping[str, str],
        conditions: Sequence[str] = (),
        settings: Settings | None = None,
    ) -> None:
        self.repetitions = repetitions
        self.units = units
        self.each_condition = conditions
        """What of the machine and the lab decides outcomes, each as a part of a sentence."""
        self.settings = settings or Settings()

    @property
    def conditions(self) -> str:
        """Return what decides outcomes as one part of a sentence; empty if not known."""
        return ", ".join(self.each_condition)

    @property
    def cells(self) -> list[Mapping[str, Factor]]:
        """Every combination that was measured, once."""
        return list({tuple(r.factors.items()): r.factors for r in self.repetitions}.values())

    @property
    def blocks(self) -> list[int]:
        """The blocks that anything was measured in."""
        return sorted({r.block for r in self.repetitions})

    def by_block(self, metric: str, reduce: Reduce, factors: Mapping[str, Factor]) -> dict[int, float]:
        """Return the number of each block's repetition of a combination; NaN if it has no sample of the metric."""
        return {
            r.block: reduce(r.samples[metric]) if metric in r.samples else float("nan")
            for r in self.repetitions
            if dict(r.factors) == dict(factors)
        }

    def where(self, **factors: Factor) -> Iterator[Repetition]:
        """Yield the repetitions that have these levels."""
        for r in self.repetitions:
            if all(str(r.factors.get(name)) == str(level) for name, level in factors.items()):
                yield r

    def levels(self, factor: str, **factors: Factor) -> list[Factor]:
        """Return the levels of a factor among those repetitions, in the order of the campaign."""
        return list(dict.fromkeys(r.factors[factor] for r in self.where(**factors) if factor in r.factors))

    def each(self, metric: str, reduce: Reduce, **factors: Factor) -> Floats:
        """Return one number per repetition: the experimental unit. Repetitions without any are left out."""
        values = [reduce(r.samples[metric]) for r in self.where(**factors) if metric in r.samples]
        array = np.asarray(values, dtype=np.float64)
        return array[np.isfinite(array)]

    def pooled(self, metric: str, **factors: Factor) -> Floats:
        """Return all samples of those repetitions, without the lost ones."""
        parts = [r.samples[metric] for r in self.where(**factors) if metric in r.samples]
        array = np.concatenate(parts) if parts else np.empty(0)
        return array[np.isfinite(array)]

    def lost(self, metric: str, **factors: Factor) -> tuple[int, int]:
        """Return how many packets were lost, and how many were sent."""
        parts = [r.samples[metric] for r in self.where(**factors) if metric in r.samples]
        return sum(int(np.isnan(p).sum()) for p in parts), sum(p.size for p in parts)


def load(folder: Folder, completed: Completed = lambda factors, _: factors) -> Data:
    """Read a campaign's samples."""
    table = folder.samples()
    columns = {n: table[n].to_numpy(zero_copy_only=False) for n in ("run", "metric", "unit", "value")}
    order = np.lexsort((np.arange(table.num_rows), columns["run"]))
    runs = columns["run"][order]
    bounds = np.searchsorted(runs, np.unique(runs)) if runs.size else np.empty(0, dtype=np.int64)
    parts = np.split(order, bounds[1:]) if runs.size else []
    samples = {int(columns["run"][part[0]]): _by_metric(columns, part) for part in parts}
    repetitions = [
        Repetition(r.run, completed(r.factors, folder.plan.settings), samples.get(r.run, {}), r.block)
        for r in _plan_order(folder)
        if r.status == "done"
    ]
    units = dict(zip(columns["metric"], columns["unit"], strict=True))
    return Data(repetitions, units, _conditions(folder), folder.plan.settings)


def joined(parts: Sequence[Data]) -> Data:
    """Return what runs of one campaign measured, each of other paths, as one.

    A block is of the same number in each run: across runs it is a pair by its number alone.
    """
    return Data(
        [r for part in parts for r in part.repetitions],
        {metric: unit for part in parts for metric, unit in part.units.items()},
        list(dict.fromkeys(c for part in parts for c in part.each_condition)),
        parts[0].settings,
    )


_CLOUDS = {
    "neutron-ovn": "a network made by Neutron and OVN, with security groups",
    "neutron-ovs": "a network made by Neutron's agents for Open vSwitch, with security groups",
    "neutron-linuxbridge": "a network made by Neutron's agents for Linux bridges, with security groups",
}
"""What controls the network, where that is more than the lab itself."""


def _conditions(folder: Folder) -> Sequence[str]:
    """Return what decides outcomes beside the factors: the cloud, the datapath, where ESP is done, shared processors."""
    manifest = folder.manifest
    environment, bed = manifest.get("environment", {}), manifest.get("bed", {})
    lab = bed.get("kind") == "lab"
    paths = bed.get("topology", {}).get("paths", [])
    found = []
    if bed.get("cloud") in _CLOUDS:
        found.append(_CLOUDS[bed["cloud"]])
    if any(p.get("switch") == "openvswitch" for p in paths) and bed.get("ovs_datapath") == "userspace":
        found.append("Open vSwitch with its userspace datapath")
    # Labs before this was written down had no ESP in the kernel.
    if any(p.get("kind") == "ipsec" for p in paths) and bed.get("esp", "userspace") == "userspace":
        found.append("ESP in user space (libipsec)")
    if lab and "processors" in environment:
        found.append(f"senders, switches and receivers sharing {environment['processors']} processors")
    return found


def _plan_order(folder: Folder) -> list:  # type: ignore[type-arg]
    return sorted(folder.records, key=lambda r: (r.cell, r.run))


def _by_metric(columns: Mapping[str, NDArray], part: NDArray) -> dict[str, Floats]:  # type: ignore[type-arg]
    metrics, values = columns["metric"][part], columns["value"][part].astype(np.float64)
    return {str(m): values[metrics == m] for m in dict.fromkeys(metrics)}


def mean(values: Floats) -> float:
    """Return the mean of what was not lost; NaN if all was."""
    found = values[np.isfinite(values)]
    return float(found.mean()) if found.size else float("nan")


def median(values: Floats) -> float:
    """Return the median of what was not lost; NaN if all was."""
    found = values[np.isfinite(values)]
    return float(np.median(found)) if found.size else float("nan")


def jitter(values: Floats) -> float:
    """Return the mean difference between the delays of neighbouring packets, as RFC 3550 smooths it."""
    found = values[np.isfinite(values)]
    return float(np.abs(np.diff(found)).mean()) if found.size > 1 else float("nan")


def missing(values: Floats) -> float:
    """Return the ratio of packets that were lost."""
    return float(np.isnan(values).mean()) if values.size else float("nan")


REDUCE: Mapping[str, Reduce] = {"mean": mean, "median": median, "jitter": jitter, "lost": missing}
"""How the samples of a repetition become one number."""


def published(study: str, name: str) -> list[dict[str, str]]:
    """Return the rows of a table that a study's folder has in published/, by its name without .csv."""
    text = resources.files("vigia.studies").joinpath(study, "published", f"{name}.csv").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))
