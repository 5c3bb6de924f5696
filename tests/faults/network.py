"""Ports, wires and control messages that are gone, lost or lies."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from faults.registry import Expected, Scene, fault
from faults.site import SETTLED, Site, run
from vigia.flood import order
from vigia.flood import run as floods
from vigia.flood.bounds import MAX_PORTS
from vigia.host import commands, netns
from vigia.lab import naming
from vigia.lab.files.enforcer import NOTICES
from vigia.lab.model import Endpoint
from vigia.lab.underlay import make_endpoint
from vigia_testing import eventually

LOSSES = "VigiaPathLoss|Vigia.*BudgetBurn|VigiaUnreachable|VigiaTenantInterference"
"""What is told of packets that are really lost."""

PATH, TENANT = "linuxbridge-vxlan", "_infra"


def _endpoint(site: Site, tenant: str = TENANT, node: str = "node2") -> Endpoint:
    return next(
        e for e in site.lab.node(node).endpoints if (e.tenant, e.path, e.machine) == (tenant, PATH, 1)
    )


def _received(site: Site, node: str) -> float:
    return site.value(
        f"vigia-probe@{node}", "vigia_probe_received_total", path=PATH, tenant=TENANT, probe="stamp-64"
    )


def _answers_again(site: Site, node: str) -> None:
    known = _received(site, node)
    eventually(lambda: _received(site, node) > known + 20, f"probes of {node} to be answered again", SETTLED)


def _pair(e: Endpoint, inside: str) -> None:
    """Make a machine's port anew, as the lab makes it."""
    commands.ip_batch(
        [
            f"link add name eth0 netns {e.netns} mtu 1500 address {e.mac} type veth peer name {e.device} "
            f"netns {inside} mtu 1500 address {naming.mac(inside, e.device)}"
        ]
    )
    commands.ip_batch([f"link set {e.device} up", f"link set {e.device} master br{e.key}"], netns=inside)
    make_endpoint(e, checksum_offload=True)


@fault(
    "port removed under a probe",
    "network",
    "The port of a machine that is probed, and probes, is removed, and made again with another number",
    "Its series end and begin again under the same names; programs and pins of the port that is gone are gone; the same "
    "machine is probed again. The loss is told as the path's.",
    Expected(loses=True, tells=LOSSES),
)
def port_removed(scene: Scene) -> Iterator[None]:
    site = scene.site
    e, inside = _endpoint(site), site.lab.node("node2").netns
    known = site.value("vigia-probe@node1", "vigia_probe_lost_total", path=PATH, tenant=TENANT)
    commands.ip_batch([f"link del {e.device}"], netns=inside)
    try:
        eventually(
            lambda: site.value("vigia-probe@node1", "vigia_probe_lost_total", path=PATH, tenant=TENANT)
            > known + 20,
            "probes to be lost",
        )
    finally:
        _pair(e, inside)
    _answers_again(site, "node1")
    _answers_again(site, "node2")
    yield


@fault(
    "namespace removed under a probe",
    "network",
    "The namespace of a machine that is probed, and probes, is removed, and made again",
    "The probe goes on with its other targets, and enters the new namespace of that name by itself.",
    Expected(loses=True, tells=LOSSES),
)
def namespace_removed(scene: Scene) -> Iterator[None]:
    site = scene.site
    e, inside = _endpoint(site), site.lab.node("node2").netns
    commands.ip_batch([f"netns del {e.netns}"])
    commands.ip_batch([f"link del {e.device}"], netns=inside, force=True)
    try:
        eventually(lambda: _lost_now(site), "probes to be lost")
    finally:
        commands.ip_batch([f"netns add {e.netns}"])
        _pair(e, inside)
    _answers_again(site, "node1")
    _answers_again(site, "node2")
    yield


def _lost_now(site: Site) -> bool:
    known = site.value("vigia-probe@node1", "vigia_probe_lost_total", path=PATH, tenant=TENANT)
    time.sleep(1.0)
    return site.value("vigia-probe@node1", "vigia_probe_lost_total", path=PATH, tenant=TENANT) > known + 5


@fault(
    "underlay cut",
    "network",
    "The wire between the nodes is cut for some seconds, and mended",
    "Every path between the nodes loses, none within a node does; guarantees and limits stay; all paths are "
    "measured again at once.",
    Expected(loses=True, tells=LOSSES),
)
def underlay_cut(scene: Scene) -> Iterator[None]:
    site = scene.site
    (wire,) = site.lab.links
    commands.ip_batch(["link set node2 down"], netns=wire.netns)
    try:
        eventually(lambda: _lost_now(site), "probes to be lost")
        local = site.page("vigia-probe@node1")
    finally:
        commands.ip_batch(["link set node2 up"], netns=wire.netns)
    _answers_again(site, "node1")
    within = {
        k: v - local.get(k, 0.0)
        for k, v in site.page("vigia-probe@node1").items()
        if k[0] == "vigia_probe_lost_total" and dict(k[1])["path"].endswith("-local")
    }
    assert sum(within.values()) <= 5, f"paths within a node lost probes: {within}"
    yield


