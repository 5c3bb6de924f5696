"""What a cloud does all day, done to the lab: ports and targets come and go, programs reload, tenants flood.

Everything is bounded: one further port and one further target at a time, floods of fixed rate and time.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from vigia.errors import VigiaError
from vigia.flood import order
from vigia.flood import run as floods
from vigia.host import commands, netns
from vigia.lab import files, ipsec, openvswitch
from vigia.lab.files import ports, probe
from vigia.lab.model import Datapath, Endpoint, Lab, Node
from vigia.soak.record import ChurnEvent
from vigia.stack import control, places, plan
from vigia.stack.agent import IsolationAction, IsolationAgent
from vigia.stack.places import Places
from vigia.stack.site import AGENT_PORTS

__all__ = ["FLOOD_RATE", "FLOOD_SECONDS", "PORT_SECONDS", "RELOAD_SECONDS", "TARGET_SECONDS", "Churn"]

PORT_SECONDS = 60.0
"""From one port that is plugged or unplugged to the next."""
TARGET_SECONDS = 90.0
RELOAD_SECONDS = 300.0
FLOOD_RATE, FLOOD_SECONDS = "400Mbit", 12.0
FIRST_FLOOD = 120.0
FLOODER = "red"

_SEEN = 60.0
"""Seconds until the exporter knows a new port; generous, for slow machines."""
_RELEASED = 120.0
_HUNG_UP = ("prometheus", "alertmanager", "isolation-agent", "vigia-compare")
"""Services that reload on SIGHUP; the agents answer POST /-/reload, and say what was wrong."""


@dataclass
class _Due:
    """Something that is done again and again."""

    what: str
    next: float
    every: float
    do: Callable[[], str]
    """Does it, and says what was done."""


class Churn:
    """Does one thing after another until it is told to stop. What fails is an event, and the next is done."""

    def __init__(
        self, lab: Lab, datapath: Datapath, where: Places, tell: Callable[[ChurnEvent], None], every: float
    ) -> None:
        """every is the time from one flood to the next, in seconds."""
        self._lab, self._datapath, self._where, self._tell = lab, datapath, where, tell
        self._every = every
        self._plugged: dict[str, str] = {}  # device of the extra port by node
        self._ports = 0
        self._extra: Node | None = None  # which node has the extra target
        self._targets = 0
        self._floods = 0
        self._client = httpx.Client(timeout=30.0, trust_env=False)

    def run(self, stop: threading.Event) -> None:
        """Do what is due until stop is set; what is being done is ended first."""
        now = time.monotonic()
        jobs = [
            _Due("port", now + 10, PORT_SECONDS, self.port),
            _Due("target", now + 30, TARGET_SECONDS, self.target),
            _Due("reload", now + 75, RELOAD_SECONDS, self.reload),
            _Due("flood", now + FIRST_FLOOD, self._every, lambda: self.flood(stop)),
        ]
        with self._client:
            while True:
                job = min(jobs, key=lambda j: j.next)
                if stop.wait(max(0.0, job.next - time.monotonic())):
                    return
                self._attempt(job)
                job.next = max(job.next + job.every, time.monotonic())

    def _attempt(self, job: _Due) -> None:
        at, begin = time.time(), time.monotonic()
        try:
            ok, detail = True, job.do()
        except (VigiaError, httpx.HTTPError, OSError, ValueError) as e:
            ok, detail = False, str(e)
        self._tell(ChurnEvent(at, job.what, ok, detail, round(time.monotonic() - begin, 3)))

    def port(self) -> str:
        """Plug a new port into the next node, or unplug the one that it has. Raises VigiaError."""
        nodes = self._lab.nodes
        node = nodes[(self._ports // 2) % len(nodes)]
        self._ports += 1
        if node.name in self._plugged:
            device = self._plugged[node.name]
            self._unplug(node, device)
            del self._plugged[node.name]
            return f"unplugged {device} from {node.name}"
        device = f"churn-{self._ports}"
        self._plugged[node.name] = device
        self._plug(node, device)
        return f"plugged {device} into {node.name}"

    def _machine(self, node: Node, device: str) -> str:
        return f"{self._lab.layout.prefix}{node.name}-{device}"

    def _like(self, node: Node) -> Endpoint:
        return next(e for e in node.endpoints if e.tenant == FLOODER)

    def _plug(self, node: Node, device: str) -> None:
        machine, like = self._machine(node, device), self._like(node)
        commands.ip_batch(
            [
                f"netns add {machine}",
                f"link add {device} netns {node.netns} type veth peer name eth0 netns {machine}",
            ]
        )
        commands.ip_batch(["link set eth0 up"], netns=machine)
        commands.ip_batch([f"link set {device} up"], netns=node.netns)
        if like.switch == "openvswitch":
            identity = {
                "iface-id": f"{node.name}-{device}",
                "vigia-tenant": like.tenant,
                "vigia-network": like.path,
                "vigia-workload": machine,
            }
            words = [f"external_ids:{key}={json.dumps(value)}" for key, value in identity.items()]
            openvswitch.vsctl(
                self._lab.layout,
                node.name,
                *("add-port", "br-int", device, f"tag={like.vlan}", "--", "set", "Interface", device, *words),
            )
        else:
            commands.ip_batch([f"link set {device} master br{like.key}"], netns=node.netns)
            self._tell_ports(node, device)
        self._await_port(node, device)

    def _unplug(self, node: Node, device: str) -> None:
        if self._like(node).switch == "openvswitch":
            openvswitch.vsctl(self._lab.layout, node.name, "--if-exists", "del-port", "br-int", device)
        else:
            self._tell_ports(node, None)
        machine = self._machine(node, device)
        if device in netns.inside(node.netns, _devices):
            commands.ip_batch([f"link del {device}"], netns=node.netns)
        if machine in netns.names(machine):
            commands.ip_batch([f"netns del {machine}"])

    def _tell_ports(self, node: Node, device: str | None) -> None:
        """Write ports.yaml, with a further port if one is given, and have the agents read it."""
        content: dict[str, Any] = {**ports.content(node)}
        if device is not None:
            like = self._like(node)
            further = {
                "device": device,
                "port": f"{node.name}-{device}",
                "tenant": like.tenant,
                "network": like.path,
                "workload": self._machine(node, device),
            }
            content["ports"] = [*content["ports"], further]
        self._write(node, ports.FILE, content)
        self._reload(node, "vigia-exporter")
        self._reload(node, "vigia-enforcer")

    def _await_port(self, node: Node, device: str) -> None:
        """Wait until the exporter counts what a port carries. Raises VigiaError."""
        address = places.agent_address(self._lab, node.name, "vigia-exporter")
        wanted = f'port="{node.name}-{device}"'
        deadline = time.monotonic() + _SEEN
        while wanted not in self._client.get(f"http://{address}/metrics").text:
            if time.monotonic() > deadline:
                raise VigiaError(f"the exporter of {node.name} does not show {wanted} within {_SEEN:g} s")
            time.sleep(0.5)

    def target(self) -> str:
        """Give the next node's probe one target more, or take it away again. Raises VigiaError."""
        if self._extra is not None:
            node, self._extra = self._extra, None
            self._tell_targets(node, None)
            return f"removed the further target of {node.name}"
        node = self._lab.nodes[self._targets % len(self._lab.nodes)]
        self._targets += 1
        self._extra = node
        like = self._like(node)
        self._tell_targets(node, like)
        return f"{node.name} pings {like.tenant} on {like.path} as well"

    def _tell_targets(self, node: Node, like: Endpoint | None) -> None:
        given = probe.content(self._lab, node, self._datapath, ipsec.datapath(self._lab))
        content: dict[str, Any] = {**given}
        if like is not None:
            further = {
                "dst": node.peer,
                "path": like.path,
                "tenant": like.tenant,
                "probe": "icmp-56",
                "netns": like.netns,
                "source": str(like.address.ip),
                "address": str(like.peer),
            }
            content["targets"] = [*content["targets"], further]
        self._write(node, "probe.yaml", content)
        self._reload(node, "vigia-probe")

    def _write(self, node: Node, name: str, content: dict[str, Any]) -> None:
        """Replace a node's file as a whole: an agent never reads half of one."""
        path = self._lab.layout.node(node.name) / name
        new = path.with_suffix(".new")
        new.write_text(files.dump(content))
        new.replace(path)

    def reload(self) -> str:
        """Have every program read its configuration again. Raises VigiaError if one refuses it."""
        for node in self._lab.nodes:
            for part in AGENT_PORTS:
                self._reload(node, part)
        status = json.loads(self._where.status.read_text())["services"]
        ours = control.members(self._where)
        for name in _HUNG_UP:
            if (pid := status[name]["pid"]) in ours:
                os.kill(pid, signal.SIGHUP)
        for service in plan.read(self._where.plan):
            answer = self._client.get(service.ready_url, auth=service.auth)
            if answer.status_code != httpx.codes.OK:
                raise VigiaError(f"{service.name} answers {answer.status_code} after a reload")
        return f"reloaded {len(self._lab.nodes) * len(AGENT_PORTS) + len(_HUNG_UP)} programs"

    def _reload(self, node: Node, part: str) -> None:
        address = places.agent_address(self._lab, node.name, part)
        token = self._where.api_token.read_text().strip()
        known = {"Authorization": f"Bearer {token}"}
        answer = self._client.post(f"http://{address}/-/reload", headers=known)
        if answer.status_code != httpx.codes.OK:
            raise VigiaError(f"{part} of {node.name} does not reload: {answer.text.strip()[:300]}")

    def flood(self, stop: threading.Event) -> str:
        """Have a tenant flood, and see that it is limited and released again. Raises VigiaError."""
        senders = [e for e in self._lab.endpoints if e.tenant == FLOODER and e.machine == 1]
        sender = senders[self._floods % len(senders)]
        self._floods += 1
        wanted = order.make(
            self._lab,
            tenant=FLOODER,
            path=sender.path,
            node=sender.node,
            to=None,
            rate=FLOOD_RATE,
            seconds=FLOOD_SECONDS,
            size=1400,
        )
        with IsolationAgent(places.stack_address(self._lab, 9874), self._where.api_token) as agent:
            known = agent.newest(sender.node, sender.port)
            sent = floods.run(wanted)
            deadline = time.monotonic() + _RELEASED
            while True:
                action = agent.newest(sender.node, sender.port)
                if _over(action, known):
                    rate = f"{sent.rate / 1e6:.0f} Mbit/s"
                    return f"{sender.port} sent {rate}, was limited and released"
                if time.monotonic() > deadline:
                    state = action.state if action and _is_new(action, known) else "no action"
                    within = f"within {_RELEASED:g} s of its flood"
                    raise VigiaError(f"{sender.port} was not limited and released {within}: {state}")
                if stop.wait(1.0):
                    return f"{sender.port} flooded; the soak ended before it was released"


def _is_new(action: IsolationAction, known: IsolationAction | None) -> bool:
    return known is None or action.number > known.number


def _over(action: IsolationAction | None, known: IsolationAction | None) -> bool:
    """Whether an action that was not known was enforced, and is over."""
    if action is None or not _is_new(action, known):
        return False
    return {"limit_verified", "released"} <= action.instants.keys()


def _devices() -> set[str]:
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}
