"""Causes of loss that can be planted in a lab for some seconds, each with the counters that see it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

import vigia_http
from vigia.errors import VigiaError
from vigia.host import commands, netns, syscalls
from vigia.lab import openflow
from vigia.lab.model import STAMP_PORT, Endpoint, Lab, Node
from vigia.lab.openflow import OFCTL_TIMEOUT
from vigia.stack import places

__all__ = ["CAUSES", "Cause", "Scene", "Seen"]

Seen = tuple[str, str, str]
"""Which node (near or far), counter and detail."""

NEAR, FAR = "near", "far"

_TABLE = "vigia_planted"
_SMALL = 1  # byte of receive buffer; the kernel makes it the least that there is
_RCVBUFFORCE, _NETNS_COOKIE = 33, 71  # SO_RCVBUFFORCE, SO_NETNS_COOKIE
_PAYLOAD = 64  # bytes: as small as probes, which are so as likely to be dropped
_PER, _EVERY = 4, 0.002  # datagrams at once, and seconds until the next: no room between them
_VXLAN = 4789


@dataclass(frozen=True)
class Scene:
    """Where a cause is planted: a tenant on a path, from a node to its peer."""

    lab: Lab
    probes: Mapping[str, int]
    """Process of each node's vigia-probe."""
    path: str
    tenant: str

    @property
    def near(self) -> Endpoint:
        """The first machine, on the first node."""
        return self.lab.endpoint(self.lab.nodes[0].name, self.tenant, self.path)

    @property
    def far(self) -> Endpoint:
        """The one on the second node."""
        return self.lab.endpoint(self.lab.nodes[1].name, self.tenant, self.path)

    def node(self, end: str) -> Node:
        """Return the node of an end."""
        return self.lab.nodes[0] if end == NEAR else self.lab.nodes[1]


Plant = Callable[[Scene], AbstractContextManager[None]]


@dataclass(frozen=True)
class Cause:
    """A cause of loss, there while its plant is entered."""

    name: str
    path: str
    tenant: str
    """No other cause has this tenant on this path: what is said of them is of this one alone."""
    plant: Plant
    beneath: Plant
    """What counts, and is there without effect until the verdict: a counter that is gone tells nothing."""
    seen: frozenset[Seen]
    """Counters that tell this cause; none where the loss is not on the hosts."""


@contextmanager
def _nft(namespace: str, family: str, chain: str, rule: str) -> Iterator[None]:
    """Have a rule of nftables in a namespace, in a table of its own."""
    rules = (
        f"table {family} {_TABLE} {{ chain planted {{ type filter {chain}; policy accept; {rule}; }}; }}\n"
    )
    commands.run(["nft", "-f", "-"], stdin=rules, netns=namespace)
    try:
        yield
    finally:
        commands.run(["nft", "delete", "table", family, _TABLE], netns=namespace)


@contextmanager
def _traffic(source: Endpoint, sink: Endpoint) -> Iterator[None]:
    """Have a tenant send itself small datagrams at the other node, 2 000 a second."""
    out = netns.inside(source.netns, lambda: socket.socket(type=socket.SOCK_DGRAM))
    into = netns.inside(sink.netns, lambda: socket.socket(type=socket.SOCK_DGRAM))
    with out, into:
        into.bind((str(sink.address.ip), 0))
        with _sending(out, into.getsockname(), bytes(_PAYLOAD), _PER):
            yield


