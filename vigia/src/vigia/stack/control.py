"""Starting, stopping and looking at the stack."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from vigia.errors import VigiaError
from vigia.host import commands, processes
from vigia.lab.model import Lab
from vigia.stack import files, places, plan
from vigia.stack.places import MARKER, Places
from vigia.stack.plan import Service
from vigia_service.patience import Patience

__all__ = ["ENDS", "Condition", "conditions", "down", "is_up", "members", "prepare", "start", "wait_ready"]

ENDS = 5
"""How often a service may end before it works: with the supervisor's delays, in a quarter of a minute."""

SLOW = 60.0
"""Seconds after which it is said what is waited for, and so on."""


def members(where: Places) -> list[int]:
    """Return the processes of a stack, found by the mark in their environment."""
    return [pid for pid in processes.all_pids() if _belongs(where, pid)]


def _belongs(where: Places, pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    marked = f"{MARKER}={where.directory}".encode() in environment
    return marked and processes.alive(pid) and processes.same_files(pid)


def _supervisor(where: Places) -> int | None:
    for pid in members(where):
        words = processes.arguments(pid)
        if words[1:3] == ["-m", "vigia.stack.supervisor"]:
            return pid
    return None


def is_up(where: Places) -> bool:
    """Whether the supervisor runs."""
    return _supervisor(where) is not None


def prepare(lab: Lab) -> list[Service]:
    """Check programs and ports, write all files, and return the plan. Raises VigiaError."""
    where = Places(lab.layout)
    programs = places.find_programs()
    if members(where):
        down(where)  # what a crash left
    services = plan.make(lab, where, programs)
    for service in services:
        _check_free(service)
    files.write(lab, where)
    plan.write(where.plan, services)
    return services


def _check_free(service: Service) -> None:
    host, _, port = service.address.rpartition(":")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, int(port)))
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise VigiaError(
                    f"{service.address} is in use, and {service.name} needs it; stop what holds it "
                    f"(ss -ltnp 'sport = :{port}') or write another stack_address or agents into the topology"
                ) from e
            raise VigiaError(f"{service.name} cannot listen on {service.address}: {e.strerror}") from e


def start(where: Places) -> None:
    """Start the supervisor of the plan that prepare wrote."""
    commands.detach(
        [sys.executable, "-m", "vigia.stack.supervisor", str(where.directory)],
        env={MARKER: str(where.directory), "PYTHONFAULTHANDLER": "1"},
        log=where.logs / "supervisor.log",
    )


def down(where: Places) -> int:
    """Stop every process of the stack and remove its files; return how many processes there were."""
    found = members(where)
    supervisor = _supervisor(where)
    if supervisor is not None:
        processes.stop([supervisor], lambda pid: _belongs(where, pid), grace=25.0)
    processes.stop(members(where), lambda pid: _belongs(where, pid), grace=5.0)
    for folder in (where.directory, where.data):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # another lab has data there
        where.data.parent.rmdir()
    left = members(where)
    if left:
        raise VigiaError(f"processes {left} do not end; kill them: kill -9 {' '.join(map(str, left))}")
    return len(found)


@dataclass(frozen=True)
class Condition:
    """How a service is."""

    name: str
    address: str
    pid: int | None
    seconds: float
    """Seconds since it was started."""
    restarts: int
    problem: str
    """Why it does not work; empty if it does."""


def conditions(where: Places) -> list[Condition]:
    """Ask every service whether it works. Raises VigiaError if there is no stack."""
    try:
        services = plan.read(where.plan)
        status: dict[str, Any] = json.loads(where.status.read_text())["services"]
    except (OSError, ValueError, KeyError) as e:
        raise VigiaError(f"the stack of lab {where.layout.lab} is not up; start it: vigia stack up") from e
    with _client() as client:
        return [_condition(client, s, status.get(s.name, {})) for s in services]


@contextmanager
def _client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=3.0, trust_env=False) as client:
        yield client


def _condition(client: httpx.Client, service: Service, status: dict[str, Any]) -> Condition:
    started = float(status.get("started", 0.0))
    return Condition(
        name=service.name,
        address=service.address,
        pid=status.get("pid"),
        seconds=max(0.0, time.time() - started) if started else 0.0,
        restarts=int(status.get("restarts", 0)),
        problem=_ask(client, service),
    )


def _ask(client: httpx.Client, service: Service) -> str:
    """Return why a service does not work, or nothing."""
    try:
        answer = client.get(service.ready_url, auth=service.auth)
    except httpx.HTTPError as e:
        return f"no answer: {e}"
    if answer.status_code == httpx.codes.OK:
        return ""
    return f"answers {answer.status_code}: {answer.text.strip()[:200]}"


def wait_ready(
    where: Places, services: list[Service], seconds: float, slow: Callable[[str], None] = lambda _what: None
) -> Iterator[str]:
    """Wait until every service works; yield each one's name as it does.

    ``slow`` is told each minute what is waited for, and why. Raises VigiaError if one does not work within
    the time, or goes on ending.
    """
    waiting = {s.name: s for s in services}
    patience = Patience(seconds)
    minute = Patience(SLOW)
    problems: dict[str, str] = {}
    with _client() as client:
        while waiting:
            late = False
            for name, service in list(waiting.items()):
                problems[name] = _ask(client, service)
                late = patience.over()
                if not problems[name]:
                    del waiting[name]
                    yield name
            if not waiting:
                return
            if not is_up(where):
                raise VigiaError(f"the supervisor ended: {_tail(where.logs / 'supervisor.log')}")
            known = _reported(where)
            ends = next((n for n in waiting if known.get(n, {}).get("restarts", 0) >= ENDS), None)
            if late or ends:
                name = ends or next(iter(waiting))
                verdict = "goes on ending" if ends else f"does not become ready within {seconds:g} s"
                raise VigiaError(
                    f"{name} {verdict}: {problems[name]}; {_process(known.get(name, {}))}; "
                    f"its log ends: {_tail(where.logs / f'{name}.log')}"
                )
            if minute.over():
                minute = Patience(SLOW)
                slow("; ".join(f"{n}: {problems[n]}; {_process(known.get(n, {}))}" for n in waiting))
            time.sleep(0.1)


def _reported(where: Places) -> dict[str, dict[str, Any]]:
    """Return what the supervisor says of each service, as far as it says anything."""
    try:
        services: dict[str, dict[str, Any]] = json.loads(where.status.read_text())["services"]
    except (OSError, ValueError, KeyError):
        return {}
    return services


def _process(known: dict[str, Any]) -> str:
    """Say what a service's process does, which an empty log does not."""
    pid = known.get("pid")
    doing = "it has no process" if pid is None else processes.activity(pid)
    return f"{doing}, restarts {known.get('restarts', 0)}"


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return f"(no log {log})"
    return " | ".join(lines[-3:]) or "(empty)"
