"""Who may talk to Alertmanager: whoever posts an alert there starts what the isolation agent looks into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bcrypt
import yaml

__all__ = ["PASSWORD", "USER", "WEB_CONFIG", "basic_auth", "credentials", "web_config"]

USER = "vigia"
PASSWORD = "alertmanager.password"  # noqa: S105 - the name of its file
WEB_CONFIG = "alertmanager.web.yml"
_ROUNDS = 10
"""Of bcrypt: a password of 32 random bytes needs no more."""


def web_config(password: Path, other: str = "{}") -> str:
    """Return a web configuration that lets nobody in without the password in the file, beside what it has."""
    digest = bcrypt.hashpw(password.read_text().strip().encode(), bcrypt.gensalt(_ROUNDS)).decode()
    content: dict[str, Any] = yaml.safe_load(other) or {}
    return yaml.safe_dump(content | {"basic_auth_users": {USER: digest}}, sort_keys=False)


def basic_auth(password: Path) -> dict[str, Any]:
    """Return what Prometheus' and amtool's configuration have for a client."""
    return {"basic_auth": {"username": USER, "password_file": str(password)}}


def credentials(password: Path) -> tuple[str, str]:
    """Return user and password for a client of our own."""
    return USER, password.read_text().strip()
