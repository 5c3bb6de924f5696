"""The configuration file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from vigia_compare.limits import LEAST_PERIOD, LEAST_WINDOWS, MAX_WINDOWS, MINUTE
from vigia_compare.measures import MEASURES
from vigia_config import Seconds, Strict, absolute, fault
from vigia_config.tls import Tls
from vigia_config.urls import base_url

__all__ = ["Config"]


def _address(value: object) -> str:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise PydanticCustomError("vigia", "is not an address; write HOST:PORT, for example 127.0.0.1:9875")
    return str(value)


def _url(value: str) -> str:
    try:
        return base_url(value, "a Prometheus server", "http://127.0.0.1:9090")
    except ValueError as e:
        raise PydanticCustomError("vigia", "{problem}", {"problem": str(e)}) from e


def _console(value: str) -> str:
    try:
        return f"{base_url(value, 'a console', 'http://127.0.0.1:9874')}/"
    except ValueError as e:
        raise PydanticCustomError("vigia", "{problem}", {"problem": str(e)}) from e


def _tenant(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,100}", value):
        raise PydanticCustomError("vigia", "is not a tenant; write its id, for example _infra")
    return value


def _replica(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", value):
        raise PydanticCustomError(
            "vigia", "is not a name; write letters, digits, dots and dashes, for example a"
        )
    return value


def _measure(value: str) -> str:
    if value not in MEASURES:
        raise PydanticCustomError("vigia", "is not a metric; known: {known}", {"known": ", ".join(MEASURES)})
    return value


def _check(window: str, length: float, period: str, span: float, least: int) -> None:
    """Refuse windows that Prometheus does not record, and periods of too few of them or too many."""
    if length < MINUTE or length % MINUTE:
        raise fault(
            [window],
            f"{length:.10g}s is not a whole number of minutes, which Prometheus records windows of",
            "write for example 1m or 5m",
        )
    if span < least * length:
        raise fault(
            [period],
            f"{span:.10g}s is shorter than {least} windows of {length:.10g}s",
            f"write at least {least * length / MINUTE:.10g}m"
            + (f", or a shorter {window}" if length > MINUTE else ""),
        )
    if span / length > MAX_WINDOWS:
        raise fault(
            [window],
            f"{length:.10g}s cuts {period} {span:.10g}s into more than {MAX_WINDOWS} windows",
            f"write a longer {window}",
        )


class Config(Strict):
    """The whole file."""

    listen: Annotated[str, BeforeValidator(_address)] = "127.0.0.1:9875"
    """Address of the pages."""
    prometheus: Annotated[str, AfterValidator(_url)] = "http://127.0.0.1:9090"
    """Where the records are: Prometheus, or what speaks its API."""
    console: Annotated[str, AfterValidator(_console)] | None = None
    """Address of the isolation agent's console, for links; none: port 9874 of the page's own host."""
    tls: Tls | None = None
    """Of the listener, and towards Prometheus; plain HTTP without."""
    reload_token_file: Path | None = None
    """Whose token POST /-/reload needs; without, only SIGHUP and clients with a certificate reload."""
    tenant: Annotated[str, AfterValidator(_tenant)] = "_infra"
    """Whose probes are compared: the operator's own see every path alike."""
    metrics: list[Annotated[str, AfterValidator(_measure)]] = Field(
        default_factory=lambda: list(MEASURES), min_length=1
    )
    """What is compared."""
    window: Seconds = 60.0
    """Length of a window, the unit of the statistics: whole minutes, which is what Prometheus records."""
    period: Seconds = 7200.0
    """What is shown of each path, and how far back evidence begins where none was kept."""
    state: Annotated[Path, absolute("/var/lib/vigia-compare/state.json")] | None = None
    """File in which evidence outlives the program; none: it begins anew with the windows of a period."""
    attribution_window: Seconds = 60.0
    """Length of a window in the search for who hurts whom: whole minutes, at least four scrapes."""
    attribution_period: Seconds = 3600.0
    """How far back that search looks, and for how long its answer stays."""
    every: Seconds = 60.0
    """Time between two evaluations."""
    replica: Annotated[str, AfterValidator(_replica)] | None = None
    """Name of this process among several of which one evaluates; none: there is no other."""
    takeover: Seconds = 60.0
    """Time without a leader in Prometheus before this replica leads: three scrapes, and a minute."""
    timeout: Seconds = 10.0
    """How long Prometheus may take for one answer."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Probability that no verdict is wrong, ever, and that an interval holds at all times."""
    margins: dict[str, Annotated[float, Field(gt=0.0, lt=1.0)]] = Field(default_factory=dict)
    """Differences that do not matter, by metric: as a share, for loss as a difference of the ratios."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for window, period, least in (
            ("window", "period", LEAST_PERIOD),
            ("attribution_window", "attribution_period", LEAST_WINDOWS),
        ):
            _check(window, getattr(self, window), period, getattr(self, period), least)
        for name in self.margins:
            if name not in MEASURES:
                raise fault(["margins", name], "is not a metric", f"write one of {', '.join(MEASURES)}")
        for name in ("every", "timeout", "takeover"):
            if getattr(self, name) < 0.5:
                raise fault([name], "is shorter than 500ms", "write for example 10s")
        return self
