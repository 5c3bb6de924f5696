"""Query parameters, strict: an unknown or repeated one is an error."""

from __future__ import annotations

from collections.abc import Mapping

from werkzeug.datastructures import MultiDict

from isolation_agent.web.errors import ApiError

__all__ = ["flag", "number", "only"]

_MAX_NUMBER = 2**53


def only(args: MultiDict[str, str], *known: str) -> dict[str, str | None]:
    """Return the known parameters; those that were not given are None."""
    for name in args:
        if name not in known:
            raise ApiError(
                400, "bad_request", f"unknown parameter; known here: {', '.join(known)}", name[:64]
            )
        if len(args.getlist(name)) > 1:
            raise ApiError(400, "bad_request", f"{name}: is given twice; give it once", name)
    return {name: args.get(name) for name in known}


def number(
    given: Mapping[str, str | None], name: str, default: int, least: int, most: int = _MAX_NUMBER
) -> int:
    """Return a whole number between least and most."""
    text = given[name]
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17) or not least <= int(text) <= most:
        raise ApiError(400, "bad_request", f"{name}: must be a whole number from {least} to {most}", name)
    return int(text)


def flag(given: Mapping[str, str | None], name: str) -> bool | None:
    """Return whether a parameter is true or false; None if it is not given."""
    text = given[name]
    if text not in (None, "true", "false"):
        raise ApiError(400, "bad_request", f"{name}: must be true or false", name)
    return None if text is None else text == "true"
