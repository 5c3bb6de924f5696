"""Benchmark of the console of a site of 100 nodes, run by make bench-pages: how soon a browser paints it.

The agent is the process that operators run; its 100 enforcers answer as real ones do, over loopback sockets. The
page itself has no data: what the visitor comes for are the limits in force and the tenants, which it asks for.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from isolation_agent.clock import SystemClock
from vigia_testing import DEADLINE, eventually
from vigia_testing.browser import chromium
from vigia_testing.paints import Paint, missed, paint, table

from .support.process import AgentProcess
from .support.world import API_TOKEN, World, alert

TENANTS = 50
LIMITS = 20
"""In force while the console is visited."""

CONTENT = "#limited li"


@contextmanager
def running(folder: Path, nodes: int, ports: int, limits: int) -> Iterator[AgentProcess]:
    """Run the agent with enforcers of so many nodes, and wait until it has limited the ports that flood."""
    world = World(folder, SystemClock())
    try:
        world.guards = {"max_per_tenant": limits, "max_per_node": limits, "max_active": limits}
        world.guards["breaker"] = {"actions": 2 * limits}
        for i in range(1, nodes):
            enforcer = world.add_node(f"node-{i:03}", poll=1.0)  # so many of them are to take no time
            for k in range(ports):
                enforcer.add(f"{enforcer.node}-{k}", f"tenant-{(i + k) % TENANTS:02}", guarantee=5_000_000)
        agent = AgentProcess(world.write_files()).wait_until_ready()
        try:
            _flood(world, agent, limits)
            yield agent
        finally:
            agent.stop()
    finally:
        world.close()


def _flood(world: World, agent: AgentProcess, limits: int) -> None:
    now, alerts = world.peers_clock.now(), []
    for enforcer in [e for e in world.enforcers.values() if e.node != "lb1"][:limits]:
        port = next(iter(enforcer.ports.values()))
        enforcer.flood(port.port)
        alerts.append(alert(now, port.port, port.tenant, labels={"node": enforcer.node}))
    agent.post(*alerts).raise_for_status()
    wanted = len(alerts)

    def limited() -> bool:
        return len(agent.get("/v1/overview").json()["limited"]) == wanted

    eventually(limited, f"{wanted} limits to be in force", 300.0)


def signed_in(browser: Browser, url: str) -> Any:
    """Sign in, and return the profile's storage with the session."""
    context = browser.new_context()
    try:
        context.set_default_timeout(DEADLINE * 1000)
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Your token").fill(API_TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.locator(CONTENT).first.wait_for()
        return context.storage_state()
    finally:
        context.close()


def visits(browser: Browser, url: str, rounds: int) -> dict[str, list[Paint]]:
    """Visit the console as somebody who has to sign in, and as somebody who has."""
    known = signed_in(browser, url)
    found: dict[str, list[Paint]] = {"console, to sign in": [], "console, signed in": []}
    for _ in range(rounds):
        found["console, to sign in"].append(paint(browser, url, "#login:not([hidden])"))
        found["console, signed in"].append(paint(browser, url, CONTENT, known))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; 1 if the console is not painted as soon as is promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--ports", type=int, default=10, help="tenants' ports of each node")
    parser.add_argument("--rounds", type=int, default=15, help="visits of each kind")
    parser.add_argument("--json", action="store_true", help="print data")
    asked = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="vigia-console-") as name,
        running(Path(name), asked.nodes, asked.ports, LIMITS) as agent,
        chromium() as browser,
    ):
        found = visits(browser, str(agent.http.base_url), asked.rounds)
    if asked.json:
        sys.stdout.write(json.dumps({k: [asdict(p) for p in v] for k, v in found.items()}) + "\n")
    else:
        sys.stdout.write(f"isolation-agent, {asked.nodes} nodes, {asked.ports} ports each: ")
        sys.stdout.write(table(found))
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main())
