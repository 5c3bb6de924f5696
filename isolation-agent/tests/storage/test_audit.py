"""The audit log: chained, durable, and honest about what happened to it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isolation_agent.errors import AuditError
from isolation_agent.storage import audit
from isolation_agent.storage.audit import GENESIS, AuditLog, Head, read_from, verify

from ..support.world import FakeClock, World


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def fill(path: Path, clock: FakeClock, count: int, anchor: Head = GENESIS) -> Head:
    log = AuditLog(path, clock, anchor)
    for i in range(count):
        log.append({"event": f"e{i}", "actor": "test", "reason": "x" * (i % 7) * 50})
    head = log.head
    log.close()
    return head


def test_records_are_chained(path: Path, clock: FakeClock) -> None:
    head = fill(path, clock, 3)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["seq"] for r in records] == [1, 2, 3]
    assert records[0]["prev"] == "0" * 64
    assert records[1]["prev"] == records[0]["hash"]
    assert head == Head(3, records[2]["hash"])
    assert records[0]["time"] == "2026-01-02T03:04:05.678901Z"
    result = verify(path)
    assert (result.ok, result.records, result.first, result.head) == (True, 3, 1, head)


def test_several_records_at_once(path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: syncs.append(fd))
    log = AuditLog(path, clock)
    log.append(*[{"event": "e", "actor": "a"} for _ in range(100)])
    log.close()
    assert len(syncs) == 1
    assert verify(path).records == 100


def test_restart_continues_the_chain(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 3)
    head = fill(path, clock, 2)
    assert head.seq == 5
    assert verify(path).ok


def test_nothing_in_a_record_can_end_its_line(path: Path, clock: FakeClock) -> None:
    log = AuditLog(path, clock)
    log.append({"event": "e\n{}", "actor": "\u2028\r\x00", "reason": 'x"}\n'})
    log.close()
    assert len(path.read_bytes().splitlines()) == 1
    assert verify(path).ok


def test_caller_cannot_forge_the_chain_fields(path: Path, clock: FakeClock) -> None:
    log = AuditLog(path, clock)
    log.append({"event": "e", "actor": "a", "seq": 99, "prev": "x", "hash": "y", "time": "z"})
    log.close()
    (record,) = read_from(path, 1, 10)
    assert record["seq"] == 1
    assert verify(path).ok


Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def _rehash(records: list[dict[str, Any]], i: int) -> list[dict[str, Any]]:
    records[i]["hash"] = audit._hash(records[i])
    return records


def _edit(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    records[2]["event"] = "harmless"
    return records


def _edit_and_rehash(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    records[2]["event"] = "harmless"
    return _rehash(records, 2)


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (_edit, 3, "record 3 does not match its own hash"),
        (_edit_and_rehash, 4, "record 4 does not follow"),
        (lambda r: r[:2] + r[3:], 3, "record 4 stands where record 3 should be"),
        (lambda r: [*r[:2], r[3], r[2], *r[4:]], 3, "record 4 stands where record 3 should be"),
        (lambda r: [r[0], r[0], *r[1:]], 2, "record 1 stands where record 2 should be"),
        (lambda r: [_rehash([r[0] | {"prev": "f" * 64}], 0)[0], *r[1:]], 1, "record 1 does not follow"),
        (lambda r: [*r[:3], {"event": "inserted"}, *r[3:]], 4, "is not an audit record"),
        (lambda r: [*r[:3], {**r[3], "seq": "4"}, *r[4:]], 4, "is not an audit record"),
    ],
)
def test_tampering_is_found_and_the_first_broken_record_named(
    path: Path, clock: FakeClock, change: Change, line: int, says: str
) -> None:
    fill(path, clock, 6)
    records = [json.loads(raw) for raw in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(r) + "\n" for r in change(records)))
    result = verify(path)
    assert not result.ok
    assert result.line == line
    assert says in result.problem
    assert result.records == line - 1


def test_noise_is_found(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\x00\xff garbage\n" + lines[1])
    result = verify(path)
    assert (result.line, result.ok) == (2, False)
    assert "not JSON" in result.problem


def test_missing_file(path: Path) -> None:
    with pytest.raises(AuditError, match="cannot be read: No such file"):
        verify(path)


def test_torn_last_line_is_reported_cut_off_and_put_on_record(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 3)
    whole = path.read_bytes()
    torn = whole.splitlines(keepends=True)[2][:-20]
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) + torn)
    result = verify(path)
    assert (result.ok, result.line, result.records) == (False, 3, 2)
    assert "unfinished" in result.problem

    head = fill(path, clock, 1)
    assert head.seq == 4, "two whole ones, the report, and the new one"
    assert verify(path).ok
    report = read_from(path, 3, 1)[0]
    assert report["event"] == "audit.torn"
    assert report["bytes"] == len(torn)
    assert report["fragment"] == torn[:200].decode()


def test_last_line_that_lost_only_its_end_is_kept(path: Path, clock: FakeClock) -> None:
    head = fill(path, clock, 2)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    log = AuditLog(path, clock)
    assert log.head == head
    log.close()
    assert verify(path).records == 2


def test_torn_first_line(path: Path, clock: FakeClock) -> None:
    path.write_bytes(b'{"actor":"a')
    fill(path, clock, 1)
    assert [r["event"] for r in read_from(path, 1, 10)] == ["audit.torn", "e0"]


def test_broken_last_record_stops_the_start(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 2)
    path.write_bytes(path.read_bytes().replace(b'"event":"e1"', b'"event":"e9"'))
    before = path.read_bytes()
    with pytest.raises(AuditError, match="record 2 does not match its own hash; keep the file as evidence"):
        AuditLog(path, clock)
    assert path.read_bytes() == before


def test_records_removed_from_the_end_are_missed(path: Path, clock: FakeClock) -> None:
    head = fill(path, clock, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    assert verify(path).ok, "the file alone cannot tell"
    with pytest.raises(AuditError, match="record 5, which the database remembers, was removed"):
        AuditLog(path, clock, head)


def test_history_written_anew_is_noticed(path: Path, clock: FakeClock) -> None:
    head = fill(path, clock, 5)
    path.unlink()
    clock.advance(1)
    fill(path, clock, 6)
    assert verify(path).ok
    with pytest.raises(AuditError, match="record 5, which the database remembers, was changed"):
        AuditLog(path, clock, head)


def test_older_anchor_is_fine(path: Path, clock: FakeClock) -> None:
    old = fill(path, clock, 2)
    fill(path, clock, 3)
    AuditLog(path, clock, old).close()


def test_file_moved_away_continues_the_chain_in_a_new_one(path: Path, clock: FakeClock) -> None:
    head = fill(path, clock, 3)
    archived = path.rename(path.with_suffix(".1"))
    fill(path, clock, 2, anchor=head)
    result = verify(path)
    assert (result.ok, result.first, result.head.seq) == (True, 4, 5)
    assert read_from(path, 1, 1)[0]["prev"] == head.hash
    joined = path.with_suffix(".all")
    joined.write_bytes(archived.read_bytes() + path.read_bytes())
    assert verify(joined).ok, "both files together are one chain"


def test_only_one_writer(path: Path, clock: FakeClock) -> None:
    log = AuditLog(path, clock)
    with pytest.raises(AuditError, match="another isolation-agent writes it"):
        AuditLog(path, clock)
    log.close()
    AuditLog(path, clock).close()


def test_failed_start_gives_the_lock_back(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 1)
    with pytest.raises(AuditError):
        AuditLog(path, clock, Head(9, "f" * 64))
    AuditLog(path, clock).close()


def test_directory_that_is_not_there(tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(AuditError, match="create its directory"):
        AuditLog(tmp_path / "absent" / "audit.jsonl", clock)


def test_write_that_fails_leaves_no_half_line(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(path, clock)
    log.append({"event": "a", "actor": "x"})
    before = path.read_bytes()
    write = os.write
    with monkeypatch.context() as m:
        m.setattr(os, "write", lambda fd, raw: write(fd, raw[:10]))
        with pytest.raises(AuditError, match="cannot be written"):
            log.append({"event": "b", "actor": "x"})
    assert path.read_bytes() == before
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", _no_space)
        with pytest.raises(AuditError, match="No space left on device"):
            log.append({"event": "b", "actor": "x"})
    assert path.read_bytes() == before
    log.append({"event": "c", "actor": "x"})
    log.close()
    assert [r["event"] for r in read_from(path, 1, 9)] == ["a", "c"]
    assert verify(path).ok


def _no_space(_fd: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_closed_log_refuses(path: Path, clock: FakeClock) -> None:
    log = AuditLog(path, clock)
    log.close()
    log.close()
    with pytest.raises(AuditError):
        log.append({"event": "a", "actor": "x"})


@pytest.mark.parametrize("count", [1, 2, 3, 50, 300])
def test_any_record_is_found(path: Path, clock: FakeClock, count: int) -> None:
    fill(path, clock, count)
    for seq in range(1, count + 1):
        assert [r["seq"] for r in read_from(path, seq, 2)] == list(range(seq, min(seq + 2, count + 1)))
    assert read_from(path, count + 1, 5) == []


def test_records_of_a_rotated_file_are_found_by_number(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 20, anchor=Head(100, "a" * 64))
    assert read_from(path, 110, 1)[0]["seq"] == 110
    assert read_from(path, 5, 1)[0]["seq"] == 101


def test_record_being_written_is_not_shown(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 2)
    with path.open("ab") as f:
        f.write(b'{"seq":3,"half')
    assert [r["seq"] for r in read_from(path, 1, 10)] == [1, 2]


def test_file_is_not_for_everybody(path: Path, clock: FakeClock) -> None:
    fill(path, clock, 1)
    assert path.stat().st_mode & 0o007 == 0


# With the agent


def test_agent_refuses_to_go_on_after_tampering(world: World) -> None:
    world.flood()
    world.step()
    world.crash()
    lines = world.audit_path.read_bytes().splitlines(keepends=True)
    world.audit_path.write_bytes(b"".join(lines[:-2]))
    with pytest.raises(AuditError, match="which the database remembers, was removed"):
        _ = world.agent
    world.audit_path.write_bytes(b"".join(lines))
    world.step()
    assert world.verify_audit().ok


def test_agent_survives_a_torn_line(world: World) -> None:
    world.flood()
    world.step()
    world.crash()
    with world.audit_path.open("ab") as f:
        f.write(b'{"actor":"controller","event":"action.ext')
    world.run(3)
    assert "audit.torn" in world.audit_events()
    assert world.verify_audit().ok
    assert world.only_action()["state"] == "active"
