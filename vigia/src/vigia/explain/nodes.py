"""Asking the probes of nodes for their records, and Prometheus for whose alert it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

import vigia_http
from vigia.errors import VigiaError
from vigia.explain import record
from vigia.explain.record import MAX_ANSWER, Moment
from vigia_prometheus.client import Prometheus

__all__ = ["ALERT", "SELECTORS", "Found", "alerts", "ask", "probes"]

ALERT = re.compile(r"Vigia[A-Z][A-Za-z]{0,63}")
"""What the names of alerts look like; every other word is a path."""

SELECTORS = ("src", "dst", "path", "tenant", "probe")
"""The labels by which records are selected."""

_SECONDS = 10.0
_MAX_PROBES = 1000
_PATH = "/v1/moments"

Labels = Mapping[str, str]


@dataclass
class Found:
    """What the nodes know of the targets that were asked for."""

    moments: list[tuple[Moment, dict[str, Any]]] = field(default_factory=list)
    """Bad records and the same as they were sent, the newest first."""
    good: list[tuple[Moment, dict[str, Any]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What is wrong with nodes that did not answer."""
    asked: int = 0


def alerts(prometheus: Prometheus, name: str) -> list[Labels]:
    """Return the labels of each firing alert of a name, as far as they select records.

    Raises PrometheusError.
    """
    if not ALERT.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an alert")
    firing = prometheus.instant(f'ALERTS{{alertname="{name}", alertstate="firing"}}')
    found = [{k: v for k, v in s.labels.items() if k in SELECTORS} for s in firing]
    return [f for f in found if f]


def probes(prometheus: Prometheus) -> list[str]:
    """Return the base URLs of the probes that Prometheus scrapes. Raises PrometheusError."""
    scraped = prometheus.instant("group by (instance) (vigia_probe_build_info)")
    return sorted(f"http://{s.labels['instance']}" for s in scraped if s.labels.get("instance"))[:_MAX_PROBES]


def ask(urls: Sequence[str], selections: Sequence[Labels], limit: int) -> Found:
    """Ask probes for the records of targets that have the labels of one of the selections.

    Raises VigiaError if none of them answers.
    """
    found = Found(asked=len(urls))
    with httpx.Client(timeout=_SECONDS, trust_env=False, follow_redirects=False) as client:
        for url in urls:
            try:
                _ask_one(client, url, selections, limit, found)
            except VigiaError as e:
                found.problems.append(str(e))
    if found.problems and len(found.problems) == len(urls):
        raise VigiaError("no probe answers: " + "; ".join(found.problems[:3]))
    found.moments.sort(key=lambda m: m[0].time, reverse=True)
    found.good.sort(key=lambda m: m[0].target)
    return found


def _ask_one(client: httpx.Client, url: str, selections: Sequence[Labels], limit: int, found: Found) -> None:
    common = {k: v for k, v in selections[0].items() if k != "src"} if len(selections) == 1 else {}
    raw = _get(client, url, {**common, "limit": str(limit)})
    try:
        page, sent = record.page(raw)
    except ValueError as e:
        raise VigiaError(f"{url} does not serve records of vigia-probe: {e}") from e
    for records, texts, into in (
        (page.moments, sent["moments"], found.moments),
        (page.good, sent["good"], found.good),
    ):
        into.extend(
            (m, text)
            for m, text in zip(records, texts, strict=True)
            if any(_fits(m, selection) for selection in selections)
        )


def _fits(moment: Moment, selection: Labels) -> bool:
    return all(getattr(moment, name) == value for name, value in selection.items())


def _get(client: httpx.Client, url: str, parameters: Mapping[str, str]) -> bytes:
    try:
        with client.stream(
            "GET", url + _PATH, params=dict(parameters), headers=vigia_http.IDENTITY
        ) as answer:
            raw = vigia_http.read(answer, MAX_ANSWER, _SECONDS)
            status = answer.status_code
    except vigia_http.AnswerError as e:
        raise VigiaError(f"cannot read the answer of {url}: {e}") from e
    except httpx.HTTPError as e:
        raise VigiaError(f"{url} does not answer: {e or type(e).__name__}") from e
    if status != httpx.codes.OK:
        raise VigiaError(f"{url} answers with HTTP status {status}; is it a vigia-probe?")
    return raw
