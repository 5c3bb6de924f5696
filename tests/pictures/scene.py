"""What pictures are taken of: a lab of its own with a flood when one is wanted, or one that runs."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from labkit import VIGIA, own_topology

from vigia.demo import transfer
from vigia.lab import state
from vigia.lab.naming import Layout
from vigia.stack.places import Places

__all__ = ["LAB", "TENANT", "VICTIM", "Scene", "carrying", "flooded", "own", "settled"]

LAB = "pictures"
AGENTS, STACK = "127.99.0.0/24", "127.99.0.250"
TENANT, VICTIM, PATH, RATE = "red", "blue", "linuxbridge-vxlan", "400Mbit"
CARRIES = 1800.0
"""Seconds after which the victim's transfer would end by itself."""
WINDOWS = 6
"""Minutes that have to be known of a path."""
LASTS = 75.0
"""Seconds that a flood goes on before it is looked at, so that all that is scraped knows of it."""
SETTLE = 1200.0
"""Seconds that a comparison may take to know something."""


@dataclass(frozen=True)
class Scene:
    """Addresses of what is looked at; empty where there is none."""

    comparison: str
    console: str = ""
    token: str = ""
    prometheus: str = ""
    lab: str = ""
    data: Path = Path()
    """Where a lab's Prometheus keeps what it has."""


@contextmanager
def own(say: Callable[[str], None]) -> Iterator[Scene]:
    """Bring up a lab of its own and its stack, and remove both after the block."""
    with tempfile.TemporaryDirectory() as folder:
        file = own_topology(Path(folder), LAB, AGENTS)
        text = file.read_text()
        mine = text.replace("stack_address: 127.0.0.1", f"stack_address: {STACK}")
        if mine == text:
            raise ValueError("the demo's topology has no stack_address of 127.0.0.1 any more")
        file.write_text(mine)
        _vigia("down", "--lab", LAB)
        try:
            say("bringing up a lab")
            addresses = json.loads(_vigia("up", "--topology", str(file), "--json"))["addresses"]
            yield Scene(
                addresses["comparison"].rstrip("/"),
                addresses["console"].rstrip("/"),
                Path(addresses["api_token"]).read_text().strip(),
                addresses["prometheus"].removesuffix("/graph"),
                LAB,
                Places(Layout(LAB)).data / "prometheus",
            )
        finally:
            _vigia("down", "--lab", LAB)


def _known(comparisons: list[dict[str, Any]]) -> bool:
    """Whether there is enough to look at: minutes of each path, and a winner of round trips between nodes."""
    trips = [c for c in comparisons if c["metric"] == "rtt" and c["placement"] == "remote"]
    windows = [path["windows"] for c in trips for path in c["paths"]]
    return max(windows, default=0) >= WINDOWS and any(c["winner"] for c in trips)


def settled(scene: Scene, say: Callable[[str], None]) -> None:
    """Wait until the comparison knows of winners, or for as long as that may take."""
    end = time.monotonic() + SETTLE
    say("waiting for a verdict")
    while time.monotonic() < end:
        answer = httpx.get(f"{scene.comparison}/v1/comparisons", trust_env=False, timeout=60)
        if answer.status_code == 200 and _known(answer.json()["comparisons"]):
            return
        time.sleep(5)
    say(f"no verdict after {SETTLE:g} s")


@contextmanager
def carrying(scene: Scene, say: Callable[[str], None]) -> Iterator[None]:
    """Let the victim transfer by TCP for the block, from the node that floods to the other."""
    lab = state.running(scene.lab).lab
    near, far = (lab.endpoint(node.name, VICTIM, PATH) for node in lab.nodes[:2])
    say(f"{VICTIM} transfers by TCP")
    with transfer.running(near, far, CARRIES) as carried:
        time.sleep(LASTS)
        yield
        if carried.over:
            raise ValueError(f"the transfer of {VICTIM} ended before its pictures were taken")


@contextmanager
def flooded(scene: Scene, say: Callable[[str], None]) -> Iterator[None]:
    """Flood for the block, again and again, once it is known and limited."""
    over = threading.Event()

    def play() -> None:
        while not over.is_set():
            argv = [str(VIGIA), "flood", "--lab", scene.lab, "--tenant", TENANT, "--path", PATH]
            flood = subprocess.Popen(
                [*argv, "--rate", RATE, "--seconds", "120", "--json"], stdout=subprocess.DEVNULL
            )
            while flood.poll() is None and not over.wait(1):
                pass
            flood.terminate()
            flood.wait()

    thread = threading.Thread(target=play)
    thread.start()
    try:
        say("flooding")
        _limited(scene)
        time.sleep(LASTS)
        if not _named(scene):
            say(f"{TENANT} is not named as who hurt {VICTIM}")
        yield
    finally:
        over.set()
        thread.join()


def _limited(scene: Scene) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        answer = httpx.get(f"{scene.comparison}/v1/site", trust_env=False, timeout=60)
        site = answer.json() if answer.status_code == 200 else {}
        if site.get("floods") and site.get("limits"):
            return
        time.sleep(2)
    raise TimeoutError("the flood was not known, or not limited, within 120 s")


def _named(scene: Scene) -> bool:
    """Whether the flood's sender is named as who hurt the victim, at once or after a while."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answer = httpx.get(f"{scene.comparison}/v1/comparisons", trust_env=False, timeout=60)
        said = answer.json()["interference"] if answer.status_code == 200 else []
        if any(
            (i["tenant"], i["offender"]) == (VICTIM, TENANT) for i in said if i["verdict"] == "attributed"
        ):
            return True
        time.sleep(5)
    return False


def _vigia(*words: str) -> str:
    done = subprocess.run([str(VIGIA), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"vigia {' '.join(words)}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
