"""Causes of loss in a real lab without a stack: what each does to packets, and that nothing of it is left."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from labkit import claim, need_root

from vigia.attacks import planting
from vigia.attacks.losses import lab_named
from vigia.attacks.planting import CAUSES, Scene
from vigia.attacks.present import remove
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import up as lab_up
from vigia.lab.model import STAMP_PORT, Endpoint, Lab
from vigia_testing import DEADLINE, eventually

LAB = "planted"
AT = "127.91.0.0/24", "127.91.0.250"
PROBE = bytes(64)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    need_root()
    found = lab_named(claim(LAB), AT)
    remove(found)
    try:
        yield lab_up.bring_up(found, "auto", Steps(io.StringIO())).lab
    finally:
        remove(found)


def udp(at: Endpoint, port: int = 0, seconds: float = 0.5) -> socket.socket:
    made = netns.inside(at.netns, lambda: socket.socket(type=socket.SOCK_DGRAM))
    made.settimeout(seconds)
    made.bind((str(at.address.ip), port))
    return made


def answered(lab: Lab, path: str, tenant: str, probes: int = 5) -> int:
    """How many probes of the first machine the second one's reflector answers."""
    s = Scene(lab, {}, path, tenant)
    found = 0
    with udp(s.near) as prober, udp(s.far, STAMP_PORT) as reflector:
        for _ in range(probes):
            try:
                prober.sendto(PROBE, reflector.getsockname())
                data, sender = reflector.recvfrom(2048)
                reflector.sendto(data, sender)
                prober.recv(2048)
            except OSError:
                continue
            found += 1
    return found


def rules(lab: Lab, *machines: Endpoint) -> dict[str, str]:
    """All that causes could leave behind: nftables, qdiscs, filters and MTUs, and OpenFlow's rules."""
    found = {}
    for name in [lab.links[0].netns, *(e.netns for e in (*lab.nodes, *machines))]:
        links = json.loads(commands.run(["ip", "-j", "link"], netns=name).stdout)
        found[f"{name} mtu"] = str({e["ifname"]: e["mtu"] for e in links})
        found[f"{name} nft"] = commands.run(["nft", "list", "ruleset"], netns=name).stdout
        found[f"{name} qdisc"] = commands.run(["tc", "qdisc"], netns=name).stdout
    for end in lab.links[0].nodes:
        filters = ["tc", "filter", "show", "dev", end, "ingress"]
        found[f"{end} filter"] = commands.run(filters, netns=lab.links[0].netns).stdout
    for bridge in ("br-int", "br-of"):
        known = planting._Bridge(Scene(lab, {}, "ovs-vxlan", "blue"), bridge)
        found[f"{bridge} flows"] = str(sorted(known.ofctl("--no-stats", "dump-flows").splitlines()))
        found[f"{bridge} meters"] = known.ofctl("dump-meters").partition("\n")[2]
    return found


def nothing_is_left(before: dict[str, str], lab: Lab, *machines: Endpoint) -> None:
    """Open vSwitch takes a moment to give its own devices the MTU that a port has again."""
    now = before

    def same() -> bool:
        nonlocal now
        now = rules(lab, *machines)
        return now == before

    eventually(same, lambda: f"{now} to be {before} again")


ALL_LOST = (
    "drop-by-bridge",
    "drop-at-port",
    "drop-by-rule",
    "mtu",
    "mtu-ovs",
    "table-miss",
    "wire",
    "drop-in-guest",
)
BESIDE = {"linuxbridge-vxlan": "violet", "ovs-vxlan": "blue", "ovs-openflow-mac": "_infra"}
"""Tenants on the same path that the cause does not meet."""


