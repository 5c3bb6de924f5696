"""Request bodies, bounded while they are read."""

from __future__ import annotations

from typing import Annotated, TypeVar

from flask import Request
from pydantic import BaseModel, Field
from werkzeug.exceptions import RequestEntityTooLarge

import vigia_json
from isolation_agent.web.errors import ApiError

__all__ = ["Text", "read_body", "read_model", "read_small", "refuse_body"]

Text = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A person's words: one line."""

MAX_API_BODY = 64 << 10
"""Largest body of an API request, in bytes."""

_READ = "vigia.body"

M = TypeVar("M", bound=BaseModel)


def read_body(request: Request, limit: int) -> bytes:
    """Read a body of at most limit bytes, whether its length is announced or it comes in chunks."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ApiError(
            415, "unsupported_media_type", "compressed bodies are not accepted; send it uncompressed"
        )
    too_large = ApiError(413, "too_large", f"the body is larger than {limit} bytes")
    if (request.content_length or 0) > limit:
        raise too_large
    try:
        # Past werkzeug, which makes "the client has gone" of every failure; the server ends the stream.
        body: bytes = request.environ["wsgi.input"].read(limit + 1)
    except RequestEntityTooLarge as e:
        raise too_large from e
    if len(body) > limit:
        raise too_large
    return body


def read_small(request: Request) -> bytes:
    """Read the body of an API request, as often as it is asked for."""
    body: bytes | None = request.environ.get(_READ)
    if body is None:
        body = read_body(request, MAX_API_BODY)
        request.environ[_READ] = body
    return body


def refuse_body(request: Request) -> None:
    """Raise ApiError if there is a body where none belongs; an empty JSON object does no harm."""
    if read_small(request).strip() not in (b"", b"{}"):
        raise ApiError(400, "bad_request", "this takes no body; send none")


def read_model(request: Request, model: type[M]) -> M:
    """Read a small JSON body into a model."""
    try:
        return vigia_json.model(read_small(request), model)
    except vigia_json.JsonError as e:
        raise ApiError(400, "bad_request", str(e), e.field) from e
