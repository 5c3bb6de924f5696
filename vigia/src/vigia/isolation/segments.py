"""TCP segments that begin a connection, made without a socket of the kernel's for each.

Such a socket costs its sender many times what the frame costs, and a switch that
forwards on the same processors has none left for its tenants.
"""

from __future__ import annotations

import ipaddress
import struct

__all__ = ["SYN", "checksum", "syn"]

SYN = 40
"""Bytes of a SYN with Linux's options, from its TCP header on."""

_OFFSET, _FLAG = SYN // 4 << 4, 0x02
_WINDOW = 64240
# A largest segment of 1460 bytes, selective acknowledgements, a time stamp, and a scale of the window by 7.
_OPTIONS = bytes.fromhex("020405b4 0402 080a 00000001 00000000 01 030307")


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn(source: str, source_port: int, to: str, port: int, sequence: int) -> bytes:
    """Return the segment, without an IP header, that begins a connection between IPv4 addresses."""
    ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(to).packed
    head = struct.pack("!HHIIBBHHH", source_port, port, sequence, 0, _OFFSET, _FLAG, _WINDOW, 0, 0)
    segment = head + _OPTIONS
    sums = checksum(ends + struct.pack("!HH", 6, SYN) + segment)
    return segment[:16] + struct.pack("!H", sums) + segment[18:]
