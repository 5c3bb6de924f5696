"""The bed of the isolation experiments: nodes with guests, access links, and an enforcer on each.

Namespaces stand for nodes, guests and the fabric. A node's access link is held to
its rate, both ways, outside the node, as a wire's would be. Each mode is a
configuration of the real vigia-enforcer; `none` runs none.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vigia.errors import VigiaError
from vigia.host import commands, netns, rcu
from vigia.isolation import claims, shuffle, traffic
from vigia.isolation.model import FlowOutcome, IsolationPlan, Mode, ShuffleJob, ShuffleOutcome, TrafficFlow
from vigia.isolation.traffic import BIN, TrafficOrder
from vigia.lab.files import enforcer

__all__ = ["IsolationTestbed"]


_READY = 60.0
_LEAD = 1.5  # seconds for traffic processes to start
_JOB_PORT = 6900


def _without_ipv6() -> None:
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")


class IsolationTestbed:
    """A bed that is there while it is entered."""

    def __init__(self, plan: IsolationPlan, enforcer: Path, log_level: str = "warn") -> None:
        """enforcer is the program bin/vigia-enforcer."""
        self.plan = plan
        self.started = 0.0
        """moment of CLOCK_MONOTONIC at which the flows of the last run began"""
        self._log_level = log_level
        self._enforcer = enforcer
        self._name = ""
        self._stack = ExitStack()
        self._children: list[subprocess.Popen[bytes]] = []
        self._tenants = [*plan.guarantees, *plan.operators]
        self._folder = Path()
        self._token = secrets.token_hex(16)

    # Names and addresses: hosts count from 1.

    @property
    def fabric(self) -> str:
        """Namespace of the wires and switches between the nodes."""
        return f"{self._name}-f"

    def node(self, host: int) -> str:
        """Namespace of a node."""
        return f"{self._name}-h{host}"

    def guest(self, host: int, tenant: str) -> str:
        """Namespace of a tenant's guest on a node."""
        return f"{self._name}-{host}{self._tenants.index(tenant)}"

    def address(self, host: int, tenant: str) -> str:
        """Address of a guest."""
        return f"10.{60 + self._tenants.index(tenant)}.0.{host}"

    def mac(self, host: int, tenant: str) -> str:
        """MAC address of a guest."""
        return f"02:00:00:{60 + self._tenants.index(tenant):02x}:00:{host:02x}"

    def _url(self, host: int) -> str:
        return f"http://10.59.0.{host}:9873"

    def _hosts(self) -> range:
        return range(1, self.plan.hosts + 1)

    def __enter__(self) -> Self:
        if self.plan.mode is not Mode.NONE and not self._enforcer.exists():
            raise VigiaError(f"{self._enforcer} is missing; build it: make build")
        try:
            claimed = self._stack.enter_context(claims.claim("i"))
            self._name, self._folder = claimed.name, claimed.folder
            self._stack.callback(self._delete_namespaces)
            with rcu.expedited():
                self._build()
            if self.plan.mode is not Mode.NONE:
                self._start_enforcers(claimed)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _namespaces(self) -> list[str]:
        guests = [self.guest(h, t) for h, t in self._guests()]
        return [self.fabric, *(self.node(h) for h in self._hosts()), *guests]

    def _delete_namespaces(self) -> None:
        commands.ip_batch([f"netns del {n}" for n in self._namespaces()], force=True)

    def _build(self) -> None:
        commands.ip_batch([f"netns add {n}" for n in self._namespaces()])
        commands.ip_batch(
            ["link add sw type bridge", "link add mg type bridge", "link set sw up", "link set mg up"],
            netns=self.fabric,
        )
        for name in self._namespaces():
            netns.inside(name, _without_ipv6)
        self._wire()
        with ThreadPoolExecutor(os.cpu_count()) as workers:  # most of it is starting processes
            list(workers.map(self._build_node, self._hosts()))
            list(workers.map(lambda where: self._build_guest(*where), self._guests()))
        self._limit_links()

    def _guests(self) -> list[tuple[int, str]]:
        return [(h, t) for h in self._hosts() for t in self._tenants]

    def _wire(self) -> None:
        """Make all links, and the fabric between the nodes."""
        links, inside = [], []
        for host in self._hosts():
            node, fabric = self.node(host), self.fabric
            links += [
                f"link add up0 netns {node} type veth peer name p{host} netns {fabric}",
                f"link add mg0 netns {node} type veth peer name m{host} netns {fabric}",
                f"link add wa{host} netns {fabric} type veth peer name wb{host} netns {fabric}",
            ]
            inside += [
                f"link add w{host} type bridge",
                *(f"link set {d} master w{host}" for d in (f"p{host}", f"wa{host}")),
                f"link set wb{host} master sw",
                f"link set m{host} master mg",
                *(f"link set {d}{host} up" for d in ("p", "m", "wa", "wb", "w")),
            ]
        commands.ip_batch(links)
        commands.ip_batch(inside, netns=self.fabric)
        commands.bridge_batch(
            [f"fdb replace {self.mac(h, t)} dev wb{h} master static" for h, t in self._guests()],
            netns=self.fabric,
        )

    def _build_node(self, host: int) -> None:
        """Make a node's bridge, which is told where every guest is, as a cloud's controller does.

        Otherwise a flood to a guest that never answers would be sent to everybody.
        """
        inside = ["link set lo up", "link add br0 type bridge", "link set br0 up"]
        inside += ["link set up0 master br0", "link set up0 up", "link set mg0 up"]
        inside += [f"addr add 10.59.0.{host}/24 dev mg0"]
        for tenant in self._tenants:
            inside.append(f"link add t-{tenant} type veth peer name eth0 netns {self.guest(host, tenant)}")
            inside += [f"link set t-{tenant} master br0", f"link set t-{tenant} up"]
        commands.ip_batch(inside, netns=self.node(host))
        places = [(f"t-{t}" if h == host else "up0", self.mac(h, t)) for h, t in self._guests()]
        commands.bridge_batch(
            [f"fdb replace {mac} dev {device} master static" for device, mac in places],
            netns=self.node(host),
        )

    def _build_guest(self, host: int, tenant: str) -> None:
        """Give a guest its address, and those of its tenant's other guests."""
        lines = [f"link set eth0 address {self.mac(host, tenant)}", "link set lo up", "link set eth0 up"]
        lines.append(f"addr add {self.address(host, tenant)}/24 dev eth0")
        others = [(self.address(h, tenant), self.mac(h, tenant)) for h in self._hosts() if h != host]
        lines += [f"neigh add {ip} lladdr {mac} dev eth0 nud permanent" for ip, mac in others]
        commands.ip_batch(lines, netns=self.guest(host, tenant))
        # Frames as on a wire, if not told otherwise.
        sent = () if self.plan.offload else ("tso", "gso")
        offloads = (*sent, "gro", "tx-udp-segmentation")
        off = [word for name in offloads for word in (name, "off")]
        commands.run(["ethtool", "-K", "eth0", *off], netns=self.guest(host, tenant))

    def _limit_links(self) -> None:
        """Hold every access link to its rate, both ways."""
        rate, burst = self.plan.link, max(20_000, self.plan.link // 8 // 100)  # 10 ms: the timer may be late
        limit = self.plan.queue * 1514
        lines = [
            f"qdisc add dev {device}{host} root tbf rate {rate}bit burst {burst} limit {limit}"
            for host in self._hosts()
            for device in ("p", "wa")
        ]
        commands.tc_batch(lines, netns=self.fabric)

    def _start_enforcers(self, claimed: claims.Claim) -> None:
        claimed.mount_bpffs()
        self._write("token", self._token)
        for host, keys in zip(
            self._hosts(), enforcer.keys([f"h{h}" for h in self._hosts()]).values(), strict=True
        ):
            self._write(f"keys{host}", keys)
        self._write("site.yaml", json.dumps(self._site()))
        self._stack.callback(self._stop_enforcers)
        for host in self._hosts():
            self._write(f"ports{host}.yaml", json.dumps(self._ports(host)))
            self._write(f"enforcer{host}.yaml", json.dumps(self._config(host)))
            self._start_enforcer(host)
        deadline = time.monotonic() + _READY
        for host in self._hosts():
            self._await(host, deadline)

    def _start_enforcer(self, host: int) -> None:
        # It is in the node's namespace from its first instruction: it listens there.
        argv = [str(self._enforcer), "--config", str(self._folder / f"enforcer{host}.yaml")]
        argv += ["--web.listen-address", f"10.59.0.{host}:9873", "--log.level", self._log_level]
        child = commands.start(argv, log=self._folder / f"log{host}", netns=self.node(host))
        self._children.append(child)

    def _await(self, host: int, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self._children[host - 1].poll() is not None:
                break
            with suppress(VigiaError):
                self._fetch(host, "/-/ready")
                return
            time.sleep(0.1)
        said = (self._folder / f"log{host}").read_text(errors="replace")[-2000:]
        raise VigiaError(f"the enforcer of host {host} did not become ready: {said}")

    def _stop_enforcers(self) -> None:
        for child in self._children:
            child.send_signal(signal.SIGTERM)
        for child in self._children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _write(self, name: str, content: str) -> None:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(content)

    def _site(self) -> Mapping[str, object]:
        return {
            "version": 1,
            "nodes": [{"node": f"h{h}", "address": f"10.59.0.{h}:9876"} for h in self._hosts()],
            "ports": [
                {
                    "node": f"h{h}",
                    "port": f"{t}-{h}",
                    "tenant": t,
                    "mac": self.mac(h, t),
                    "ip": self.address(h, t),
                }
                for h in self._hosts()
                for t in self._tenants
            ],
        }

    def _ports(self, host: int) -> Mapping[str, object]:
        ports = [{"device": f"t-{t}", "port": f"{t}-{host}", "tenant": t} for t in self._tenants]
        return {"version": 1, "ports": ports}

    def _config(self, host: int) -> Mapping[str, object]:
        mode = self.plan.mode
        config: dict[str, object] = {
            "node": f"h{host}",
            "ports_file": str(self._folder / f"ports{host}.yaml"),
            "token_file": str(self._folder / "token"),
            "bpf": {"pin_dir": str(self._folder / "bpf" / str(host)), "max_ports": 64},
            "links": [{"device": "up0", "rate": f"{self.plan.link}bit", "headroom": self.plan.headroom}],
            "contracts": [self._contract(t) for t in self.plan.guarantees],
        }
        if mode in (Mode.PAPER, Mode.VIGIA):
            config["fast_loop"] = {
                "listen": f"10.59.0.{host}:9876",
                "site_file": str(self._folder / "site.yaml"),
                "keys_file": str(self._folder / f"keys{host}"),
                "variant": mode.value,
            }
        return config

    def guarantee(self, tenant: str) -> float:
        """Return what a tenant is guaranteed each way, bits per second of frames."""
        # A hundredth of what the link gives out is for what has no contract.
        return self.plan.guarantees[tenant] * self.plan.link * (1 - self.plan.headroom) * 0.99

    def _contract(self, tenant: str) -> Mapping[str, object]:
        guarantee = int(self.guarantee(tenant) // 1000)
        ceiling = guarantee if self.plan.mode is Mode.RIGID else self.plan.link // 1000
        return {
            "tenant": tenant,
            "guarantee": f"{guarantee}kbit",
            "ceiling": f"{ceiling}kbit",
            "match": self._matches(tenant),
        }

    def _matches(self, tenant: str) -> list[dict[str, object]]:
        """Return how a tenant's frames are told on an uplink."""
        return [{"mac": self.mac(h, tenant)} for h in self._hosts()]

    def state(self, host: int) -> Any:
        """Return what a node's enforcer says of its ports (GET /v1/state). Raises VigiaError."""
        return json.loads(self._fetch(host, "/v1/state"))

    def metrics(self, host: int) -> Mapping[str, float]:
        """Return a node's enforcer's metrics by series. Raises VigiaError."""
        text = self._fetch(host, "/metrics")
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in samples}

    def _fetch(self, host: int, path: str, method: str = "GET") -> str:
        request = urllib.request.Request(  # noqa: S310 - our own http URL
            self._url(host) + path, headers={"Authorization": f"Bearer {self._token}"}, method=method
        )

        def call() -> str:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
                return str(response.read().decode())

        try:
            return netns.inside(self.node(host), call)
        except (urllib.error.URLError, OSError) as e:
            if isinstance(e, urllib.error.HTTPError):
                e.close()
            raise VigiaError(f"enforcer of host {host}: {e}") from e

    def log(self, host: int) -> str:
        """Return what a node's enforcer has written."""
        return (self._folder / f"log{host}").read_text(errors="replace")

    def release(self, host: int) -> None:
        """End every limit of a node at once. Raises VigiaError."""
        self._fetch(host, "/v1/limits", method="DELETE")

    def enforcer_pid(self, host: int) -> int:
        """Return the process of a node's enforcer."""
        return self._children[host - 1].pid

    def kill_enforcer(self, host: int) -> None:
        """End a node's enforcer as a crash would."""
        self._children[host - 1].kill()
        self._children[host - 1].wait()

    def run(
        self,
        flows: Sequence[TrafficFlow],
        seconds: float,
        beside: Callable[[float], None] = lambda start: None,
    ) -> list[FlowOutcome]:
        """Let flows run together, and return what each brought. Raises VigiaError.

        beside is told the moment of CLOCK_MONOTONIC at which they will begin, before they do.
        """
        start = time.monotonic() + _LEAD + 0.05 * len(flows)
        self.started = start
        beside(start)
        receivers = []
        senders = []
        try:
            for i, flow in enumerate(flows):
                receivers.append(self._spawn("receive", i, flow, start, seconds))
            for i, flow in enumerate(flows):
                senders.append(self._spawn("send", i, flow, start, seconds))
            return [
                self._outcome(flow, receiver, sender)
                for flow, receiver, sender in zip(flows, receivers, senders, strict=True)
            ]
        finally:
            for child in (*receivers, *senders):
                if child.poll() is None:
                    child.kill()
                child.communicate()

    def run_job(self, job: ShuffleJob, flows: Sequence[TrafficFlow]) -> ShuffleOutcome:
        """Run a job among flows that last as long as it does. Raises VigiaError."""
        start = time.monotonic() + _LEAD + 0.05 * len(flows)
        self.started = start
        order = shuffle.ShuffleOrder(
            machines=[(self.guest(h, job.tenant), self.address(h, job.tenant)) for h in self._hosts()],
            partition=job.partition,
            parallel=job.parallel,
            port=_JOB_PORT,
            start=start,
            longest=job.longest,
            seed=job.seed,
        )
        receivers = []
        others = []
        try:
            for i, flow in enumerate(flows):
                receivers.append(self._spawn("receive", i, flow, start, job.longest + _LEAD))
                others.append(self._spawn("send", i, flow, start, job.longest + _LEAD))
            worker = commands.spawn(shuffle.command(), shuffle.encode(order))
            others.append(worker)
            out, err = worker.communicate()
            if worker.returncode != 0:
                raise VigiaError(f"the job of {job.tenant} failed: {err.strip()[-500:]}")
            result = shuffle.ShuffleResult(**json.loads(out))
            took = result.seconds or job.longest
            counted = [self._interrupted(f, r, took) for f, r in zip(flows, receivers, strict=True)]
        finally:
            for child in (*receivers, *others):
                if child.poll() is None:
                    child.kill()
                child.communicate()
        whole = job.partition * self.plan.hosts * (self.plan.hosts - 1)
        rate = 8 * result.fetched / took / self.plan.hosts
        return ShuffleOutcome(result.seconds, rate, result.fetched / whole, counted)

    def _interrupted(self, flow: TrafficFlow, receiver: subprocess.Popen[str], seconds: float) -> float:
        """End a receiver, and return the mean goodput in the seconds since its start."""
        receiver.send_signal(signal.SIGTERM)
        out, err = receiver.communicate()
        if receiver.returncode == -signal.SIGTERM:
            raise VigiaError("the job was over before its competitors had begun: this machine is too busy")
        if receiver.returncode != 0:
            raise VigiaError(
                f"receiver of {flow.tenant} {flow.source}->{flow.sink} failed: {err.strip()[-500:]}"
            )
        bins = json.loads(out)["bins"][: max(1, round(seconds / BIN))]
        return float(8 * sum(bins) / (BIN * len(bins)))

    def _spawn(
        self, role: str, index: int, flow: TrafficFlow, start: float, seconds: float
    ) -> subprocess.Popen[str]:
        host = flow.source if role == "send" else flow.sink
        later, early = (flow.delay, flow.early) if role == "send" else (0.0, 0.0)
        order = TrafficOrder(
            role=role,
            namespace=self.guest(host, flow.tenant),
            protocol=flow.protocol,
            address=self.address(flow.sink, flow.tenant),
            port=7000 + index,
            start=start + later,
            seconds=seconds - later - early,
            connections=flow.connections,
            rate=(flow.rate or (2 * self.plan.link if flow.protocol == "udp" else 0.0)) / 8,
            size=flow.size,
            on=flow.on,
            period=flow.period,
            congestion=flow.congestion,
        )
        return commands.spawn(traffic.command(), traffic.encode(order))

    def _outcome(
        self, flow: TrafficFlow, receiver: subprocess.Popen[str], sender: subprocess.Popen[str]
    ) -> FlowOutcome:
        counted = []
        for child, what in ((receiver, "receiver"), (sender, "sender")):
            out, err = child.communicate()
            if child.returncode != 0:
                raise VigiaError(
                    f"{what} of {flow.tenant} {flow.source}->{flow.sink} failed: {err.strip()[-500:]}"
                )
            counted.append(json.loads(out))
        bins = [8 * n / BIN for n in counted[0]["bins"]]
        return FlowOutcome(flow, bins, 8.0 * counted[1]["offered"])