@pytest.mark.parametrize("name", ALL_LOST)
def test_a_cause_meets_its_own_path_and_leaves_nothing(name: str, lab: Lab) -> None:
    cause = CAUSES[name]
    scene = Scene(lab, {}, cause.path, cause.tenant)
    eventually(lambda: answered(lab, cause.path, cause.tenant) == 5, "the path to carry packets")
    before = rules(lab, scene.near, scene.far)
    with cause.plant(scene):
        # Open vSwitch takes a moment to see its flows again with new rules.
        eventually(lambda: answered(lab, cause.path, cause.tenant) == 0, "all packets to be lost")
        path = "ovs-vxlan" if cause.path == "linuxbridge-vxlan" else "linuxbridge-vxlan"
        eventually(lambda: answered(lab, path, cause.tenant) == 5, "another path to carry packets")
        if (other := BESIDE[cause.path]) != cause.tenant:
            eventually(lambda: answered(lab, cause.path, other) == 5, "another tenant's packets")
    eventually(lambda: answered(lab, cause.path, cause.tenant) == 5, "the path to carry packets again")
    nothing_is_left(before, lab, scene.near, scene.far)


@pytest.mark.parametrize("name", ["drop-by-bridge", "queue", "meter", "mtu", "table-miss", "wire"])
def test_a_cause_is_undone_where_the_run_ends_in_it(name: str, lab: Lab) -> None:
    before, cause = rules(lab), CAUSES[name]
    scene = Scene(lab, {}, cause.path, cause.tenant)
    with pytest.raises(VigiaError, match="stop"), cause.beneath(scene), cause.plant(scene):
        assert rules(lab) != before
        raise VigiaError("stop")
    nothing_is_left(before, lab)


def burst(s: Scene, probes: int) -> int:
    """Send that many probes in as many times 10 ms, and return how many arrive."""
    with udp(s.near) as prober, udp(s.far, STAMP_PORT, 1.0) as reflector:
        for _ in range(probes):
            prober.sendto(PROBE, reflector.getsockname())
            time.sleep(0.01)
        arrived = 0
        while True:
            try:
                reflector.recv(2048)
            except TimeoutError:
                return arrived
            arrived += 1


def counted(s: Scene, name: str) -> int:
    """What the meter or the queue has dropped, as it still tells."""
    if name == "meter":
        said = planting._Bridge(s, "br-int").ofctl("meter-stats")
        return int(said.partition("bands:")[2].partition("packet_count:")[2].split()[0])
    qdiscs = commands.run(["tc", "-s", "-j", "qdisc", "show", "dev", s.far.device], netns=s.node("far").netns)
    return max(q["drops"] for q in json.loads(qdiscs.stdout))


@pytest.mark.parametrize("name", ["queue", "meter"])
def test_a_cause_that_lets_some_pass_loses_most(name: str, lab: Lab) -> None:
    cause = CAUSES[name]
    scene = Scene(lab, {}, cause.path, cause.tenant)
    eventually(lambda: answered(lab, cause.path, cause.tenant) == 5, "the path to carry packets")
    before = rules(lab, scene.near, scene.far)
    with cause.beneath(scene):
        with cause.plant(scene):
            eventually(lambda: burst(scene, 100) < 50, "half of the probes to be lost")
        # What has counted is still there, and lets everything pass.
        eventually(lambda: burst(scene, 20) == 20, "all probes to arrive again")
        assert counted(scene, name) > 20
    nothing_is_left(before, lab, scene.near, scene.far)


REFLECT = """
import socket, sys
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    data, sender = s.recvfrom(2048)
    s.sendto(data, sender)
"""


@contextmanager
def reflecting(at: Endpoint) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", REFLECT, str(at.address.ip), str(STAMP_PORT)]
    child = commands.spawn(argv, netns=at.netns)
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def overflows(at: Endpoint) -> int:
    """Datagrams for which a receive buffer of a namespace had no room."""
    counted = commands.run(["nstat", "-asz", "UdpRcvbufErrors"], netns=at.netns).stdout
    return int(counted.split("UdpRcvbufErrors")[1].split()[0])