_FLOODS = 3
"""Tries, on a machine that may be too busy to send as much as it should."""


def _flood(scene: Scene, seconds: float = 10.0, ports: int = MAX_PORTS) -> None:
    """Have red flood from node1; it is limited by the alert, and released again."""
    site = scene.site
    source = _endpoint(site, "red", "node1")
    known = {a["id"] for a in site.api("/v1/actions", limit="100")["actions"]}
    begin = time.time()
    floods.run(
        order.make(
            site.lab,
            tenant="red",
            path=PATH,
            node="node1",
            to=None,
            rate="400Mbit",
            seconds=seconds,
            size=1400,
            ports=ports,
        )
    )
    scene.load.floods.append((begin, time.time()))

    def actions() -> list[dict[str, object]]:
        return [a for a in site.api("/v1/actions", limit="100")["actions"] if a["id"] not in known]

    eventually(
        lambda: {a["port"] for a in actions()} == {source.port},
        lambda: f"its port to be limited: {actions()}",
    )
    eventually(
        lambda: all(a["ended_at"] for a in actions()), lambda: f"the limit to end: {actions()}", SETTLED
    )


FLOODED = Expected(
    loses=True, limits=True, tells=f"{LOSSES}|VigiaUdpFlood|VigiaPortDrops|VigiaGuaranteeViolated"
)


@fault(
    "control messages lost",
    "network",
    "Half of the notices between enforcers are lost, both ways, while a tenant floods one port behind a link that is slower than its own",
    "They are repeated: the flood is limited at its port, and released; nobody else is limited.",
    FLOODED,
)
def notices_lost(scene: Scene) -> Iterator[None]:
    table = "vigia_faults_loss"
    inside = [n.netns for n in scene.site.lab.nodes]
    enforcer = scene.site.lab.layout.node("node2") / "enforcer.yaml"
    known = enforcer.read_text()
    for space in inside:
        run("nft", f"add table inet {table}", netns=space)
        run("nft", f"add chain inet {table} input {{ type filter hook input priority 0 ; }}", netns=space)
        run(
            "nft",
            f"add rule inet {table} input udp dport {NOTICES} numgen random mod 2 == 0 counter drop",
            netns=space,
        )

    def dropped() -> bool:
        tables = [run("nft", "list", "table", "inet", table, netns=space) for space in inside]
        return any(f"dport {NOTICES}" in text and "packets 0 " not in text for text in tables)

    try:
        # What node1 can send, node2 cannot receive: otherwise node1's own scheduler is all that is needed.
        _put(scene.site, enforcer, known.replace("rate: 200Mbit", "rate: 150Mbit"))
        for _ in range(_FLOODS):
            _flood(scene, ports=1)  # its alert and its limit do not need many
            if dropped():
                break
        assert dropped(), "no notice was sent at all"
    finally:
        for space in inside:
            run("nft", f"delete table inet {table}", netns=space)
        _put(scene.site, enforcer, known)
    yield


def _put(site: Site, enforcer: Path, content: str) -> None:
    """Have the enforcer of node2 work by another configuration."""
    enforcer.write_text(content)
    site.reload("vigia-enforcer@node2").raise_for_status()


@fault(
    "peer dead",
    "network",
    "The enforcer of the victim's node is stopped while a tenant floods",
    "The source limits on its own evidence and the alert's; guarantees of the node stay in its kernel.",
    Expected(loses=True, limits=True, tells=FLOODED.tells, restarts="vigia-enforcer@node2"),
)
def peer_dead(scene: Scene) -> Iterator[None]:
    site = scene.site
    old = site.pid("vigia-enforcer@node2")
    os.kill(old, signal.SIGSTOP)
    try:
        _flood(scene)
    finally:
        if site.pids()["vigia-enforcer@node2"] == old:
            os.kill(old, signal.SIGCONT)
    site.works("vigia-enforcer@node2")
    yield


@fault(
    "peer lying",
    "network",
    "Forged notices are sent to an enforcer from the address of its peer: noise, old numbers, no key",
    "Each is refused and counted, nobody is limited, and the loop goes on.",
    short=True,
)
def peer_lying(scene: Scene) -> Iterator[None]:
    site, sent = scene.site, 400
    node, peer = site.lab.node("node1"), site.lab.node("node2")
    known = _refused(site)

    def lie() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind((str(peer.underlay.ip), 0))
            for size in range(sent):
                s.sendto(os.urandom(1 + size % 200), (str(node.underlay.ip), NOTICES))
                time.sleep(0.001)

    netns.inside(peer.netns, lie)
    eventually(lambda: _refused(site) > known, lambda: f"lies to be counted: {_refused(site)}")
    yield


def _refused(site: Site) -> float:
    outcomes = ("malformed", "hmac", "replay", "stale", "misdirected", "authz", "unknown_source")
    return sum(
        site.value("vigia-enforcer@node1", "vigia_enforcer_notices_total", outcome=o) for o in outcomes
    )
