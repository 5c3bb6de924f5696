"""A SQLite database that is damaged or gone when the agent starts: put aside, begun anew, and said so.

What must not be forgotten with it are the kill switch and the breaker: the audit log has them as well.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from isolation_agent.errors import AuditError, DamagedError
from isolation_agent.storage.audit import GENESIS
from isolation_agent.storage.journal import Journal
from isolation_agent.storage.store import Store

__all__ = ["open_store", "take_over_switches"]

_log = logging.getLogger(__name__)

_PARTS = ("", "-wal", "-shm")


def open_store(url: str, path: Path | None, replica: str, now: datetime) -> tuple[Store, str]:
    """Open the database, a new one in place of a damaged one, and return why it is new, or nothing.

    path is that of SQLite's file. Raises StorageError.
    """
    there = path is None or path.exists()
    try:
        store = Store(url, replica=replica)
        try:
            store.check_whole()
        except BaseException:
            store.close()
            raise
    except DamagedError as e:
        if path is None:
            raise
        kept = _put_aside(path, now)
        _log.error("cannot use the database: a new one begins", extra={"kept": str(kept), "err": str(e)})
        return Store(url, replica=replica), f"what was there was damaged, and is kept as {kept.name}"
    return store, "" if there else "there was none"


def _put_aside(path: Path, now: datetime) -> Path:
    """Rename what there is, for people to look at."""
    kept = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S.%fZ}")
    for part in _PARTS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + part).rename(kept.with_name(kept.name + part))
    return kept


def take_over_switches(journal: Journal, why: str) -> None:
    """Set in a new database what the audit log says of kill switch and breaker. Raises AgentError.

    why says why the database is new.
    """
    if journal.audit.head == GENESIS:
        return  # the agent's first start
    killed, tripped = _switches(journal.audit.path)
    with journal.store.write() as session:
        journal.store.set_kill_switch(session, killed)
        journal.store.set_breaker(session, tripped)
        journal.note("database.new", "agent", reason=why, kill_switch=killed, breaker=tripped)


def _switches(path: Path) -> tuple[bool, str]:
    """Return what the log last says of the kill switch and of the breaker."""
    killed, tripped = False, ""
    try:
        with path.open("rb") as log:
            for line in log:
                if b'"killswitch.o' not in line and b'"breaker.' not in line:
                    continue
                record = json.loads(line)
                match record.get("event"):
                    case "killswitch.on" | "killswitch.off" as event:
                        killed = event == "killswitch.on"
                    case "breaker.tripped":
                        tripped = str(record.get("reason", ""))
                    case "breaker.reset":
                        tripped = ""
    except (OSError, ValueError) as e:
        raise AuditError(f"audit_log: {path}: cannot be read: {e}; run: audit verify") from e
    return killed, tripped
