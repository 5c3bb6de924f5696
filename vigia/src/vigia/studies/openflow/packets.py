"""Single packets, made and read by scapy, where a socket cannot set or see a header field."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

from vigia.errors import VigiaError
from vigia.host import netns
from vigia.studies.openflow.rulesets import Rewrite, SwitchedFlow

__all__ = ["Seen", "cross"]

_ALL = 0x0003  # ETH_P_ALL
_SOL_PACKET, _AUXDATA = 263, 8  # linux/if_packet.h
_VLAN_VALID = 1 << 4
_PATIENCE = 5.0


@dataclass(frozen=True)
class Seen:
    """Header fields of a packet as it arrived."""

    mac: str
    address: str
    tos: int
    port: int
    vlan_priority: int | None
    """None for an untagged frame."""


def cross(flow: SwitchedFlow, how: Rewrite) -> Seen:
    """Send a packet of the flow and return how it arrives at the server. Raises VigiaError."""
    token = f"vigia {time.monotonic_ns()}".encode()
    frame = _frame(flow, how, token)
    receiver = netns.inside(flow.server.netns, _raw_socket)
    sender = netns.inside(flow.client.netns, _raw_socket)
    with receiver, sender:
        receiver.setsockopt(_SOL_PACKET, _AUXDATA, 1)
        sender.send(frame)
        return _receive(receiver, token)


def _raw_socket() -> socket.socket:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    s.bind(("eth0", _ALL))
    return s


def _frame(flow: SwitchedFlow, how: Rewrite, token: bytes) -> bytes:
    from scapy.layers.inet import IP, UDP  # noqa: PLC0415 - takes seconds to load
    from scapy.layers.l2 import Ether  # noqa: PLC0415

    client, server = flow.client, flow.server
    return bytes(
        Ether(src=client.mac, dst=how.mac or server.mac)
        / IP(src=str(client.address.ip), dst=how.address or str(server.address.ip))
        / UDP(sport=flow.client_port, dport=how.port or flow.server_port)
        / token
    )


def _receive(receiver: socket.socket, token: bytes) -> Seen:
    from scapy.layers.inet import IP, UDP  # noqa: PLC0415
    from scapy.layers.l2 import Dot1Q, Ether  # noqa: PLC0415

    deadline = time.monotonic() + _PATIENCE
    while (left := deadline - time.monotonic()) > 0:
        receiver.settimeout(left)
        try:
            data, ancillary, _, address = receiver.recvmsg(2048, 256)
        except TimeoutError:
            break
        if address[2] == socket.PACKET_OUTGOING or token not in data:
            continue
        packet = Ether(_with_tag(data, ancillary))
        tag = packet.getlayer(Dot1Q)
        return Seen(
            mac=str(packet.dst),
            address=str(packet[IP].dst),
            tos=int(packet[IP].tos),
            port=int(packet[UDP].dport),
            vlan_priority=None if tag is None else int(tag.prio),
        )
    raise VigiaError(f"a packet did not arrive at the server within {_PATIENCE:g} s")


def _with_tag(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """Put back the VLAN tag, which the kernel takes out of the frame and hands over beside it."""
    for level, kind, value in ancillary:
        if (level, kind) != (_SOL_PACKET, _AUXDATA) or len(value) < 20:
            continue
        status, _, _, _, _, tci, protocol = struct.unpack("=IIIHHHH", value[:20])
        if status & _VLAN_VALID:
            return data[:12] + struct.pack("!HH", protocol or 0x8100, tci) + data[12:]
    return data
