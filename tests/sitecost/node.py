"""One real node, its agents and their pages, captured twice: of these a site of any size is made.

The node is a network namespace of this process: tenants' ports are veth devices on a bridge, paths lead over loopback.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import yaml

from sitecost import processes

ROOT = Path(__file__).resolve().parents[2]
PORTS = {"probe": 9871, "exporter": 9872, "enforcer": 9873, "node": 9100}
"""Where the agents of a node are scraped, as in deploy/ and in pages/main.go."""
PAGES = {"metrics": "/metrics", "fast": "/metrics/fast"}
ACCEPT = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""What Prometheus 2.42 asks for with native histograms."""
PEERS = 10
PATIENCE = 120.0
SHIPPED = "1s"
"""How often the chart and the guides probe a target."""
SETTLE = 10.0
MAIN_EVERY = 15
"""Seconds between scrapes of the page of everything."""


@dataclass(frozen=True)
class Size:
    """Of one node."""

    ports: int = 50
    paths: int = 40
    """Targets of its probe: of each peer the underlay, the operator's overlay, and those of two tenants."""
    seconds: float = 20.0
    """Between the two captures."""
    shown: bool = False
    """Whether targets are written one by one and have series of their own, or are pairs of a mesh, as on a large site."""
    node_exporter: bool = False
    interval: str = "50ms"
    """Of the probes of each target: often, so that histograms have what they have after hours."""

    @property
    def tenants(self) -> int:
        """Each has two ports."""
        return max(2, self.ports // 2)


# The names of names/names.go, of node 0: the server of pages exchanges them.


def node_name(i: int) -> str:
    """Name of a node."""
    return f"node-{i:05d}"


def tenant_name(i: int) -> str:
    """Identifier of a tenant."""
    return f"d0bd5c28a1f04a8f9d0c4e5f6a7b{i:04x}"


def port_name(place: int) -> str:
    """Identifier of the first port at a place of node 0."""
    return f"6d5a5c3e-0000-4000-9d2b-{place:012x}"


def capture(folder: Path, size: Size) -> None:
    """Write the captures. Raises RuntimeError if an agent does not become ready."""
    folder.mkdir(parents=True, exist_ok=True)
    with _running(folder / "node", size) as agents:
        time.sleep(size.seconds)  # everything has counted something, rare buckets too
        pages = [(agent, name) for agent in agents for name in PAGES]
        begun = {page: (time.monotonic(), _save(folder, *page, "0")) for page in pages}
        time.sleep(size.seconds)
        for page, (begin, there) in begun.items():
            if there:
                _save(folder, *page, "1")
                (folder / f"{page[0]}-{page[1]}.seconds").write_text(f"{time.monotonic() - begin}\n")


@dataclass(frozen=True)
class Price:
    """What one of a node's agents takes."""

    cores: float
    resident: int
    """Bytes, anonymous and of files."""


def price(folder: Path, size: Size, seconds: float) -> dict[str, Price]:
    """Return what each agent takes in so many seconds of probes at the shipped rate, while its pages are scraped."""
    usual = replace(size, interval=SHIPPED)
    with _running(folder / "priced", usual) as agents:
        time.sleep(SETTLE)
        before = {agent: processes.processor_seconds(p) for agent, p in agents.items()}
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < seconds:
            for agent in agents:
                _read(agent, "fast")
                if int(passed) % MAIN_EVERY == 0:
                    _read(agent, "metrics")
            time.sleep(max(0.0, begin + int(passed) + 1 - time.monotonic()))
        took = time.monotonic() - begin
        return {
            agent: Price((processes.processor_seconds(p) - before[agent]) / took, sum(processes.resident(p)))
            for agent, p in agents.items()
        }


@contextlib.contextmanager
def _running(work: Path, size: Size) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run a node's agents, with guests that send; all pages are there."""
    work.mkdir(parents=True)
    pins = work / "bpf"
    pins.mkdir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_network(size))
        subprocess.run(["mount", "-t", "bpf", "bpf", str(pins)], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", str(pins)], check=True)
        commands = _configure(work, pins, size)
        agents = {}
        for agent, argv in commands.items():
            log = stack.enter_context((work / f"{agent}.log").open("wb"))
            agents[agent] = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(processes.stop, agents[agent], 30)
        stack.enter_context(_traffic(size))
        _await_pages(commands, work)
        yield agents


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def _network(size: Size) -> Iterator[None]:
    _ip("link", "add", "br0", "up", "type", "bridge")
    _ip("link", "add", "uplink0", "up", "type", "veth", "peer", "name", "fabric0")
    _ip("link", "set", "fabric0", "up")
    for i in range(size.ports):
        _ip("link", "add", f"tap{i}", "up", "master", "br0", "type", "veth", "peer", "name", f"guest{i}")
        _ip("link", "set", f"guest{i}", "up")
    try:
        yield
    finally:
        for device in ("br0", "uplink0", *(f"tap{i}" for i in range(size.ports))):
            _ip("link", "del", device)


def _configure(work: Path, pins: Path, size: Size) -> dict[str, list[str]]:
    """Write the agents' configurations and return their commands."""
    ports = [
        {"device": f"tap{i}", "port": port_name(i), "tenant": tenant_name(i % size.tenants)}
        for i in range(size.ports)
    ]
    token = work / "token"
    token.touch(mode=0o600)
    token.write_text("sixteen characters or more\n")
    shared = {
        "node": node_name(0),
        "bpf": {"pin_dir": str(pins), "max_ports": 1024},
        "ports_file": _write(work, "ports", {"version": 1, "ports": ports}),
    }
    contracts = [
        {"tenant": tenant_name(i), "guarantee": "10Mbit", "ceiling": "1Gbit", "match": [{"vxlan": 100 + i}]}
        for i in range(size.tenants)
    ]
    links = [{"device": "uplink0", "rate": "10Gbit"}]
    tenants = [{"id": tenant_name(i), "name": f"tenant {tenant_name(i)}"} for i in range(size.tenants)]
    configurations = {
        "exporter": {**shared, "tenants": tenants},
        "enforcer": {**shared, "token_file": str(token), "contracts": contracts, "links": links},
        "probe": _probe(work, size),
    }
    commands = {
        agent: [
            str(ROOT / "bin" / f"vigia-{agent}"),
            f"--config={_write(work, agent, content)}",
            f"--web.listen-address=127.0.0.1:{PORTS[agent]}",
        ]
        for agent, content in configurations.items()
    }
    if size.node_exporter:
        commands["node"] = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{PORTS['node']}"]
    return commands


def _write(work: Path, name: str, content: object) -> str:
    path = work / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(path)


def _probe(work: Path, size: Size) -> dict[str, object]:
    overlay = {"path": "ovs-vxlan", "twin": "direct"}
    kinds = [
        {"path": "direct", "tenant": "_infra"},
        {**overlay, "tenant": "_infra"},
        {**overlay, "tenant": tenant_name(0)},
        {**overlay, "tenant": tenant_name(1)},
    ]
    each = {"probe": "stamp-64", "source": "127.0.0.1"}
    probed: dict[str, object]
    if size.shown:
        addresses = [f"127.0.0.{2 + i}:862" for i in range(size.paths)]
        targets = [
            {"dst": node_name(1 + i // len(kinds)), "address": address, **each, **kinds[i % len(kinds)]}
            for i, address in enumerate(addresses)
        ]
        probed = {"targets": targets}
    else:
        probed = {
            "discovery": [{"files": [_peers(work, size)], "targets": [{**each, **kind} for kind in kinds]}]
        }
    attributes = {"mode": "normal", "security": "none", "placement": "remote"}
    return {
        "node": node_name(0),
        "reflector": {
            "listeners": [{"address": "0.0.0.0:862"}],
            "allow": ["127.0.0.0/8"],
            "max_rate": 10000,
        },
        "paths": [
            {"name": "direct", "dataplane": "none", "encap": "none", "layer": "underlay", **attributes},
            {"name": "ovs-vxlan", "dataplane": "ovs", "encap": "vxlan", "layer": "overlay", **attributes},
        ],
        "classes": [
            {
                "name": "stamp-64",
                "protocol": "stamp",
                "size": 64,
                "interval": size.interval,
                "deadline": "1s",
                "objectives": [{"delay": "5ms", "jitter": "2ms"}],
            }
        ],
        **probed,
    }


def _peers(work: Path, size: Size) -> str:
    """Write the nodes of a rack, this one among them, as file_sd has them; return the file's name."""
    nodes = {node_name(i): f"127.0.0.{1 + i}:862" for i in range(1 + max(1, size.paths // 4))}
    rack = {"rack": "r1", "zone": "z1"}
    listed = [{"targets": [address], "labels": {"node": name, **rack}} for name, address in nodes.items()]
    (work / "nodes.json").write_text(json.dumps(listed))
    return str(work / "nodes.json")


@contextlib.contextmanager
def _traffic(size: Size) -> Iterator[None]:
    """Let every guest send a few UDP datagrams a second, none of them a flood."""
    over = threading.Event()

    def send() -> None:
        guests = []
        for i in range(size.ports):
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            s.bind((f"guest{i}", 0))
            guests.append((i, s))
        while not over.wait(0.1):
            for i, s in guests:
                with contextlib.suppress(OSError):
                    s.send(_datagram(i, (i + 1) % size.ports))
        for _, s in guests:
            s.close()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _datagram(source: int, destination: int) -> bytes:
    payload = b"x" * 100
    udp = struct.pack("!HHHH", 1000 + source, 2000, 8 + len(payload), 0) + payload
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, _address(source), _address(destination)
    )
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = header[:10] + struct.pack("!H", checksum) + header[12:]
    return b"\xff" * 6 + bytes([2, 0, 0, 0, 0, source]) + b"\x08\x00" + header + udp


def _address(i: int) -> bytes:
    return bytes([192, 168, 1, 1 + i])


def _await_pages(agents: dict[str, list[str]], work: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    for agent in agents:
        ready = "/" if agent == "node" else "/-/ready"
        while True:
            try:
                if httpx.get(
                    f"http://127.0.0.1:{PORTS[agent]}{ready}", timeout=5, trust_env=False
                ).is_success:
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                said = (work / f"{agent}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{agent} is not ready:\n{said}")
            time.sleep(0.2)


def _read(agent: str, name: str) -> httpx.Response:
    url = f"http://127.0.0.1:{PORTS[agent]}{PAGES[name]}"
    asked = {"Accept": ACCEPT, "Accept-Encoding": "gzip"}
    return httpx.get(url, headers=asked, timeout=60, trust_env=False)


def _save(folder: Path, agent: str, name: str, which: str) -> bool:
    """Save a page; return whether the agent has it."""
    answer = _read(agent, name)
    if answer.status_code == 404:
        return False
    answer.raise_for_status()
    head = "\n".join(
        answer.headers[h] for h in ("Content-Type", "Content-Encoding") if h in answer.headers
    ).encode()
    (folder / f"{agent}-{name}.{which}").write_bytes(head + b"\n\n" + answer.content)
    return True


def targets(nodes: int, agent: str) -> str:
    """Return what file_sd reads: every node's agent, with the label node."""
    return json.dumps(
        [
            {
                "targets": [f"127.1.{(i + 1) >> 8}.{(i + 1) & 255}:{PORTS[agent]}"],
                "labels": {"node": node_name(i)},
            }
            for i in range(nodes)
        ]
    )
