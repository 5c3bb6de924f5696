"""Request bodies, bounded while they are read."""

from __future__ import annotations

from typing import Annotated, TypeVar

from flask import Request
from pydantic import BaseModel, Field, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

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
    # One byte more than allowed: werkzeug cuts a chunked body off at its limit without a word.
    request.max_content_length = limit + 1
    try:
        body = request.get_data(cache=False)
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
        return model.model_validate_json(read_small(request), strict=True)
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise ApiError(400, "bad_request", f"{field or 'body'}: {first['msg']}", field or None) from e
