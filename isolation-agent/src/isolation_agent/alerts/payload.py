"""Alertmanager's webhook payload, version 4.

New fields are ignored, since Alertmanager may add some; the types of the
fields that the agent reads are strict, and sizes are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticCustomError, from_json

from isolation_agent.model.target import Target
from isolation_agent.policy import NAME_PATTERN

__all__ = [
    "Alert",
    "BadPayload",
    "Payload",
    "TooManyAlerts",
    "parse_alert",
    "parse_payload",
    "target_of",
]

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_NAME = re.compile(NAME_PATTERN)

M = TypeVar("M", bound=BaseModel)


class BadPayload(ValueError):
    """The body is not a payload. ``field`` says where, if that is known."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class TooManyAlerts(BadPayload):
    """The payload is well formed and too large."""


def _instant(value: object) -> object:
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise PydanticCustomError("vigia", "is not an instant of RFC 3339")
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_instant), Field(strict=False)]
LabelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
LabelValue = Annotated[str, StringConstraints(max_length=4096)]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=64)]


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Alert(_Lenient):
    """One alert. (fingerprint, startsAt) is its episode."""

    status: Literal["firing", "resolved"]
    labels: Labels
    annotations: Labels = {}
    starts_at: Instant = Field(alias="startsAt")
    ends_at: Instant | None = Field(None, alias="endsAt")
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z]{1,64}$")]

    @property
    def started(self) -> datetime:
        """Start in UTC, in microseconds: half of the episode's key."""
        return self.starts_at.astimezone(UTC)

    @property
    def ended(self) -> datetime | None:
        """End in UTC; None while firing, for which Alertmanager writes the year 1."""
        return None if self.ends_at is None or self.ends_at.year == 1 else self.ends_at.astimezone(UTC)


class _Envelope(_Lenient):
    version: Literal["4"]
    truncated_alerts: int = Field(0, alias="truncatedAlerts", ge=0)
    alerts: list[Any]


@dataclass(frozen=True)
class Payload:
    """One POST of Alertmanager."""

    alerts: list[Alert]
    truncated: int


def parse_payload(raw: bytes, max_alerts: int) -> Payload:
    """Parse a webhook body. Raises BadPayload."""
    document = _document(raw)
    alerts = document.get("alerts")
    if isinstance(alerts, list) and len(alerts) > max_alerts:
        raise TooManyAlerts(
            f"{len(alerts)} alerts in one message, at most {max_alerts} are taken; "
            "group alerts more finely in Alertmanager",
            "alerts",
        )
    envelope = _validated(_Envelope, document)
    return Payload(
        [_validated(Alert, raw, f"alerts[{i}]") for i, raw in enumerate(envelope.alerts)],
        envelope.truncated_alerts,
    )


def parse_alert(raw: bytes, max_alerts: int) -> list[Alert]:
    """Parse a file that holds one alert or a whole payload. Raises BadPayload."""
    document = _document(raw)
    if "alerts" in document:
        return parse_payload(raw, max_alerts).alerts
    return [_validated(Alert, document)]


def target_of(labels: Mapping[str, str]) -> Target:
    """Return the target that an alert's labels name. Raises BadPayload."""
    for name in ("node", "port", "tenant"):
        if not _NAME.fullmatch(labels.get(name, "")):
            raise BadPayload(f"label {name} is missing or is not an id", f"labels.{name}")
    return Target(labels["node"], labels["port"], labels["tenant"])


def _document(raw: bytes) -> dict[str, Any]:
    try:
        document = from_json(raw, allow_inf_nan=False)
    except ValueError as e:
        raise BadPayload(f"the body is not JSON: {e}") from e
    if not isinstance(document, dict):
        raise BadPayload("the body is not a JSON object")
    return document


def _validated(model: type[M], document: object, where: str = "") -> M:
    try:
        return model.model_validate(document)
    except PydanticError as e:
        first = e.errors(include_url=False, include_context=False, include_input=False)[0]
        field = (where + _path(first["loc"])).lstrip(".")
        raise BadPayload(f"{field}: {first['msg'][0].lower()}{first['msg'][1:]}", field) from e


def _path(location: Sequence[str | int]) -> str:
    """Write a location as .labels.name, with the sender's own key names bounded."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step[:64]}" for step in location)
