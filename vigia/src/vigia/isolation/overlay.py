"""The bed of the isolation experiments with an overlay, as clouds have it.

Each tenant has a VXLAN network among the nodes, by the Linux bridge and the kernel's
VXLAN, or by Open vSwitch with its userspace datapath, which reads its tunnels through
a macvlan device beside the uplink, as in the lab.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.isolation.model import IsolationPlan
from vigia.isolation.testbed import IsolationTestbed
from vigia.lab import buffers, down, openvswitch

__all__ = ["OverlaySwitch", "OverlayTestbed"]

_MTU = 1600  # of the underlay: room for a guest's 1500 bytes in VXLAN
_FIRST_NETWORK = 100
_OPENS = 20.0  # seconds at most until the switch has sent a frame
_PRIORITY = -10  # of the thread that forwards for all tenants: clouds give it a core of its own


def _asks(address: str) -> None:
    """Have the kernel ask for an address of the underlay."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
        sock.sendto(b"", (address, 9))


class OverlaySwitch(Enum):
    """What forwards on the nodes."""

    LINUX_BRIDGE = "linuxbridge"
    OPENVSWITCH = "openvswitch"


class OverlayTestbed(IsolationTestbed):
    """A bed with an overlay that is there while it is entered."""

    def __init__(
        self, plan: IsolationPlan, enforcer: Path, switch: OverlaySwitch, log_level: str = "warn"
    ) -> None:
        super().__init__(plan, enforcer, log_level)
        self.switch = switch

    def network(self, tenant: str) -> int:
        """VNI of a tenant's network."""
        return _FIRST_NETWORK + self._tenants.index(tenant)

    def tunnel(self, host: int) -> str:
        """Underlay address of a node, at which its tunnels end."""
        return f"10.58.0.{host}"

    def settle(self) -> None:
        """End every limit of every node. Raises VigiaError."""
        for host in self._hosts():
            self.release(host)

    def _delete_namespaces(self) -> None:
        down.remove_namespaces(f"{self._name}-")  # with the switches that run in them

    def _wire(self) -> None:
        super()._wire()
        lines = [f"link set {d}{h} mtu {_MTU}" for h in self._hosts() for d in ("p", "wa", "wb", "w")]
        commands.ip_batch([*lines, f"link set sw mtu {_MTU}"], netns=self.fabric)

    def _build_node(self, host: int) -> None:
        lines = ["link set lo up", f"link set up0 mtu {_MTU} up", "link set mg0 up"]
        lines.append(f"addr add 10.59.0.{host}/24 dev mg0")
        for tenant in self._tenants:
            guest = self.guest(host, tenant)
            lines += [
                f"link add t-{tenant} type veth peer name eth0 netns {guest}",
                f"link set t-{tenant} up",
            ]
        commands.ip_batch(lines, netns=self.node(host))
        # The wire queues frames of MTU size, one by one.
        off = [word for name in ("tso", "gso", "gro", "tx-udp_tnl-segmentation") for word in (name, "off")]
        commands.run(["ethtool", "-K", "up0", *off], netns=self.node(host), check=False)
        if self.switch is OverlaySwitch.OPENVSWITCH:
            self._build_openvswitch(host)
        else:
            self._build_bridges(host)

    def _build_bridges(self, host: int) -> None:
        lines = [f"addr add {self.tunnel(host)}/24 dev up0"]
        places = []
        for tenant in self._tenants:
            vni, bridge, vxlan = self.network(tenant), f"br-{tenant}", f"vx-{tenant}"
            lines += [
                f"link add {bridge} type bridge mcast_snooping 0",
                f"link add {vxlan} mtu 1500 type vxlan id {vni} local {self.tunnel(host)}"
                " dstport 4789 dev up0 nolearning",
                *(f"link set {d} master {bridge}" for d in (vxlan, f"t-{tenant}")),
                *(f"link set {d} up" for d in (vxlan, bridge)),
            ]
            for other in (h for h in self._hosts() if h != host):
                mac, end = self.mac(other, tenant), self.tunnel(other)
                places += [
                    f"fdb append 00:00:00:00:00:00 dev {vxlan} dst {end}",
                    f"fdb replace {mac} dev {vxlan} dst {end} self static",
                    f"fdb replace {mac} dev {vxlan} master static",
                ]
            places.append(f"fdb replace {self.mac(host, tenant)} dev t-{tenant} master static")
        commands.ip_batch(lines, netns=self.node(host))
        commands.bridge_batch(places, netns=self.node(host))

    def _ovs(self, host: int) -> Path:
        return self._folder / f"ovs{host}"

    def _build_openvswitch(self, host: int) -> None:
        node, folder = self.node(host), self._ovs(host)
        mac = f"02:00:00:58:00:{host:02x}"
        commands.ip_batch(
            [f"link add link up0 name phy0 mtu {_MTU} address {mac} type macvlan mode bridge"], netns=node
        )

        def drop_copies() -> None:  # as in the lab: the kernel must not answer what it sees of tunnels
            Path("/proc/sys/net/ipv4/conf/phy0/rp_filter").write_text("1")

        netns.inside(node, drop_copies)
        commands.ip_batch(["link set phy0 up"], netns=node)
        openvswitch.start(node, folder)
        openvswitch.transact(folder, *self._database(host, mac))
        pid = int((folder / "ovs-vswitchd.pid").read_text())
        receiving = len(buffers.read_all(pid))
        commands.ip_batch(
            [f"addr add {self.tunnel(host)}/24 dev br-phy", f"link set br-phy mtu {_MTU} up"], netns=node
        )
        for tenant in self._tenants:
            for other in self._hosts():
                port = f"t-{tenant}" if other == host else f"x{other}-{tenant}"
                vlan = str(self.network(tenant))
                openvswitch.control(folder, pid, "fdb/add", "br-int", port, vlan, self.mac(other, tenant))
        self._send_first(host, pid, receiving)
        buffers.raise_all(pid)
        os.setpriority(os.PRIO_PROCESS, pid, _PRIORITY)

    def _send_first(self, host: int, pid: int, receiving: int) -> None:
        """Have the switch send a frame: with the first it opens the socket that it sends all through.

        As it opens it, its buffer holds less than the queue of the uplink, and frames are lost before they
        wait there.
        """
        deadline = time.monotonic() + _OPENS
        while len(buffers.read_all(pid)) == receiving:
            if time.monotonic() > deadline:
                log = self._ovs(host) / "vswitchd.log"
                raise VigiaError(f"OVS of {self.node(host)} sent no frame in {_OPENS:.0f} s: see {log}")
            netns.inside(self.node(host), lambda: _asks(self.tunnel(host % self.plan.hosts + 1)))
            time.sleep(0.02)

    def _database(self, host: int, mac: str) -> list[str]:
        """Return the bridges, the guests' ports with their identity, and a tunnel to each other node."""
        words: list[str] = []
        for bridge in ("br-int", "br-phy"):
            words += ["--", "add-br", bridge, "--", "set", "Bridge", bridge]
            words += ["datapath_type=netdev", "fail_mode=standalone"]
        words += [f"other_config:hwaddr={json.dumps(mac)}", "--", "add-port", "br-phy", "phy0"]
        for tenant in self._tenants:
            device, vni = f"t-{tenant}", self.network(tenant)
            words += ["--", "add-port", "br-int", device, f"tag={vni}", "--", "set", "Interface", device]
            words += [f"external_ids:iface-id={tenant}-{host}", f"external_ids:vigia-tenant={tenant}"]
            words.append(f"external_ids:attached-mac={json.dumps(self.mac(host, tenant))}")
            for other in (h for h in self._hosts() if h != host):
                name = f"x{other}-{tenant}"
                # Protected ports do not forward to each other: what comes by one tunnel leaves by none.
                words += ["--", "add-port", "br-int", name, f"tag={vni}", "--", "set", "Port", name]
                words += [
                    "protected=true",
                    "--",
                    "set",
                    "Interface",
                    name,
                    "type=vxlan",
                    f"options:key={vni}",
                ]
                words += [f"options:remote_ip={self.tunnel(other)}", f"options:local_ip={self.tunnel(host)}"]
        return words

    def _build_guest(self, host: int, tenant: str) -> None:
        super()._build_guest(host, tenant)
        if self.switch is OverlaySwitch.OPENVSWITCH:  # its userspace datapath completes no checksum
            commands.run(["ethtool", "-K", "eth0", "tx", "off"], netns=self.guest(host, tenant))

    def _site(self) -> Mapping[str, object]:
        site = dict(super()._site())
        site["nodes"] = [
            {"node": f"h{h}", "address": f"10.59.0.{h}:9876", "tunnel": self.tunnel(h)} for h in self._hosts()
        ]
        return site

    def _config(self, host: int) -> Mapping[str, object]:
        config = dict(super()._config(host))
        if self.switch is OverlaySwitch.OPENVSWITCH:
            del config["ports_file"]
            config["ovsdb"] = f"unix:{self._ovs(host)}/db.sock"
        return config

    def _matches(self, tenant: str) -> list[dict[str, object]]:
        return [{"vxlan": self.network(tenant)}]
