"""Strict JSON (RFC 8259), for everything that comes from somebody else.

``json.loads`` keeps the last of repeated keys, takes NaN and Infinity, makes
infinity of 1e999, guesses UTF-16 and lets halves of surrogate pairs through.
Two programs that read such a text may read different things. Here it is
refused, with an error that says what and where; size and depth are bounded.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["MAX_DEPTH", "MAX_SIZE", "JsonError", "loads", "model"]

MAX_SIZE = 16 << 20
"""Largest text that is read unless the caller says otherwise, in bytes."""

MAX_DEPTH = 32
"""Deepest nesting of objects and arrays that is accepted."""

_MAX_DIGITS = 40
_SHOWN = 60
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

M = TypeVar("M", bound="BaseModel")


class JsonError(ValueError):
    """A text that is refused. The message names the key or the place, and never more of the text."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """The key, or the path of the field, that is wrong; None for a text that is no JSON."""


def loads(raw: bytes | str, *, max_size: int = MAX_SIZE, max_depth: int = MAX_DEPTH) -> Any:
    """Return the value of a text. Raises JsonError."""
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if len(data) > max_size:
        raise JsonError(f"the JSON is larger than {max_size} bytes; send less")
    try:
        value = _DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as e:
        raise JsonError(f"the JSON is not UTF-8 at byte {e.start}; send UTF-8") from None
    except json.JSONDecodeError as e:
        raise JsonError(f"not JSON: {e.msg} at line {e.lineno}, column {e.colno}") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    _check_depth(value, max_depth)
    if _SURROGATE.search(data):
        _check_text(value)
    return value


def model(raw: bytes | str, into: type[M], *, max_size: int = MAX_SIZE, max_depth: int = MAX_DEPTH) -> M:
    """Return a text as a pydantic model, read strictly. Raises JsonError that names the first wrong field."""
    from pydantic import ValidationError  # noqa: PLC0415 - who only reads JSON needs no pydantic

    loads(raw, max_size=max_size, max_depth=max_depth)
    try:
        return into.model_validate_json(raw, strict=True)
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise JsonError(f"{field or 'the JSON'}: {first['msg']}", field or None) from e


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonError(f"key {_shown(key)} appears twice; send it once", key[:_SHOWN])
            seen.add(key)
    return found


def _constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is no JSON number; send a number or null")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"the number {text[:_SHOWN]} is too large; send one below 1.8e308")
    return value


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise JsonError(f"a number has {len(text)} digits; send at most {_MAX_DIGITS}")
    return int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float, parse_int=_int
)


def _shown(key: str) -> str:
    text = key if len(key) <= _SHOWN else key[:_SHOWN] + "…"
    return json.dumps(text)


def _too_deep(most: int) -> JsonError:
    return JsonError(f"the JSON is nested deeper than {most} levels; send it flatter")


def _check_depth(value: Any, most: int) -> None:
    level, depth = [value] if isinstance(value, dict | list) else [], 0
    while level:
        depth += 1
        if depth > most:
            raise _too_deep(most)
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]


def _check_text(value: Any) -> None:
    """Refuse halves of surrogate pairs: no database and no other program takes them."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise JsonError("a string has half of a surrogate pair; send whole characters") from None
