"""The audit log: append-only JSON Lines, each record chained to the one before by sha256.

A record's hash covers the record without its own hash, and with the hash of
the record before it in ``prev``. Every append is on disk (fsync) before it
returns. Only one process may hold the log open for writing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isolation_agent.clock import Clock, rfc3339
from isolation_agent.errors import AuditError

__all__ = ["GENESIS", "AuditLog", "Head", "Verification", "read_from", "verify"]

Record = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """Sequence number and hash of the newest record."""

    seq: int
    hash: str


GENESIS = Head(0, "0" * 64)
"""What the first record of a new chain follows."""


@dataclass(frozen=True)
class Verification:
    """Outcome of walking a log."""

    records: int
    first: int  # sequence number of the first record; 0 if there is none
    head: Head
    line: int = 0  # of the first broken record; 0 if the chain holds
    problem: str = ""

    @property
    def ok(self) -> bool:
        """True if the chain holds."""
        return not self.problem


def _canonical(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _hash(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical({k: v for k, v in record.items() if k != "hash"})).hexdigest()


def _parse(line: bytes) -> Record:
    """Parse a line and check it against its own hash. Raises ValueError."""
    record = json.loads(line)
    if not isinstance(record, dict) or type(record.get("seq")) is not int:
        raise ValueError("is not an audit record")
    if record.get("hash") != _hash(record):
        raise ValueError(f"record {record['seq']} does not match its own hash")
    return record


class AuditLog:
    """The log, open for appending."""

    def __init__(self, path: Path, clock: Clock, anchor: Head = GENESIS) -> None:
        """Open, lock and check the log at path.

        anchor is a record that is known to have been written. A missing or
        empty file continues the chain from it. Raises AuditError.
        """
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as e:
            raise AuditError(
                f"audit_log: {path}: cannot be opened: {e.strerror}; create its directory "
                "or choose another path"
            ) from e
        try:
            self._take()
            torn = self._mend()
            self._head = self._last(anchor)
            if torn:
                self._report_torn(torn)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def head(self) -> Head:
        """The newest record."""
        return self._head

    def close(self) -> None:
        """Close the file, which gives up its lock."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def append(self, *events: Mapping[str, Any]) -> None:
        """Chain the events, each with at least ``event`` and ``actor``, and put them on disk.

        Either all are written or none. Raises AuditError.
        """
        with self._lock:
            head, lines = self._head, bytearray()
            for event in events:
                record = {
                    **event,
                    "seq": head.seq + 1,
                    "time": rfc3339(self._clock.now()),
                    "prev": head.hash,
                }
                record["hash"] = _hash(record)
                lines += _canonical(record) + b"\n"
                head = Head(record["seq"], record["hash"])
            self._write(bytes(lines))
            self._head = head

    def _write(self, raw: bytes) -> None:
        try:
            size = os.fstat(self._fd).st_size
            try:
                written = os.write(self._fd, raw)
                if written != len(raw):
                    raise OSError(0, "the disk took only a part")
                os.fsync(self._fd)
            except OSError:
                os.ftruncate(self._fd, size)
                raise
        except OSError as e:
            raise AuditError(
                f"audit_log: {self.path}: cannot be written: {e.strerror}; make room on the disk"
            ) from e

    def _take(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise AuditError(
                f"audit_log: {self.path}: another isolation-agent writes it; "
                "stop that one or choose another path"
            ) from e

    def _mend(self) -> bytes:
        """Cut off and return a last line that a crash left unfinished."""
        with self.path.open("rb") as f:
            tail = _unfinished(f)
        if not tail:
            return b""
        try:
            _parse(tail)
        except ValueError:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - len(tail))
            return tail
        self._write(b"\n")  # the record is whole, only its end of line was lost
        return b""

    def _last(self, anchor: Head) -> Head:
        """Return the newest record's head, after checking it and the anchor."""
        with self.path.open("rb") as f:
            line = _last_line(f)
            if not line:
                return anchor
            try:
                record = _parse(line)
                known = _find(f, anchor.seq) if anchor.seq else None
            except ValueError as e:
                raise AuditError(
                    f"audit_log: {self.path}: {e}; keep the file as evidence, move it away and start again"
                ) from e
        head = Head(record["seq"], record["hash"])
        rewritten = known is not None and known["seq"] == anchor.seq and known["hash"] != anchor.hash
        if head.seq < anchor.seq or rewritten:
            raise AuditError(
                f"audit_log: {self.path}: record {anchor.seq}, which the database remembers, was "
                f"{'changed' if rewritten else 'removed'}; keep the file as evidence, "
                "move it away and start again"
            )
        return head

    def _report_torn(self, tail: bytes) -> None:
        self.append(
            {
                "event": "audit.torn",
                "actor": "agent",
                "reason": "the last line was unfinished, as after a crash; it was cut off",
                "bytes": len(tail),
                "sha256": hashlib.sha256(tail).hexdigest(),
                "fragment": tail[:200].decode("ascii", "replace"),
            }
        )


