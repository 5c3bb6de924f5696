"""Segments that begin a connection are what the kernel and scapy take them for."""

from __future__ import annotations

import random
import socket
import struct

import pytest
from scapy.layers.inet import IP, TCP

from vigia.isolation.segments import SYN, checksum, syn


def test_the_checksum_is_that_of_the_rfc() -> None:
    """RFC 1071, section 3: 00 01 f2 03 f4 f5 f6 f7 sum up to ddf2."""
    data = bytes.fromhex("0001f203f4f5f6f7")
    assert checksum(data) == ~0xDDF2 & 0xFFFF
    assert checksum(data + struct.pack("!H", checksum(data))) == 0
    assert checksum(b"") == 0xFFFF
    assert checksum(b"\xff\xff" * 70_000) == 0


def test_scapy_reads_what_was_asked_for() -> None:
    r = random.Random(5)  # noqa: S311
    for _ in range(200):
        source, to = (f"10.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(1, 255)}" for _ in range(2))
        port, other, sequence = r.randrange(1, 65536), r.randrange(1, 65536), r.randrange(1 << 32)
        segment = syn(source, port, to, other, sequence)
        assert len(segment) == SYN
        read = TCP(segment)
        assert (read.sport, read.dport, read.seq, read.ack) == (port, other, sequence, 0)
        assert str(read.flags) == "S"
        assert not bytes(read.payload)
        assert [name for name, _ in read.options] == ["MSS", "SAckOK", "Timestamp", "NOP", "WScale"]
        again = IP(src=source, dst=to) / TCP(segment)
        del again[TCP].chksum
        assert IP(bytes(again))[TCP].chksum == read.chksum


def test_an_address_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0"):
        syn("10.0.0", 1, "10.0.0.1", 2, 3)


def test_the_kernel_takes_it_up(root: None) -> None:
    """A socket that listens answers it: the segment's length, checksum and options are right to Linux."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw,
        socket.socket() as unused,
    ):
        unused.bind(("127.0.0.1", 0))  # a port that nobody else's segments come from
        port, to = unused.getsockname()[1], server.getsockname()[1]
        raw.settimeout(30)
        raw.connect(("127.0.0.1", 0))
        raw.send(syn("127.0.0.1", port, "127.0.0.1", to, 0xFFFFFFFF))
        while True:
            answer = IP(raw.recv(65535))[TCP]
            if (answer.sport, answer.dport) == (to, port):
                break
        assert str(answer.flags) == "SA"
        assert answer.ack == 0
        assert dict(answer.options)["Timestamp"][1] == 1
