"""E5: how long a job took, by competitors, by guarantee, by how tenants were kept apart."""

from __future__ import annotations

import numpy as np

from vigia.campaign.model import Campaign, Factor
from vigia.report.data import Data, Floats, mean, published
from vigia.report.document import Document, Section, Table
from vigia_statistics import mean_interval
from vigia_text.numbers import interval, percent, seconds

__all__ = ["build"]

_NAMES = {"tcp-10": "pairs of 10 TCP flows", "udp-1": "pairs of one UDP flood"}


def build(campaign: Campaign, data: Data) -> Document:
    """Return the report's own part."""
    rows = [row for cell in _cells(data) if (row := _row(cell, campaign, data))]
    table = Table(
        "Time until the last machine of the job had everything",
        [
            "against",
            "guarantee",
            "control",
            "n",
            "job",
            "× alone",
            "× rigid",
            "of its guarantee",
            "competitors",
        ],
        rows,
        f"Intervals: {percent(campaign.confidence)}, Student's. × alone: the job alone, without control; × rigid: with "
        "rigid limits at the same guarantee. Of its guarantee: payload that the job's machines received on average "
        "until the last one was done, against a guarantee in frames, so that start and stragglers count; competitors: the "
        "same of theirs while the job ran.",
    )
    reference = Table(
        "Published: 26 hosts with links of 1 Gbit/s, a Hadoop job",
        ["competitors", "job s"],
        [[r["competitors"], r["job_s"]] for r in published("shuffle", "job")],
        "The study found borrowing alone as good as its notices under TCP, and broken under UDP; against rigid limits its "
        "job was about 8 % slower with a guarantee of 75%, and faster with 25%.",
    )
    section = Section("The job", tables=[table, reference])
    return Document(campaign.title, campaign.question, _answer(data), [section])


def _cells(data: Data) -> list[dict[str, Factor]]:
    return [
        {"against": against, "guarantee": guarantee, "control": control}
        for against in data.levels("against")
        for guarantee in sorted(data.levels("guarantee"), key=int)
        for control in data.levels("control")
    ]


def _times(data: Data, **cell: Factor) -> Floats:
    return data.each("job", mean, **cell)


def _alone(data: Data) -> float:
    return mean(_times(data, against="none", control="none"))


def _row(cell: dict[str, Factor], campaign: Campaign, data: Data) -> list[str]:
    shares = data.each("share_job", mean, **cell)
    if not shares.size:
        return []
    times, fetched = _times(data, **cell), data.each("fetched", mean, **cell)
    given_up = times.size < shares.size
    rigid = mean(_times(data, **(cell | {"control": "rigid"})))
    return [
        str(cell["against"]),
        "–" if cell["control"] == "none" else f"{cell['guarantee']}%",
        str(cell["control"]),
        str(shares.size),
        f"given up, {percent(float(fetched.min()))} done"
        if given_up
        else _text(times, "s", campaign.confidence),
        _times_of(times, _alone(data), given_up),
        "–" if cell["control"] == "none" else _times_of(times, rigid, given_up),
        "–" if cell["control"] == "none" else _text(shares, "ratio", campaign.confidence),
        "–"
        if cell["control"] == "none"
        else _text(data.each("share_other", mean, **cell), "ratio", campaign.confidence),
    ]


def _times_of(times: Floats, base: float, given_up: bool) -> str:
    if given_up or not times.size or not np.isfinite(base):
        return "–"
    return f"{mean(times) / base:.2f}"


def _text(values: Floats, unit: str, confidence: float) -> str:
    if not values.size:
        return "–"
    if values.size < 2:
        return seconds(float(values[0])) if unit == "s" else percent(float(values[0]))
    found = mean_interval(values, confidence)
    return interval(found.estimate, found.lower, found.upper, unit)


def _answer(data: Data) -> str:
    alone = _alone(data)
    parts = [f"Alone the job takes {seconds(alone)}"] if np.isfinite(alone) else []
    for against in data.levels("against"):
        if against in _NAMES and (said := _against(data, str(against), alone)):
            parts.append(said)
    return ". ".join(parts) + "." if parts else "No repetition of the job succeeded."


def _against(data: Data, against: str, alone: float) -> str:
    """Say how much longer the job takes without control, and with each control beside rigid limits."""
    free = _mean_time(data, against=against, control="none")
    without = "not over in time" if np.isinf(free) else f"{free / alone:.1f} times as long"
    found = []
    for control in data.levels("control"):
        ratios = [
            ratio
            for g in data.levels("guarantee")
            if not np.isnan(ratio := _beside_rigid(data, against=against, guarantee=g, control=control))
        ]
        if control not in ("none", "rigid") and ratios:
            most = "not over in time" if np.isinf(max(ratios)) else f"{max(ratios):.2f}"
            found.append(f"{control} {min(ratios):.2f} to {most}")
    beside = f"; relative to rigid limits at the same guarantee: {', '.join(found)}" if found else ""
    return f"Against {_NAMES[against]} it is {without} without control{beside}"


def _mean_time(data: Data, **cell: Factor) -> float:
    """Return the mean time in seconds: infinite if the job was given up, NaN if it was not measured."""
    made = data.each("fetched", mean, **cell).size
    times = _times(data, **cell)
    return float("inf") if times.size < made else mean(times)


def _beside_rigid(data: Data, **cell: Factor) -> float:
    return _mean_time(data, **cell) / _mean_time(data, **(cell | {"control": "rigid"}))