def test_a_reflector_that_is_halted_overflows_and_goes_on(lab: Lab) -> None:
    cause = CAUSES["reflector-socket"]
    with reflecting(Scene(lab, {}, cause.path, cause.tenant).far) as child:
        s = Scene(lab, {lab.nodes[1].name: child.pid}, cause.path, cause.tenant)
        known = overflows(s.far)
        with udp(s.near) as prober, cause.plant(s):
            for _ in range(100):
                prober.sendto(PROBE, (str(s.far.address.ip), STAMP_PORT))
                time.sleep(0.02)
            eventually(lambda: overflows(s.far) >= known + 20, "the reflector's socket to overflow")
        assert (Path("/proc") / str(child.pid) / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        with udp(s.near, seconds=DEADLINE) as prober:
            prober.sendto(PROBE, (str(s.far.address.ip), STAMP_PORT))
            assert prober.recv(2048) == PROBE


def test_a_process_that_ends_while_it_is_halted_is_no_failure(lab: Lab) -> None:
    cause = CAUSES["reflector-socket"]
    with reflecting(Scene(lab, {}, cause.path, cause.tenant).far) as child:
        s = Scene(lab, {lab.nodes[1].name: child.pid}, cause.path, cause.tenant)
        with cause.plant(s):
            child.send_signal(signal.SIGKILL)
            child.wait()
            time.sleep(1.0)
        assert "halting" not in {t.name for t in threading.enumerate()}


def test_strays_fill_the_probers_socket_and_its_room_is_given_back(lab: Lab) -> None:
    cause = CAUSES["prober-socket"]
    s = Scene(lab, {n.name: os.getpid() for n in lab.nodes}, cause.path, cause.tenant)
    with udp(s.near) as prober, udp(s.near, STAMP_PORT) as reflector:
        had = [x.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for x in (prober, reflector)]
        known = overflows(s.near)
        with cause.plant(s):
            eventually(lambda: overflows(s.near) >= known + 50, "the prober's socket to overflow")
            assert prober.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 3000
            assert reflector.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == had[1]
        assert [x.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for x in (prober, reflector)] == had


def test_a_process_without_such_a_socket_is_told(lab: Lab) -> None:
    cause = CAUSES["prober-socket"]
    s = Scene(lab, {n.name: os.getpid() for n in lab.nodes}, cause.path, cause.tenant)
    with pytest.raises(VigiaError, match=f"vigia-probe has no such socket in {s.near.netns}"):
        cause.plant(s).__enter__()


def test_a_port_that_a_bridge_does_not_have_is_told(lab: Lab) -> None:
    bridge = planting._Bridge(Scene(lab, {}, "ovs-vxlan", "blue"), "br-int")
    assert bridge.port(bridge.scene.near.device) > 0
    with pytest.raises(VigiaError, match="br-int has no port blue-120"):
        bridge.port("blue-120")


class Enforcer(BaseHTTPRequestHandler):
    """Answers as it was told to, and remembers what it was asked."""

    status = 200
    asked: list[tuple[str, str, bytes]]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((f"{self.command} {self.path}", self.headers.get("Authorization", ""), body))
        self.send_response(self.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"no")

    do_DELETE = do_PUT

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def enforcer(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Enforcer]]:
    made = type("Made", (Enforcer,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(planting.places, "agent_address", lambda *_: address)
        yield made
        server.shutdown()


def test_a_limit_is_set_below_what_is_sent_and_taken_back(
    lab: Lab, enforcer: type[Enforcer], tmp_path: Path
) -> None:
    cause = CAUSES["policer"]
    elsewhere = replace(lab, layout=replace(lab.layout, root=tmp_path))
    elsewhere.layout.token_file.parent.mkdir(parents=True)
    elsewhere.layout.token_file.write_text("secret\n")
    s = Scene(elsewhere, {}, cause.path, cause.tenant)
    with cause.plant(s):
        ((line, token, body),) = enforcer.asked
        assert (line, token) == (f"PUT /v1/ports/{s.near.port}/limit", "Bearer secret")
        wanted = json.loads(body)
        sent = planting._PER / planting._EVERY * planting._PAYLOAD
        assert wanted["tenant"] == "blue" and 0 < wanted["rate_bytes_per_second"] < sent / 2
        assert wanted["ttl_seconds"] >= 60, "as long as the longest that --seconds allows"
    assert enforcer.asked[1][0] == f"DELETE /v1/ports/{s.near.port}/limit?id={wanted['id']}"
    assert "planted traffic" not in {t.name for t in threading.enumerate()}
    enforcer.status = 403
    with pytest.raises(VigiaError, match="the limit cannot be set: 403 no"):
        cause.plant(s).__enter__()
