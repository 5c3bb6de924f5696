"""The demo, run as a person runs it, on a lab of its own beside any other, and its tutorial."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from labkit import Machine, Ran, need_root, own_topology, run_vigia
from pagekit import page

from vigia.lab import model, topology
from vigia.lab.model import Lab
from vigia.stack.places import Places, stack_address

__all__ = ["LAB", "STACK", "TUTORIAL", "Demo", "run_demo"]

LAB = "e2e"
AGENTS = "127.79.0.0/24"
STACK = "127.79.0.250"
TUTORIAL = page("tutorial/first-ten-minutes.md")


@dataclass(frozen=True)
class Demo:
    """A demo that has been run and is still up."""

    file: Path
    lab: Lab
    run: Ran

    @property
    def report(self) -> Any:
        return self.run.json

    @property
    def where(self) -> Places:
        return Places(self.lab.layout)

    def query(self, expression: str) -> list[dict[str, Any]]:
        url = f"http://{stack_address(self.lab, 9090)}/api/v1/query"
        answer = httpx.get(url, params={"query": expression}, trust_env=False, timeout=60).json()
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result


def run_demo(folder: Path) -> Iterator[Demo]:
    """Run the demo once; afterwards everything is killed rather than stopped, and then removed."""
    need_root()
    file = own_topology(folder, LAB, AGENTS)
    file.write_text(file.read_text().replace("stack_address: 127.0.0.1", f"stack_address: {STACK}"))
    run_vigia("down", "--lab", LAB)
    before = Machine.now(LAB)
    lab = model.resolve(topology.load(file))
    assert lab.topology.stack_address.compressed == STACK
    try:
        done = run_vigia("demo", "--topology", str(file), "--json", timeout=1500)
        assert done.status == 0, done.stderr
        print(json.dumps({k: done.json[k] for k in ("victim", "guarantee", "paths")}))
        yield Demo(file, lab, done)
        kill_everything(Places(lab.layout))
    finally:
        down = run_vigia("down", "--lab", LAB)
    assert down.status == 0, down.stderr
    assert Machine.now(LAB) == before
    assert not Places(lab.layout).data.exists()


def kill_everything(where: Places) -> None:
    """As a crash would: the supervisor, its children and Open vSwitch, without a chance to clean up."""
    status = json.loads(where.status.read_text())
    pids = [status["supervisor"], *(s["pid"] for s in status["services"].values() if s["pid"])]
    pids += [int(p.read_text()) for p in where.layout.directory.glob("nodes/*/ovs/*.pid")]
    for pid in pids:
        with suppress(ProcessLookupError):  # the supervisor's children die with it
            os.kill(pid, signal.SIGKILL)