@contextmanager
def _sending(out: socket.socket, to: tuple[str, int], payload: bytes, per: int) -> Iterator[None]:
    """Send so many datagrams every 2 ms from a thread."""
    ended = threading.Event()

    def send() -> None:
        following = time.monotonic()
        while not ended.wait(max(0.0, following - time.monotonic())):
            following = max(following + _EVERY, time.monotonic() - 0.1)
            for _ in range(per):
                try:
                    out.sendto(payload, to)
                except OSError:  # nobody listens, or no room: the next
                    break

    thread = threading.Thread(target=send, name="planted traffic")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def policer(s: Scene) -> Iterator[None]:
    """The enforcer's limit on the port, of 0.24 Mbit/s, while the tenant sends 1.7."""
    url = f"http://{places.agent_address(s.lab, s.near.node, 'vigia-enforcer')}/v1/ports/{s.near.port}/limit"
    own = "6c6f7373-0000-4000-8000-000000000001"
    head = {"Authorization": f"Bearer {s.lab.layout.token_file.read_text().strip()}", **vigia_http.IDENTITY}
    body = {
        "id": own,
        "tenant": s.tenant,
        "protocol": "udp",
        "rate_bytes_per_second": 30_000,
        "burst_bytes": 0,
        "ttl_seconds": 60,
        "approved_by": "make test-losses",
    }
    with httpx.Client(headers=head, timeout=10, trust_env=False) as client:
        answer = client.put(url, json=body)
        if answer.status_code != httpx.codes.OK:
            raise VigiaError(f"the limit cannot be set: {answer.status_code} {answer.text[:200]}")
        try:
            with _traffic(s.near, s.far):
                yield
        finally:
            client.delete(url, params={"id": own})


@contextmanager
def _with_meter(s: Scene) -> Iterator[None]:
    """Have an OpenFlow meter of 8 packets a second, which nothing goes through."""
    bridge = _Bridge(s, "br-int")
    bridge.ofctl("add-meter", "meter=1,pktps,stats,band=type=drop,rate=8")
    try:
        yield
    finally:
        bridge.ofctl("del-meter", "meter=1")


@contextmanager
def meter(s: Scene) -> Iterator[None]:
    """What the port sends, 40 packets a second, goes through the meter."""
    bridge = _Bridge(s, "br-int")
    with bridge.with_rule(f"priority=100,in_port={bridge.port(s.near.device)}", "meter:1,NORMAL"):
        yield


@dataclass(frozen=True)
class _Bridge:
    """A bridge of Open vSwitch on the first node."""

    scene: Scene
    name: str

    def ofctl(self, *words: str) -> str:
        """Run ovs-ofctl(8) with a command's name, the bridge, and its arguments."""
        at = next(i for i, w in enumerate(words) if not w.startswith("--"))
        argv = ["ovs-ofctl", "--protocols=OpenFlow14", *words[: at + 1], self.name, *words[at + 1 :]]
        env = {"OVS_RUNDIR": str(self.scene.lab.layout.ovs(self.scene.near.node))}
        return commands.run(argv, env=env, timeout=OFCTL_TIMEOUT).stdout

    def port(self, device: str) -> int:
        """Return a port's OpenFlow number."""
        for line in self.ofctl("show").splitlines():
            if f"({device})" in line:
                return int(line.strip().partition("(")[0])
        raise VigiaError(f"{self.name} has no port {device}")

    @contextmanager
    def with_rule(self, match: str, actions: str) -> Iterator[None]:
        """Have a rule for the block."""
        self.ofctl("add-flow", f"{match},actions={actions}")
        try:
            yield
        finally:
            self.ofctl("--strict", "del-flows", match)


@contextmanager
def _with_queue(s: Scene) -> Iterator[None]:
    """Have a TBF with room for 20 frames before the port, faster than what is sent."""
    inside = s.node(FAR).netns
    commands.tc_batch(_tbf("add", s.far.device, "1gbit"), netns=inside)
    try:
        yield
    finally:
        commands.tc_batch([f"qdisc del dev {s.far.device} root"], netns=inside)


def _tbf(how: str, device: str, rate: str) -> list[str]:
    """Return the lines for tc; a change of a TBF gives its own limit, of bytes, to its child."""
    return [
        f"qdisc {how} dev {device} root handle 9: tbf rate {rate} burst 2000 limit 30000",
        f"qdisc {how} dev {device} parent 9: handle 10: pfifo limit 20",
    ]


@contextmanager
def queue(s: Scene) -> Iterator[None]:
    """The TBF has 40 kbit/s, while the tenant is sent 1.7 Mbit/s."""
    inside = s.node(FAR).netns
    commands.tc_batch(_tbf("change", s.far.device, "40kbit"), netns=inside)
    try:
        with _traffic(s.near, s.far):
            yield
    finally:
        commands.tc_batch(_tbf("change", s.far.device, "1gbit"), netns=inside)


