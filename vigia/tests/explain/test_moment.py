"""vigia explain beside real probes: a router that stops forwarding is named, beside the hop that was there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from labkit import ROOT
from portkit import free_port

from vigia_testing import eventually

PROBE = ROOT / "bin" / "vigia-probe"
LEFT, ROUTER, RIGHT = (f"vigia-explain-{os.getpid()}-{end}" for end in ("left", "router", "right"))
PATIENCE = 300.0
"""Several good records: of one that a busy machine has spoilt there is another a minute later."""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def network(root: None) -> Iterator[None]:
    """Two hosts with a router between them, each a network namespace."""
    with ExitStack() as stack:
        for ns in (LEFT, ROUTER, RIGHT):
            run("ip", "netns", "add", ns)
            stack.callback(run, "ip", "netns", "del", ns)
            run("ip", "-n", ns, "link", "set", "lo", "up")
        for ns, far, net in ((LEFT, "left0", "10.8.1"), (RIGHT, "right0", "10.8.2")):
            run(
                "ip",
                "link",
                "add",
                "veth0",
                "netns",
                ns,
                "type",
                "veth",
                "peer",
                "name",
                far,
                "netns",
                ROUTER,
            )
            run("ip", "-n", ns, "link", "set", "veth0", "up")
            run("ip", "-n", ROUTER, "link", "set", far, "up")
            run("ip", "-n", ns, "addr", "add", f"{net}.2/24", "dev", "veth0")
            run("ip", "-n", ROUTER, "addr", "add", f"{net}.1/24", "dev", far)
            run("ip", "-n", ns, "route", "add", "default", "via", f"{net}.1")
        run("ip", "netns", "exec", ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        yield


@contextmanager
def probing(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """Run vigia-probe; the value is its base URL."""
    file, address = folder / f"{config['node']}.yaml", f"127.0.0.1:{free_port()}"
    file.write_text(json.dumps(config))
    with subprocess.Popen([PROBE, "--config", file, "--web.listen-address", address]) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def answers(url: str) -> None:
    """Wait until a probe has begun to work."""

    def ready() -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{url}/-/ready", timeout=60.0, trust_env=False).is_success
        return False

    eventually(ready, f"{url} to be ready", PATIENCE)


def listener(ns: str, address: str) -> dict[str, Any]:
    return {"listeners": [{"netns": ns, "address": f"{address}:862"}], "allow": ["10.8.0.0/16"]}


def test_a_router_that_stops_forwarding_is_named(
    vigia: Callable[..., Any], network: None, tmp_path: Path
) -> None:
    attributes = {"dataplane": "none", "encap": "none", "mode": "normal", "security": "none"}
    target = {"dst": "right", "path": "direct", "tenant": "_infra", "probe": "fast", "netns": LEFT}
    config = {
        "node": "left",
        "paths": [{"name": "direct", **attributes, "layer": "underlay", "placement": "remote"}],
        "classes": [{"name": "fast", "protocol": "stamp", "size": 64, "interval": "50ms"}],
        "targets": [{**target, "address": "10.8.2.2:862"}],
        "moments": {"interval": "10s", "good_interval": "1m"},
    }
    with ExitStack() as stack:
        right = {"node": "right", "reflector": listener(RIGHT, "10.8.2.2")}
        answers(stack.enter_context(probing(tmp_path, right)))  # else the path begins with a bad record
        url = stack.enter_context(probing(tmp_path, config))

        def records(kind: str) -> list[dict[str, Any]]:
            try:
                answer = httpx.get(f"{url}/v1/moments?path=direct", timeout=60.0, trust_env=False)
                found: list[dict[str, Any]] = answer.json()[kind]
            except httpx.HTTPError:
                return []
            return found

        eventually(lambda: records("good"), "a good record", PATIENCE)

        def told(sentences: Sequence[str], *options: str) -> None:
            """Wait until the newest record says all that: a busy machine may have lost packets before."""
            said: list[str] = [""]

            def says() -> bool:
                said.append(vigia("explain", "direct", "--url", url, *options).stdout)
                return all(sentence in said[-1] for sentence in sentences)

            eventually(says, lambda: f"{sentences} in {said[-1]}", PATIENCE)

        reaches = "The path reaches the far end through 10.8.1.1: 2 hops."
        told([reaches, "The path MTU is 1500 bytes."])
        rules = (
            "add table ip t; add chain ip t c { type filter hook forward priority 0; }; add rule ip t c drop"
        )
        run("ip", "netns", "exec", ROUTER, "nft", rules)
        eventually(lambda: [m for m in records("moments") if "last_good" in m], "a bad record", PATIENCE)
        breaks = (
            "The path breaks after hop 1: 10.8.1.1 is the last to answer, and nothing comes from hop 2 on, "
            "where 10.8.2.2 was when it was good."
        )
        was = "It was 1500 bytes when the path was good."
        told([breaks, was, "last good record is from"], "--src", "left")
