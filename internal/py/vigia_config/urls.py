"""URLs of servers, as configuration files and command lines name them."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["base_url"]


def base_url(value: str, what: str, example: str) -> str:
    """Return the http or https URL of a server without its last slash.

    A user's name and password have no place in it: they would appear in logs.
    Raises ValueError, which says that it is not the URL of ``what``, and shows
    the example.
    """
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"is not the URL of {what}; write for example {example}")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"is not the URL of {what}; write for example {example}, without a user, a query or a fragment"
        )
    return value.rstrip("/")
