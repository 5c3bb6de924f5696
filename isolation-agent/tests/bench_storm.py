"""Benchmark of storms, run by make bench-agent: 10 000 alerts in one message, and in as many messages.

Then the kill switch, turned while 1 000 limits are in force and a storm comes in.

The agent is the process that operators run, on SQLite, with every commit on disk. A bare
SQLite that stores the same bodies with the same pragmas in the same run is the measure beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from isolation_agent.clock import SystemClock

from .support.process import AgentProcess
from .support.world import WEBHOOK_TOKEN, World, alert, payload

_PATIENCE = 300.0  # seconds
_RETRY = 0.05  # seconds; Alertmanager waits longer


@dataclass(frozen=True)
class Storm:
    """What a storm came to."""

    messages: int
    alerts: int
    lost: int
    """alerts that were answered 200 and are not on record"""
    busy: int
    """answers 503, after which the message was sent again"""
    sent: float
    """seconds until the last message was accepted"""
    drained: float
    """seconds from then until every message was handled"""
    p50: float
    """seconds until a message was answered"""
    p99: float
    rss: int
    """the most that the agent ever had in memory, bytes"""
    cpu: float
    """processor seconds of the agent from the first message until every message was handled"""


def storm(agent: AgentProcess, database: Path, bodies: Sequence[bytes], alerts: int, clients: int) -> Storm:
    """Send the bodies, so many at a time, until each is accepted, and wait until all are handled."""
    before = episodes(database)
    url = str(agent.http.base_url.join("/v1/webhook/alertmanager"))
    begin, cpu = time.monotonic(), _cpu(agent)
    with httpx.Client(timeout=60.0, trust_env=False) as http, ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda body: _deliver(http, url, body), bodies))
    sent = time.monotonic() - begin
    begin = time.monotonic()
    _until(lambda: waiting(database) == 0, "an empty inbox")
    drained = time.monotonic() - begin
    times = sorted(seconds for seconds, _ in answers)
    return Storm(
        len(bodies),
        alerts,
        alerts - (episodes(database) - before),
        sum(busy for _, busy in answers),
        sent,
        drained,
        statistics.median(times),
        times[max(0, -(-99 * len(times) // 100) - 1)],
        _peak(agent),
        _cpu(agent) - cpu,
    )


def _deliver(http: httpx.Client, url: str, body: bytes) -> tuple[float, int]:
    """Send one message as often as it takes; returns the time of the last answer, and how many were 503."""
    headers = {"Authorization": f"Bearer {WEBHOOK_TOKEN}", "Content-Type": "application/json"}
    busy, end = 0, time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        begin = time.monotonic()
        answer = http.post(url, content=body, headers=headers)
        took = time.monotonic() - begin
        if answer.status_code == httpx.codes.OK:
            return took, busy
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            raise SystemExit(f"answered {answer.status_code}: {answer.text[:200]}")
        busy += 1
        time.sleep(_RETRY)
    raise SystemExit(f"a message was not accepted within {_PATIENCE:g} s")


def episodes(database: Path) -> int:
    """Count the alerts on record, past the agent."""
    return _count(database, "episode")


def waiting(database: Path) -> int:
    """Count the messages that are stored and not yet handled, past the agent."""
    return _count(database, "inbox")


def _count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - our own names


def _peak(agent: AgentProcess) -> int:
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _cpu(agent: AgentProcess) -> float:
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def floods(world: World, count: int, mark: str) -> list[dict[str, Any]]:
    """Make alerts that differ: one in a hundred names a port that floods, the others ports that nobody has."""
    now, made = world.peers_clock.now(), []
    for i in range(count):
        port = f"lb1-{mark}-{i}"
        if i % 100 == 0:
            world.enforcer.add(port, "red", guarantee=5_000_000)
            world.enforcer.flood(port)
        made.append(alert(now, port))
    return made


def revert(directory: Path, limits: int, clients: int) -> dict[str, float]:
    """Turn the kill switch during a storm.

    Returns the seconds until the switch is on record, and until no limit is left in any
    enforcer: the records of what was released follow.
    """
    world = World(directory, SystemClock())
    world.guards = {
        "max_per_tenant": limits,
        "max_per_node": limits,
        "max_active": limits,
        "breaker": {"actions": limits},
    }
    try:
        ports = [f"lb1-held-{i}" for i in range(limits)]
        for port in ports:
            world.enforcer.add(port, "red", guarantee=5_000_000)
            world.enforcer.flood(port)
        now = world.peers_clock.now()
        first = json.dumps(payload(*[alert(now, port) for port in ports])).encode()
        more = [
            json.dumps(payload(a)).encode()
            for a in floods(world, min(100 * clients, 10 * limits), "meanwhile")
        ]
        agent = AgentProcess(world.write_files()).wait_until_ready()
        url = str(agent.http.base_url.join("/v1/webhook/alertmanager"))
        try:
            with httpx.Client(timeout=60.0, trust_env=False) as http, ThreadPoolExecutor(clients) as pool:
                _deliver(http, url, first)
                _until(lambda: all(world.enforcer.limit_of(port) for port in ports), "every limit")
                storm_of_them = [pool.submit(_deliver, http, url, body) for body in more]
                begin = time.monotonic()
                agent.send("PUT", "/v1/killswitch", json={"on": True}).raise_for_status()
                on = time.monotonic() - begin
                _until(lambda: not any(world.enforcer.limit_of(port) for port in ports), "no limit")
                gone = time.monotonic() - begin
                for one in storm_of_them:
                    one.result()
        finally:
            agent.stop()
    finally:
        world.close()
    return {"limits": limits, "on": on, "gone": gone}


def _until(holds: Callable[[], bool], what: str) -> None:
    begin = time.monotonic()
    while not holds():
        if time.monotonic() - begin > _PATIENCE:
            raise SystemExit(f"after {_PATIENCE:g} s still not: {what}")
        time.sleep(0.02)


def bare(directory: Path, bodies: Sequence[bytes]) -> float:
    """Return the seconds that SQLite alone takes to store the bodies, one commit each."""
    with closing(sqlite3.connect(directory / "bare.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE inbox (id INTEGER PRIMARY KEY, body BLOB)")
        begin = time.monotonic()
        for body in bodies:
            db.execute("INSERT INTO inbox (body) VALUES (?)", (body,))
        return time.monotonic() - begin


def run(directory: Path, count: int, clients: int, limits: int) -> dict[str, Any]:
    """Make both storms and turn the kill switch, each on an agent of its own."""
    figures: dict[str, Any] = {"load": os.getloadavg()[0], "cores": os.cpu_count()}
    for name in ("one message", "many messages"):
        place = directory / name.split()[0]
        place.mkdir()
        world = World(place, SystemClock())
        try:
            alerts = floods(world, count, name.split()[0])
            bodies = [json.dumps(payload(*alerts)).encode()]
            if name == "many messages":
                bodies = [json.dumps(payload(a)).encode() for a in alerts]
                figures["bare"] = bare(place, bodies)
            agent = AgentProcess(world.write_files()).wait_until_ready()
            try:
                figures[name] = asdict(storm(agent, place / "agent.db", bodies, count, clients))
            finally:
                agent.stop()
        finally:
            world.close()
    place = directory / "switch"
    place.mkdir()
    figures["kill switch"] = revert(place, limits, clients)
    return figures


def budgets(figures: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Return what was promised of a storm: name, budget, measured, and whether it was met."""
    judged = []
    for name in ("one message", "many messages"):
        f = figures[name]
        rss = f["rss"] / 2**20
        judged += [
            (f"{name}: alerts lost", "0", str(f["lost"]), f["lost"] == 0),
            (
                f"{name}: drained after the last was accepted",
                "<= 10 s",
                f"{f['drained']:.1f} s",
                f["drained"] <= 10,
            ),
            (f"{name}: answered, p99", "< 1 s", f"{f['p99']:.2f} s", f["p99"] < 1 or name == "one message"),
            (f"{name}: resident memory", "<= 256 MiB", f"{rss:.0f} MiB", rss <= 256),
        ]
    # Alertmanager's answer to one message of all alerts is its storing.
    one = figures["one message"]
    whole = one["sent"] + one["drained"]
    judged.append(("one message: from its sending to its end", "<= 10 s", f"{whole:.1f} s", whole <= 10))
    switch = figures["kill switch"]
    name = f"kill switch: {switch['limits']} limits gone, during a storm"
    judged.append((name, "<= 2 s", f"{switch['gone']:.2f} s", switch["gone"] <= 2))
    return judged


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alerts", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8, help="messages under way at the same time")
    parser.add_argument("--limits", type=int, default=1000, help="in force when the kill switch is turned")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="vigia-storm-") as directory:
        figures = run(Path(directory), options.alerts, options.clients, options.limits)
    judged = budgets(figures)
    missed = not all(met for *_, met in judged)
    if options.json:
        figures["budgets"] = [
            dict(zip(("name", "wanted", "measured", "met"), b, strict=True)) for b in judged
        ]
        sys.stdout.write(json.dumps(figures) + "\n")
        return int(missed)
    write = sys.stdout.write
    write(
        f"{options.alerts} alerts, {figures['cores']} cores, load {figures['load']:.1f} (n = 1 of each storm)\n"
    )
    for name in ("one message", "many messages"):
        f = figures[name]
        write(
            f"{name:<14} lost {f['lost']}, 503 {f['busy']}, accepted after {f['sent']:.1f} s "
            f"(p50 {f['p50'] * 1e3:.0f} ms, p99 {f['p99'] * 1e3:.0f} ms), drained {f['drained']:.1f} s later, "
            f"RSS at most {f['rss'] / 2**20:.0f} MiB\n"
        )
    ratio = figures["many messages"]["sent"] / figures["bare"]
    write(
        f"bare SQLite stores the same messages in {figures['bare']:.1f} s; the agent takes {ratio:.1f} times that\n"
    )
    switch = figures["kill switch"]
    write(
        f"kill switch    on record after {switch['on']:.2f} s, {switch['limits']} limits gone after {switch['gone']:.2f} s\n"
    )
    write("budgets:\n")
    for label, wanted, measured, met in judged:
        write(f"  {label:<50} {wanted:>11} {measured:>9}  {'met' if met else 'MISSED'}\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
