"""Processes that are killed or stopped, one after the other, and switches that are started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from faults.registry import Course, Expected, Scene, fault
from faults.site import SETTLED, Site
from vigia.host import commands, processes
from vigia.lab import buffers, openflow, openvswitch, paths
from vigia.lab.model import Node
from vigia.lab.underlay import UNDERLAY_MTU, add_address
from vigia.stack import control
from vigia_testing import eventually

SERVICES = (
    "vigia-probe@node2",
    "vigia-exporter@node1",
    "vigia-enforcer@node1",
    "isolation-agent",
    "vigia-compare",
    "prometheus",
    "alertmanager",
    "node_exporter",
)
"""One of each program; the nodes are alike."""

STOPPED = 600.0
"""Seconds within which a process that answers no more is started again: a minute, and a very busy machine."""

_GATE = ("isolation-agent", "vigia-enforcer@node1")


def _expected(service: str) -> Expected:
    gone = service.startswith("vigia-probe")  # it reflects as well: whoever asks it gets no answer
    return Expected(restarts=service, loses=gone)


def _killed(service: str) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        old = scene.site.pid(service)
        os.kill(old, signal.SIGKILL)
        scene.site.restarted(service, old)
        yield

    return course


def _stopped(service: str) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        old = scene.site.pid(service)
        os.kill(old, signal.SIGSTOP)
        try:
            eventually(
                lambda: scene.site.pids()[service] not in (None, old),
                f"{service}, which is stopped, to be started again",
                STOPPED,
            )
        finally:
            with suppress(ProcessLookupError):
                os.kill(old, signal.SIGCONT)
        scene.site.works(service)
        yield

    return course


def _paused(service: str) -> Course:
    """Stopped for as long as a machine may be away, and then going on."""

    def course(scene: Scene) -> Iterator[None]:
        pid = scene.site.pid(service)
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: bool(scene.site.problem(service)), f"{service} not to answer")
        finally:
            os.kill(pid, signal.SIGCONT)
        scene.site.works(service)
        yield

    return course


for _service in SERVICES:
    _program, _, _node = _service.partition("@")
    fault(
        f"kill {_program}",
        "processes",
        f"SIGKILL of {_program}",
        "It is started again at once and goes on; what it had put into the kernel and acknowledged is there.",
        _expected(_service),
        short=_service in _GATE,
    )(_killed(_service))
    fault(
        f"stop {_program}",
        "processes",
        f"SIGSTOP of {_program}, for ever",
        "It is found within about a minute, killed and started again.",
        _expected(_service),
    )(_stopped(_service))

for _service in ("vigia-probe@node1", "vigia-enforcer@node1", "isolation-agent"):
    _program, _, _node = _service.partition("@")
    fault(
        f"pause {_program}",
        "processes",
        f"SIGSTOP of {_program} for some seconds, then SIGCONT",
        "It goes on where it was and is not started again.",
        Expected(loses=_service.startswith("vigia-probe")),
    )(_paused(_service))


@fault(
    "stop the supervisor",
    "processes",
    "SIGSTOP of the supervisor while a service is killed, then SIGCONT",
    "The others go on meanwhile; the service is started again as soon as the supervisor goes on.",
    Expected(restarts="vigia-compare"),
)
def stop_supervisor(scene: Scene) -> Iterator[None]:
    site = scene.site
    supervisor, old = site.status()["supervisor"], site.pid("vigia-compare")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(old, signal.SIGKILL)
        eventually(lambda: bool(site.problem("vigia-compare")), "the service to be gone")
        for service in set(site.services) - {"vigia-compare"}:
            site.works(service)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    site.restarted("vigia-compare", old)
    yield


@fault(
    "kill the supervisor",
    "processes",
    "SIGKILL of the supervisor",
    "Every service ends with it, so that nothing runs unwatched; guarantees stay in the kernel. Started again by "
    "the system's service manager (here: by the test), it goes on with the same data.",
    Expected(restarts=".*", loses=True),
)
def kill_supervisor(scene: Scene) -> Iterator[None]:
    site = scene.site
    os.kill(site.status()["supervisor"], signal.SIGKILL)
    eventually(lambda: control.members(site.where) == [], "all services to end")
    control.start(site.where)
    for _ in control.wait_ready(site.where, list(site.services.values()), SETTLED):
        pass
    yield


def _daemon(site: Site, node: Node, name: str) -> int:
    return next(d.pid for d in openvswitch.daemons(site.lab.layout, node.name) if d.name == name)


def _start_again(site: Site, node: Node, name: str, number: int) -> None:
    """End a daemon of a node, and start it as the system's service manager does: with the same command."""
    pid = _daemon(site, node, name)
    argv = processes.arguments(pid)
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    env = {k: v for k, _, v in (w.partition("=") for w in words if w) if k.startswith("OVS_")}
    os.kill(pid, number)
    eventually(lambda: not processes.alive(pid), f"{name} to end")
    commands.start_daemon(argv, netns=node.netns, env=env)
    eventually(lambda: _daemon(site, node, name) != pid, f"{name} to run")


def _restore(site: Site, node: Node) -> None:
    """Put back what ovs-ctl restart keeps for a switch in user space: addresses of its devices, and flows.

    A daemon that ends leaves its devices, which are persistent; one that starts may make them anew.
    """
    again = add_address(node.netns, "br-phy", node.tunnel).replace("addr add ", "addr replace ", 1)
    commands.ip_batch([again, f"link set br-phy mtu {UNDERLAY_MTU} up"], netns=node.netns)
    openflow.install(openflow.switch(site.lab.layout, node), openflow.forwarding(node))
    openflow.tell_neighbours(node)
    paths.first_packets(paths.tunnels(site.lab))
    buffers.raise_all(openvswitch.vswitchd(site.lab.layout, node.name))


def _switch(name: str, number: int) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        node = scene.site.lab.node("node2")
        _start_again(scene.site, node, name, number)
        if name == "ovs-vswitchd":
            _restore(scene.site, node)
        yield

    return course


for _number in (signal.SIGTERM, signal.SIGKILL):
    fault(
        f"ovsdb-server, {_number.name}",
        "switches",
        f"{_number.name} of ovsdb-server, which is started again",
        "Ports keep their identities and counters; the connection is made anew.",
        Expected(loses=True),
        short=_number == signal.SIGKILL,
    )(_switch("ovsdb-server", _number))
    fault(
        f"ovs-vswitchd, {_number.name}",
        "switches",
        f"{_number.name} of ovs-vswitchd, which is started again with its flows, as ovs-ctl does",
        "Paths through it lose packets while it is away, and no others; ports are counted as before.",
        Expected(loses=True, tells="VigiaPathLoss|Vigia.*BudgetBurn|VigiaUnreachable"),
    )(_switch("ovs-vswitchd", _number))


def _asked_to_end(service: str) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        old = scene.site.pid(service)
        os.kill(old, signal.SIGTERM)
        scene.site.restarted(service, old)
        yield

    return course


for _service in ("prometheus", "alertmanager"):
    fault(
        f"restart {_service}",
        "processes",
        f"SIGTERM of {_service}, which is started again",
        "Limits and guarantees do not depend on it; counters count on in the agents, and nothing is missing after it is back.",
        Expected(restarts=_service),
    )(_asked_to_end(_service))
