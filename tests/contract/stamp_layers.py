"""STAMP as scapy layers, written from the figures of RFC 8762 and RFC 8972 alone.

It shares nothing with vigia-probe, so that a mistake in either shows.
"""

from __future__ import annotations

import hashlib
import hmac
import time

from scapy.fields import (
    BitField,
    ByteField,
    FieldLenField,
    IntField,
    LongField,
    PacketListField,
    ShortField,
    StrFixedLenField,
    StrLenField,
)
from scapy.packet import Packet

NTP_UNIX = 2_208_988_800
HMAC_SIZE = 16
PADDING, COS, DIRECT, FOLLOW_UP, HMAC = 1, 4, 5, 7, 8
UNRECOGNIZED = 0x80


def ntp(seconds: float) -> int:
    """Return a 64-bit NTP time stamp."""
    whole = int(seconds)
    return (whole + NTP_UNIX) << 32 | int((seconds - whole) * 2**32)


class TLV(Packet):
    """RFC 8972 figure 4."""

    name = "STAMP TLV"
    fields_desc = [
        ByteField("flags", UNRECOGNIZED),
        ByteField("type", PADDING),
        FieldLenField("length", None, length_of="value", fmt="!H"),
        StrLenField("value", b"", length_from=lambda p: p.length),
    ]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Leave what follows to the next TLV."""
        return b"", s


class ClassOfService(Packet):
    """The value of figure 12 of RFC 8972, with erratum 8199's names."""

    name = "STAMP class of service"
    fields_desc = [
        BitField("dscp1", 0, 6),
        BitField("dscp2", 0, 6),
        BitField("ec2", 0, 2),
        BitField("rp", 0, 2),
        ShortField("reserved", 0),
    ]


class DirectMeasurement(Packet):
    """The value of figure 13 of RFC 8972."""

    name = "STAMP direct measurement"
    fields_desc = [IntField("s_txc", 0), IntField("r_rxc", 0), IntField("r_txc", 0)]


def tlvs() -> PacketListField:
    """Return the field of the TLVs after a base packet."""
    return PacketListField("tlvs", [], TLV)


class Sender(Packet):
    """RFC 8762 figure 2 with figure 1 of RFC 8972."""

    name = "STAMP sender"
    fields_desc = [
        IntField("seq", 0),
        LongField("ts", 0),
        ShortField("error", 1),
        ShortField("ssid", 0),
        StrFixedLenField("mbz", b"", 28),
        tlvs(),
    ]


class SecureSender(Packet):
    """RFC 8762 figure 4 with figure 2 of RFC 8972."""

    name = "STAMP authenticated sender"
    fields_desc = [
        IntField("seq", 0),
        StrFixedLenField("mbz1", b"", 12),
        LongField("ts", 0),
        ShortField("error", 1),
        ShortField("ssid", 0),
        StrFixedLenField("mbz2", b"", 68),
        StrFixedLenField("hmac", b"", HMAC_SIZE),
        tlvs(),
    ]


class Reflector(Packet):
    """RFC 8762 figure 5 with the session identifier."""

    name = "STAMP reflector"
    fields_desc = [
        IntField("seq", 0),
        LongField("ts", 0),
        ShortField("error", 1),
        ShortField("ssid", 0),
        LongField("rx", 0),
        IntField("sender_seq", 0),
        LongField("sender_ts", 0),
        ShortField("sender_error", 0),
        ShortField("mbz1", 0),
        ByteField("ttl", 0),
        StrFixedLenField("mbz2", b"", 3),
        tlvs(),
    ]


class SecureReflector(Packet):
    """RFC 8762 figure 7 with the session identifier."""

    name = "STAMP authenticated reflector"
    fields_desc = [
        IntField("seq", 0),
        StrFixedLenField("mbz1", b"", 12),
        LongField("ts", 0),
        ShortField("error", 1),
        ShortField("ssid", 0),
        StrFixedLenField("mbz2", b"", 4),
        LongField("rx", 0),
        StrFixedLenField("mbz3", b"", 8),
        IntField("sender_seq", 0),
        StrFixedLenField("mbz4", b"", 12),
        LongField("sender_ts", 0),
        ShortField("sender_error", 0),
        StrFixedLenField("mbz5", b"", 6),
        ByteField("ttl", 0),
        StrFixedLenField("mbz6", b"", 15),
        StrFixedLenField("hmac", b"", HMAC_SIZE),
        tlvs(),
    ]


def digest(key: bytes, text: bytes) -> bytes:
    """Return HMAC-SHA-256 truncated to 128 bits (RFC 8762 section 4.4)."""
    return hmac.new(key, text, hashlib.sha256).digest()[:HMAC_SIZE]


def find(packet: Packet, kind: int) -> TLV | None:
    """Return the first TLV of a type."""
    return next((t for t in packet.tlvs if t.type == kind), None)


def sign(packet: Packet, key: bytes) -> bytes:
    """Return the bytes of a packet with its HMACs in place."""
    packet.hmac = digest(key, bytes(packet)[:96])
    mac = find(packet, HMAC)
    if mac is not None:
        before = b"".join(bytes(t) for t in packet.tlvs[: packet.tlvs.index(mac)])
        mac.value = digest(key, bytes(packet)[:4] + before)
    return bytes(packet)


def verified(packet: Packet, key: bytes) -> bool:
    """Report whether both HMACs of a packet are right."""
    if packet.hmac != digest(key, bytes(packet)[:96]):
        return False
    mac = find(packet, HMAC)
    if mac is None:
        return all(t.type == PADDING for t in packet.tlvs)
    before = b"".join(bytes(t) for t in packet.tlvs[: packet.tlvs.index(mac)])
    return bool(mac.value == digest(key, bytes(packet)[:4] + before))


def now() -> int:
    """Return the time as NTP."""
    return ntp(time.time())
