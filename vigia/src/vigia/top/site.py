"""What vigia-compare says of a site, under /v1/site."""

from __future__ import annotations

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import vigia_http
from vigia.errors import VigiaError
from vigia_text import terminal

__all__ = ["Alert", "Path", "SiteMoment", "Tenant", "look"]

_LONGEST = 4 << 20
_SECONDS = 15.0
_MAX_TEXT = 512
_MAX_ROWS = 1000


class _Part(BaseModel):
    """Fields that a later version adds are left alone; null is a number that is not known."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_max_length=_MAX_TEXT)


class Alert(_Part):
    """An alert that fires."""

    name: str
    severity: str
    tenant: str = ""
    node: str = ""
    path: str = ""
    since: float | None = None
    """Unix time."""


class Tenant(_Part):
    """What a tenant bought and gets. Rates in bytes per second."""

    tenant: str
    bought: float | None = None
    sent: float | None = None
    received: float | None = None
    loss: float | None = None
    p99: float | None = None
    """Seconds."""
    drops: dict[str, float | None] = {}
    """Packets of the last five minutes, by reason."""
    state: tuple[str, ...] = ()
    """What is the matter with it; nothing if it is well."""


class Path(_Part):
    """A path between two nodes for a tenant's probes."""

    src: str
    dst: str
    path: str
    tenant: str
    probe: str
    loss: float | None = None
    p99: float | None = None
    times_usual: float | None = None
    state: str = ""


class SiteMoment(_Part):
    """A moment of a site; tenants and paths come worst first."""

    at: float
    alerts: tuple[Alert, ...] = Field((), max_length=_MAX_ROWS)
    floods: tuple[dict[str, str | float | None], ...] = Field((), max_length=_MAX_ROWS)
    limits: tuple[dict[str, str | float | None], ...] = Field((), max_length=_MAX_ROWS)
    waiting: int = 0
    kill_switch: bool = False
    silent: int = 0
    down: int = 0
    tenants: tuple[Tenant, ...] = Field((), max_length=_MAX_ROWS)
    paths: tuple[Path, ...] = Field((), max_length=_MAX_ROWS)
    more_tenants: int = 0


def look(client: httpx.Client, url: str) -> tuple[SiteMoment, bytes]:
    """Return the site as it is now, and the answer as it was sent. Raises VigiaError."""
    try:
        with client.stream("GET", f"{url}/v1/site", headers=vigia_http.IDENTITY, timeout=_SECONDS) as answer:
            raw = vigia_http.read(answer, _LONGEST, _SECONDS)
            status = answer.status_code
    except vigia_http.AnswerError as e:
        raise VigiaError(f"cannot read the answer of vigia-compare at {url}: {e}") from e
    except httpx.HTTPError as e:
        raise VigiaError(f"vigia-compare at {url} does not answer: {e or type(e).__name__}") from e
    if status == httpx.codes.SERVICE_UNAVAILABLE:
        said = terminal.clean(raw[:300].decode(errors="replace").strip())
        raise VigiaError(f"vigia-compare at {url} does not know: {said}")
    if status != httpx.codes.OK:
        raise VigiaError(f"{url} answers with HTTP status {status}; is it vigia-compare?")
    try:
        return SiteMoment.model_validate_json(raw), raw
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise VigiaError(
            f"{url} does not serve a site of vigia-compare: {where or 'it'}: {first['msg']}"
        ) from e
