"""Alertmanager's webhook payload, version 4.

New fields are ignored, since Alertmanager may add some; the types of the
fields that the agent reads are strict, sizes are bounded, and times have to
lie in a window around now. An alert that is refused is refused alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
)
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticCustomError

import vigia_json
from isolation_agent.model.target import Target
from isolation_agent.policy import NAME_PATTERN

__all__ = [
    "FUTURE",
    "PAST",
    "Alert",
    "BadPayload",
    "Payload",
    "RefusedAlert",
    "TooManyAlerts",
    "parse_alert",
    "parse_payload",
    "target_of",
]

PAST = timedelta(days=366)
"""How long an alert may have been firing."""

FUTURE = timedelta(days=1)
"""How far the sender's clock may be ahead, an error of time zones included."""

_SHOWN = 2000
"""Characters of a refused alert that are kept."""

_KEPT = 100
"""Refused alerts of one message that are kept; the others are counted."""

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NEVER = datetime(1, 1, 1, tzinfo=UTC)
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


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as e:
        raise PydanticCustomError("vigia", "is before the year 1 in UTC") from e


def _near(value: datetime, info: ValidationInfo) -> datetime:
    """Refuse what no alert can mean, as of the instant in the validation's context."""
    now = info.context
    if not isinstance(now, datetime):
        raise TypeError("an alert is validated with the instant of its arrival as context")
    if not -PAST <= value - now <= FUTURE:
        raise PydanticCustomError(
            "vigia",
            "is not within {past} days before and {future} day after {now}, which is now here; "
            "correct the clock that is wrong",
            {"past": PAST.days, "future": FUTURE.days, "now": now.isoformat(timespec="seconds")},
        )
    return value


def _near_or_never(value: datetime, info: ValidationInfo) -> datetime | None:
    """Alertmanager writes the first instant of the year 1 for an alert that has not ended."""
    return None if value == _NEVER else _near(value, info)


Instant = Annotated[AwareDatetime, BeforeValidator(_instant), AfterValidator(_utc), Field(strict=False)]
LabelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
LabelValue = Annotated[str, StringConstraints(max_length=4096)]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=64)]


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Alert(_Lenient):
    """One alert. (fingerprint, start) is its episode. Times are in UTC, in microseconds."""

    status: Literal["firing", "resolved"]
    labels: Labels
    annotations: Labels = {}
    started: Annotated[Instant, AfterValidator(_near)] = Field(alias="startsAt")
    ended: Annotated[Instant, AfterValidator(_near_or_never)] | None = Field(None, alias="endsAt")
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z]{1,64}$")]


class _Envelope(_Lenient):
    version: Literal["4"]
    truncated_alerts: int = Field(0, alias="truncatedAlerts", ge=0)
    alerts: list[Any]


@dataclass(frozen=True)
class RefusedAlert:
    """An alert of a message that cannot be right."""

    position: int
    """in the message, from 0"""
    field: str
    problem: str
    content: str
    """the beginning of the alert, as JSON"""


@dataclass(frozen=True)
class Payload:
    """One POST of Alertmanager."""

    alerts: list[Alert]
    positions: list[int]
    """where in the message each of them was, from 0"""
    refused: list[RefusedAlert]
    """the first of those that were refused"""
    refused_total: int
    truncated: int

    def refusing(self, unusable: Mapping[int, str]) -> Payload:
        """Return the payload with some of its alerts refused after all, and why: by their index."""
        more = [
            RefusedAlert(
                self.positions[i], "", why, _beginning(self.alerts[i].model_dump(mode="json", by_alias=True))
            )
            for i, why in unusable.items()
        ]
        refused = [*self.refused, *more][:_KEPT]
        return replace(self, refused=refused, refused_total=self.refused_total + len(more))

    @classmethod
    def unreadable(cls, raw: bytes, why: str) -> Payload:
        """Return what stands for a message that cannot be read any more."""
        beginning = raw[:_SHOWN].decode("ascii", "backslashreplace")[:_SHOWN]
        return cls([], [], [RefusedAlert(0, "", why, beginning)], 1, 0)


def parse_payload(raw: bytes, max_alerts: int, at: datetime) -> Payload:
    """Parse a webhook body that arrived at an instant. Raises BadPayload if nothing can be made of it."""
    return _payload(_document(raw), max_alerts, at)


def _payload(document: dict[str, Any], max_alerts: int, at: datetime) -> Payload:
    alerts = document.get("alerts")
    if isinstance(alerts, list) and len(alerts) > max_alerts:
        raise TooManyAlerts(
            f"{len(alerts)} alerts in one message, at most {max_alerts} are taken; "
            "group alerts more finely in Alertmanager",
            "alerts",
        )
    envelope = _validated(_Envelope, document, at)
    taken: list[Alert] = []
    positions: list[int] = []
    refused: list[RefusedAlert] = []
    for position, content in enumerate(envelope.alerts):
        try:
            taken.append(Alert.model_validate(content, context=at))
            positions.append(position)
        except PydanticError as e:
            if len(refused) < _KEPT:
                bad = _bad(e, f"alerts[{position}]")
                refused.append(RefusedAlert(position, bad.field or "", str(bad), _beginning(content)))
    total = len(envelope.alerts) - len(taken)
    return Payload(taken, positions, refused, total, envelope.truncated_alerts)


def parse_alert(raw: bytes, max_alerts: int, at: datetime) -> list[Alert]:
    """Parse a text that holds one alert or a whole payload. Raises BadPayload, also for one bad alert."""
    document = _document(raw)
    if "alerts" not in document:
        return [_validated(Alert, document, at)]
    payload = _payload(document, max_alerts, at)
    if payload.refused:
        raise BadPayload(payload.refused[0].problem, payload.refused[0].field)
    return payload.alerts


def target_of(labels: Mapping[str, str]) -> Target:
    """Return the target that an alert's labels name. Raises BadPayload."""
    for name in ("node", "port", "tenant"):
        if not _NAME.fullmatch(labels.get(name, "")):
            raise BadPayload(f"label {name} is missing or is not an id", f"labels.{name}")
    return Target(labels["node"], labels["port"], labels["tenant"])


def _document(raw: bytes) -> dict[str, Any]:
    try:
        document = vigia_json.loads(raw, max_size=len(raw))
    except vigia_json.JsonError as e:
        raise BadPayload(str(e), e.field) from e
    if not isinstance(document, dict):
        raise BadPayload("the body is not a JSON object")
    return document


def _validated(model: type[M], document: object, at: datetime) -> M:
    try:
        return model.model_validate(document, context=at)
    except PydanticError as e:
        raise _bad(e) from e


def _bad(e: PydanticError, where: str = "") -> BadPayload:
    """Return the first of what is wrong, in one line."""
    first = e.errors(include_url=False, include_context=False, include_input=False)[0]
    field = (where + _path(first["loc"])).lstrip(".")
    return BadPayload(f"{field}: {first['msg'][0].lower()}{first['msg'][1:]}", field)


def _path(location: Sequence[str | int]) -> str:
    """Write a location as .labels.name, with the sender's own key names bounded and escaped."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{json.dumps(step[:64])[1:-1]}" for step in location
    )


def _beginning(content: object) -> str:
    text = ""
    for part in json.JSONEncoder().iterencode(content):  # no further than is shown, however large it is
        text += part
        if len(text) >= _SHOWN:
            break
    return text[:_SHOWN]