@contextmanager
def _small(pid: int, of: Endpoint, *, reflector: bool) -> Iterator[socket.socket]:
    """Give a socket of vigia-probe in a machine the least receive buffer that there is."""
    with ExitStack() as stack:
        own = stack.enter_context(netns.inside(of.netns, lambda: socket.socket(type=socket.SOCK_DGRAM)))
        cookie = own.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8)
        for s in _sockets(pid, stack):
            if not _is_of(s, cookie) or not (port := s.getsockname()[1]):
                continue
            if (port == STAMP_PORT) == reflector:
                had = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
                try:
                    yield s
                finally:
                    s.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, had // 2)
                return
    raise VigiaError(f"vigia-probe has no such socket in {of.netns}")


def _is_of(s: socket.socket, cookie: bytes) -> bool:
    """Whether a socket is one of UDP in the namespace of that cookie."""
    udp = s.type == socket.SOCK_DGRAM and s.proto == socket.IPPROTO_UDP
    return udp and s.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8) == cookie


def _sockets(pid: int, stack: ExitStack) -> Iterator[socket.socket]:
    """Yield the IPv4 sockets of a process, borrowed until the stack is closed."""
    pidfd = os.pidfd_open(pid)
    stack.callback(os.close, pidfd)
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not link.readlink().name.startswith("socket:"):
                continue
            s = stack.enter_context(syscalls.borrowed_socket(pidfd, int(link.name)))
        except OSError:  # closed meanwhile
            continue
        if s.family == socket.AF_INET:
            yield s


@contextmanager
def reflector_socket(s: Scene) -> Iterator[None]:
    """A reflector that is stopped for 0.6 s again and again, with room for two or three packets."""
    pid = s.probes[s.far.node]
    with _small(pid, s.far, reflector=True), _halting(pid, 0.6, 0.15):
        yield


@contextmanager
def _halting(pid: int, stopped: float, running: float) -> Iterator[None]:
    """Stop a process for a while and let it run for a while, again and again; it runs in the end."""
    ended = threading.Event()
    process = os.pidfd_open(pid)

    def halt() -> None:
        with suppress(ProcessLookupError):  # it has ended, and who waits for its losses will tell
            while not ended.wait(running):
                signal.pidfd_send_signal(process, signal.SIGSTOP)
                ended.wait(stopped)
                signal.pidfd_send_signal(process, signal.SIGCONT)

    thread = threading.Thread(target=halt, name="halting")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGCONT)
        os.close(process)


@contextmanager
def prober_socket(s: Scene) -> Iterator[None]:
    """Strays that fill the prober's socket, which has room for two or three packets."""
    with (
        _small(s.probes[s.near.node], s.near, reflector=False) as found,
        netns.inside(s.far.netns, lambda: socket.socket(type=socket.SOCK_DGRAM)) as out,
        _sending(out, found.getsockname(), bytes(_PAYLOAD), 1),
    ):
        yield


def drop_by_bridge(s: Scene) -> AbstractContextManager[None]:
    """A rule of nftables in the bridge, against frames to the machine."""
    return _nft(
        s.node(FAR).netns,
        "bridge",
        "hook forward priority 0",
        f"ether daddr {s.far.mac} ip protocol udp drop",
    )


def drop_at_port(s: Scene) -> AbstractContextManager[None]:
    """A rule of nftables on what the port takes in."""
    return _nft(
        s.node(NEAR).netns,
        "netdev",
        f'hook ingress device "{s.near.device}" priority 0',
        "ip protocol udp drop",
    )


def drop_in_guest(s: Scene) -> AbstractContextManager[None]:
    """A guest's own firewall, which is no part of the host."""
    return _nft(s.far.netns, "inet", "hook input priority 0", f"udp dport {STAMP_PORT} drop")


@contextmanager
def mtu(s: Scene) -> Iterator[None]:
    """The MTU of the port's device is the least of Ethernet, and all frames are longer."""
    inside = s.node(FAR).netns
    commands.ip_batch([f"link set {s.far.device} mtu 68"], netns=inside)
    try:
        yield
    finally:
        commands.ip_batch([f"link set {s.far.device} mtu 1500"], netns=inside)


