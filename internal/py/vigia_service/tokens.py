"""Bearer tokens: read from files, compared in constant time, never printed."""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from pathlib import Path

from vigia_service.errors import ServiceError

__all__ = ["Token", "read_token"]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_MAX_FILE = 4096


class Token:
    """A bearer token (RFC 6750) whose printed forms do not show it."""

    __slots__ = ("_digest", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._digest = _digest(value)

    def __repr__(self) -> str:
        return "Token(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and hmac.compare_digest(self._digest, other._digest)

    def __hash__(self) -> int:
        return hash(self._digest)

    def matches(self, presented: str) -> bool:
        """Compare with a token that a client presented, in constant time."""
        return hmac.compare_digest(self._digest, _digest(presented))

    def fingerprint(self) -> str:
        """Return what tells this token from another one, and from which it cannot be found."""
        return hashlib.sha256(b"vigia credential " + self._digest).hexdigest()

    def header(self) -> str:
        """Return the value of the Authorization header that carries the token."""
        return f"Bearer {self._value}"


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def read_token(path: Path, field: str) -> Token:
    """Read the token of a file. Raises ServiceError that names field and path, never the content."""
    where = f"{field}: {path}"
    try:
        mode = path.stat().st_mode
        raw = _read(path) if stat.S_ISREG(mode) else b""
    except FileNotFoundError as e:
        raise ServiceError(
            f"{where}: no such file; create one, for example: (umask 077; openssl rand -hex 32 > {path})"
        ) from e
    except OSError as e:
        raise ServiceError(
            f"{where}: cannot be read: {e.strerror}; make it readable to the program's user"
        ) from e
    if not stat.S_ISREG(mode):
        raise ServiceError(f"{where}: is not a regular file; write the token into a file")
    if mode & 0o007:
        raise ServiceError(f"{where}: everybody on this machine has access to it; run: chmod o= {path}")
    text = raw.decode("ascii", "replace").strip()
    if len(raw) > _MAX_FILE or not _TOKEN.fullmatch(text):
        raise ServiceError(
            f"{where}: does not hold a token; write one line of 16 to 512 letters, digits or . _ ~ + / = -"
        )
    return Token(text)


def _read(path: Path) -> bytes:
    with path.open("rb") as f:
        return f.read(_MAX_FILE + 1)