def verify(path: Path) -> Verification:
    """Walk the log at path and check every record. Raises AuditError if it cannot be read."""
    head, first, count = GENESIS, 0, 0
    try:
        with path.open("rb") as f:
            for number, line in enumerate(f, start=1):
                problem, record = _check(line, head, number)
                if record is None:
                    return Verification(count, first, head, number, problem)
                head = Head(record["seq"], record["hash"])
                first = first or head.seq
                count += 1
    except OSError as e:
        raise AuditError(f"audit_log: {path}: cannot be read: {e.strerror}") from e
    return Verification(count, first, head)


def _check(line: bytes, before: Head, number: int) -> tuple[str, Record | None]:
    """Check one line against the record before it; the first line may continue an older file."""
    if not line.endswith(b"\n"):
        return "is unfinished, as after a crash; the agent mends it when it starts", None
    try:
        record = _parse(line)
    except ValueError as e:
        return str(e) if "record" in str(e) else f"is not JSON: {e}", None
    seq = record["seq"]
    if number > 1 and seq != before.seq + 1:
        return f"record {seq} stands where record {before.seq + 1} should be", None
    if (number > 1 or seq == 1) and record.get("prev") != before.hash:
        return f"record {seq} does not follow the record before it", None
    return "", record


def read_from(path: Path, seq: int, limit: int) -> list[Record]:
    """Return up to limit records from sequence number seq on. Raises AuditError."""
    out: list[Record] = []
    try:
        with path.open("rb") as f:
            _seek(f, seq)
            for line in f:
                if len(out) == limit or not line.endswith(b"\n"):
                    break
                record = json.loads(line)
                if record["seq"] >= seq:
                    out.append(record)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise AuditError(f"audit_log: {path}: cannot be read from record {seq}; run: audit verify") from e
    return out


def _find(f: BinaryIO, seq: int) -> Record | None:
    """Return the first record with at least that sequence number."""
    _seek(f, seq)
    for line in _lines(f):
        record = _parse(line)
        if record["seq"] >= seq:
            return record
    return None


def _seek(f: BinaryIO, seq: int) -> None:
    """Position f at a line start that is not after record seq, by bisection."""
    low, high = 0, f.seek(0, os.SEEK_END)
    while low < high:
        f.seek((low + high) // 2)
        f.readline()
        start = f.tell()
        if start >= high:
            break
        line = f.readline()
        if not line.endswith(b"\n") or json.loads(line)["seq"] >= seq:
            high = start
        else:
            low = start + len(line)
    f.seek(low)


def _lines(f: BinaryIO) -> Iterator[bytes]:
    return (line for line in f if line.endswith(b"\n"))


def _unfinished(f: BinaryIO) -> bytes:
    """Return what stands after the last end of line."""
    return _backwards(f, f.seek(0, os.SEEK_END))


def _last_line(f: BinaryIO) -> bytes:
    """Return the last line of a file that ends with an end of line."""
    return _backwards(f, f.seek(0, os.SEEK_END) - 1)


def _backwards(f: BinaryIO, end: int) -> bytes:
    """Return the bytes from the last end of line before end, up to end."""
    tail, position = b"", end
    while position > 0 and b"\n" not in tail:
        step = min(65_536, position)
        position -= step
        f.seek(position)
        tail = f.read(step) + tail
    return tail[tail.rfind(b"\n") + 1 :]
