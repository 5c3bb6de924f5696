"""What the API answers, as models: the OpenAPI document is made from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from isolation_agent import clock

__all__ = ["Answer", "Instant"]

Instant = Annotated[
    datetime,
    PlainSerializer(clock.instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""RFC 3339 in UTC, with microseconds."""


class Answer(BaseModel):
    """Base of answers. They are made from rows and reports: fields of the same name are taken over."""

    model_config = ConfigDict(
        from_attributes=True,
        frozen=True,
        populate_by_name=True,
        json_schema_serialization_defaults_required=True,
    )