@contextmanager
def table_miss(s: Scene) -> Iterator[None]:
    """The rules that the probes match are gone, and the bridge drops what matches nothing."""
    rules = openflow.forwarding(s.node(NEAR))
    to = openflow.switch(s.lab.layout, s.node(NEAR))
    gone = f"dl_dst={s.far.mac}"
    openflow.install(to, [r for r in rules if gone not in r])
    try:
        yield
    finally:
        openflow.install(to, rules)


@contextmanager
def wire(s: Scene) -> Iterator[None]:
    """The switch between the nodes drops what is of the tenant's network: it sends it to nowhere."""
    link, into = s.lab.links[0], s.near.node
    handle = f"dev {into} ingress protocol all prio 1 handle 800::1 u32"
    match = f"match u16 {_VXLAN} 0xffff at 22 match u32 {s.near.key << 8:#010x} 0xffffff00 at 32"
    commands.tc_batch([f"filter add {handle} {match} action mirred egress redirect dev lo"], netns=link.netns)
    try:
        yield
    finally:
        commands.tc_batch([f"filter del {handle}"], netns=link.netns)


@contextmanager
def drop_by_rule(s: Scene) -> Iterator[None]:
    """An OpenFlow rule that drops what the port sends."""
    bridge = _Bridge(s, "br-int")
    with bridge.with_rule(f"priority=200,in_port={bridge.port(s.near.device)},udp", "drop"):
        yield


_LB, _OVS, _MAC = "linuxbridge-vxlan", "ovs-vxlan", "ovs-openflow-mac"
_DROPS, _LOST = "vigia_port_drops_total", "vigia_probe_lost_total"
_COVERAGE = "vigia_ovs_coverage_events_total"

_AT_ONCE = (FAR, _LOST, "send_error")
"""Who sends more than a device's MTU from a machine of its own is told at once."""


def _nothing(_: Scene) -> AbstractContextManager[None]:
    return nullcontext()


def _cause(name: str, key: tuple[str, str], plant: Plant, *seen: Seen, beneath: Plant = _nothing) -> Cause:
    return Cause(name, key[0], key[1], plant, beneath, frozenset(seen))


CAUSES: Mapping[str, Cause] = {
    c.name: c
    for c in (
        _cause(
            "policer",
            (_LB, "blue"),
            policer,
            (NEAR, "vigia_isolation_policed_packets_total", ""),
            (NEAR, _DROPS, "rate_limit"),
        ),
        _cause(
            "meter",
            (_OVS, "blue"),
            meter,
            (NEAR, "vigia_openflow_meter_drops_total", "1"),
            (NEAR, _COVERAGE, "datapath_drop_meter"),
            beneath=_with_meter,
        ),
        _cause("queue", (_LB, "red"), queue, (FAR, _DROPS, "queue_full"), beneath=_with_queue),
        _cause(
            "reflector-socket",
            (_LB, "_infra"),
            reflector_socket,
            (FAR, _LOST, "reflector_overflow"),
            (FAR, "vigia_reflector_overflow_total", ""),
        ),
        _cause("prober-socket", (_OVS, "_infra"), prober_socket, (NEAR, _LOST, "local_overflow")),
        _cause("drop-by-bridge", (_LB, "green"), drop_by_bridge, (FAR, _DROPS, "policy")),
        _cause("drop-at-port", (_LB, "violet"), drop_at_port, (NEAR, _DROPS, "policy")),
        _cause("drop-by-rule", (_OVS, "green"), drop_by_rule, (NEAR, _COVERAGE, "drop_action_of_pipeline")),
        _cause("mtu", (_LB, "amber"), mtu, (FAR, _DROPS, "mtu"), _AT_ONCE),
        # Open vSwitch in user space is told by the kernel why, and does not count it apart.
        _cause("mtu-ovs", (_OVS, "violet"), mtu, (FAR, _DROPS, "unattributed"), _AT_ONCE),
        _cause("table-miss", (_MAC, "_infra"), table_miss, (NEAR, "vigia_openflow_table_lookups_total", "0")),
        _cause("wire", (_OVS, "red"), wire),
        _cause("drop-in-guest", (_OVS, "amber"), drop_in_guest),
    )
}
"""Every cause, by its name, in the order in which they are planted."""
