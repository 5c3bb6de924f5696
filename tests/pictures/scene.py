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

from vigia.lab.naming import Layout
from vigia.stack.places import Places

__all__ = ["LAB", "Scene", "flooded", "own", "settled"]

LAB = "pictures"
AGENTS, STACK = "127.99.0.0/24", "127.99.0.250"
TENANT, PATH, RATE = "red", "linuxbridge-vxlan", "400Mbit"
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


def _vigia(*words: str) -> str:
    done = subprocess.run([str(VIGIA), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"vigia {' '.join(words)}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
