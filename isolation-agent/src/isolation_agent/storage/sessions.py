"""Sessions of people who use the console: a random cookie, known to the database by its digest only."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from isolation_agent.clock import Clock
from isolation_agent.config import Account
from isolation_agent.storage.store import Store
from isolation_agent.storage.tables import LoginSession

__all__ = ["OpenSession", "Sessions"]

_MAX_COOKIE = 128


@dataclass(frozen=True)
class OpenSession:
    """A session that holds."""

    account: Account
    cookie: str
    expires_at: datetime

    @property
    def csrf(self) -> str:
        """What a page of ours can read and send along, and a page of somebody else cannot."""
        return _digest("csrf", self.cookie)


class Sessions:
    """Opens, finds and closes sessions."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def open(self, account: Account, seconds: float) -> OpenSession:
        """Open a session. Raises StorageError."""
        now, cookie = self._clock.now(), secrets.token_urlsafe(32)
        expires = now + timedelta(seconds=seconds)
        with self._store.write() as session:
            session.add(
                LoginSession(
                    digest=_digest("session", cookie),
                    account=account.name,
                    credential=account.token.fingerprint(),
                    created_at=now,
                    expires_at=expires,
                )
            )
        return OpenSession(account, cookie, expires)

    def find(self, cookie: str, accounts: tuple[Account, ...]) -> OpenSession | None:
        """Return the session of a cookie; None if it has expired, or its account or token has changed."""
        if not cookie or len(cookie) > _MAX_COOKIE:
            return None
        with self._store.read() as session:
            row = session.get(LoginSession, _digest("session", cookie))
        if row is None or row.expires_at <= self._clock.now():
            return None
        account = next((a for a in accounts if a.name == row.account), None)
        if account is None or account.token.fingerprint() != row.credential:
            return None
        return OpenSession(account, cookie, row.expires_at)

    def close(self, cookie: str) -> None:
        """End a session."""
        with self._store.write() as session:
            row = session.get(LoginSession, _digest("session", cookie))
            if row is not None:
                session.delete(row)


def _digest(purpose: str, cookie: str) -> str:
    return hashlib.sha256(f"vigia {purpose} {cookie}".encode("utf-8", "surrogatepass")).hexdigest()
