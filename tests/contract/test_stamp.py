"""vigia-probe against an independent STAMP implementation, in either role."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from contract import stamp_layers as stamp

from vigia_testing import eventually

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "bin" / "vigia-probe"
KEY = bytes(range(32))
STRANGER = bytes(32)
SECONDS = 90

HOST = str(IPv4Address("127.1.0.0") + os.getpid())
"""Loopback of this run alone. A port that is found free on 127.0.0.1 may be another's a moment later."""
OPEN, AUTHENTICATED = 20862, 20863
"""Ports of our reflector, below those that the kernel gives to sockets which ask for none."""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A key file with the key and, as in a rotation, another."""
    path = tmp_path / "stamp.key"
    path.write_text(f"{KEY.hex()}\n{'77' * 32}\n")
    path.chmod(0o600)
    return path


class TheirReflector(threading.Thread):
    """A stateful reflector that harms chosen probes and checks every question."""

    def __init__(self, secure: bool, lose: set[int], mute: set[int]) -> None:
        super().__init__(daemon=True)
        self.secure, self.lose, self.mute = secure, lose, mute
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.socket.bind((HOST, 0))
        self.port = self.socket.getsockname()[1]
        self.faults: list[str] = []
        self.answers = 0
        self.arrivals = 0

    def run(self) -> None:
        while True:
            try:
                data, control, _, peer = self.socket.recvmsg(65535, 256)
            except OSError:
                return
            received = stamp.now()
            question = (stamp.SecureSender if self.secure else stamp.Sender)(data)
            self.check(question, data)
            if question.seq in self.lose:
                continue
            self.arrivals += 1
            tos = control[0][2][0] if control else 0
            answer = self.answer(question, received, tos)
            if question.seq not in self.mute:
                self.socket.sendto(answer, peer)

    def check(self, question: stamp.Packet, data: bytes) -> None:
        if bytes(question) != data:
            self.faults.append("the layers do not give the packet back")
        zeros = [question.mbz1, question.mbz2] if self.secure else [question.mbz]
        if any(any(z) for z in zeros):
            self.faults.append(f"bytes that must be zero: {zeros}")
        if self.secure and not stamp.verified(question, KEY):
            self.faults.append("HMAC")
        if any(t.flags != stamp.UNRECOGNIZED for t in question.tlvs):
            self.faults.append("flags of a TLV")
        if question.ssid == 0 or question.error & 0xFF == 0:
            self.faults.append("no session identifier, or a multiplier of zero")

    def answer(self, question: stamp.Packet, received: int, tos: int) -> bytes:
        layer = stamp.SecureReflector if self.secure else stamp.Reflector
        tlvs = []
        for t in question.tlvs:
            if t.type == stamp.COS:
                wanted = stamp.ClassOfService(t.value).dscp1
                value = bytes(stamp.ClassOfService(dscp1=wanted, dscp2=tos >> 2, ec2=tos & 3))
                tlvs.append(stamp.TLV(flags=0, type=t.type, value=value))
                self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, wanted << 2)
            elif t.type == stamp.DIRECT:
                sent = stamp.DirectMeasurement(t.value).s_txc
                value = bytes(
                    stamp.DirectMeasurement(s_txc=sent, r_rxc=self.arrivals, r_txc=self.answers + 1)
                )
                tlvs.append(stamp.TLV(flags=0, type=t.type, value=value))
            elif t.type in (stamp.PADDING, stamp.HMAC):
                tlvs.append(stamp.TLV(flags=0, type=t.type, value=t.value))
            else:
                tlvs.append(t)  # unknown here: as it came, with the U flag
        packet = layer(
            seq=self.answers, ts=stamp.now(), ssid=question.ssid, rx=received, sender_seq=question.seq,
            sender_ts=question.ts, sender_error=question.error, ttl=64, tlvs=tlvs,
        )  # fmt: skip
        self.answers += 1
        return stamp.sign(packet, KEY) if self.secure else bytes(packet)


@pytest.mark.parametrize("secure", [False, True], ids=["open", "authenticated"])
def test_our_sender_and_their_reflector(key_file: Path, secure: bool) -> None:
    theirs = TheirReflector(secure, lose={5, 11, 12}, mute={8})
    theirs.start()
    keys = ["--key-file", str(key_file)] if secure else []
    done = subprocess.run(
        [PROBE, "once", "--to", f"{HOST}:{theirs.port}", "--count", "30", "--interval", "20ms", "--deadline", "30s",
         "--size", "256", "--dscp", "46", "--json", *keys],
        capture_output=True, text=True, check=False, timeout=SECONDS * 2,
    )  # fmt: skip
    theirs.socket.close()
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert theirs.faults == []
    assert report["received"] == 26
    assert report["corrupt"] == 0
    # Told apart by the Direct Measurement TLV and the reflector's sequence numbers.
    assert {c: n for c, n in report["lost_by_cause"].items() if n} == {"forward": 3, "reverse": 1}
    assert report["rtt_seconds"]["samples"] == 0  # its stamps are not the kernel's
    assert report["rtt_application_seconds"]["samples"] == 26


@pytest.fixture
def ours(tmp_path: Path, key_file: Path) -> Iterator[tuple[int, int]]:
    """A running reflector of ours: an open port and an authenticated one."""
    config, log = tmp_path / "probe.yaml", tmp_path / "log"
    config.write_text(
        "node: a\nreflector:\n  listeners:\n"
        f'    - {{address: "{HOST}:{OPEN}"}}\n'
        f'    - {{address: "{HOST}:{AUTHENTICATED}", key_file: {key_file}}}\n'
    )
    with log.open("wb") as to:
        process = subprocess.Popen(
            [PROBE, "--config", config, "--web.listen-address", f"{HOST}:0"], stderr=to
        )
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.2)

            def answers() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    s.sendto(bytes(stamp.Sender(error=1)), (HOST, OPEN))
                    return bool(s.recv(100))
                except OSError:
                    return False

            eventually(answers, lambda: f"the reflector to answer; its log: {log.read_text()}")
        yield OPEN, AUTHENTICATED
    finally:
        process.terminate()
        process.wait(SECONDS)


def ask(s: socket.socket, packet: bytes, port: int, patience: float = SECONDS) -> bytes:
    s.settimeout(patience)
    s.sendto(packet, (HOST, port))
    return s.recv(65535)


@pytest.mark.parametrize("secure", [False, True], ids=["open", "authenticated"])
def test_their_sender_and_our_reflector(ours: tuple[int, int], secure: bool) -> None:
    port = ours[1] if secure else ours[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 46 << 2)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        for i in range(5):
            question = (stamp.SecureSender if secure else stamp.Sender)(
                seq=100 + 2 * i, ts=stamp.now(), error=0x8C01, ssid=0xBEEF,
                tlvs=[
                    stamp.TLV(type=stamp.COS, value=bytes(stamp.ClassOfService(dscp1=10))),
                    stamp.TLV(type=stamp.DIRECT, value=bytes(stamp.DirectMeasurement(s_txc=2 * i + 1))),
                    stamp.TLV(type=99, value=b"unknown"),
                    *([stamp.TLV(type=stamp.HMAC, value=bytes(16))] if secure else []),
                    stamp.TLV(type=stamp.PADDING, value=b"x" * 40),
                ],
            )  # fmt: skip
            sent = stamp.sign(question, KEY) if secure else bytes(question)
            s.settimeout(SECONDS)
            s.sendto(sent, (HOST, port))
            data, control, _, _ = s.recvmsg(65535, 256)
            assert len(data) == len(sent)
            assert control[0][2][0] >> 2 == 10  # what DSCP1 asked for
            answer = (stamp.SecureReflector if secure else stamp.Reflector)(data)
            assert bytes(answer) == data
            assert (answer.seq, answer.sender_seq, answer.ssid) == (i, question.seq, 0xBEEF)
            assert (answer.sender_ts, answer.sender_error, answer.ttl) == (question.ts, 0x8C01, 64)
            assert question.ts <= answer.rx <= answer.ts <= stamp.now()
            zeros = [v for f, v in answer.fields.items() if f.startswith("mbz")]
            assert not any(any(z) if isinstance(z, bytes) else z for z in zeros)
            assert not secure or stamp.verified(answer, KEY)
            cos = stamp.ClassOfService(stamp.find(answer, stamp.COS).value)
            assert (cos.dscp1, cos.dscp2, cos.ec2, cos.rp) == (10, 46, 0, 0)
            direct = stamp.DirectMeasurement(stamp.find(answer, stamp.DIRECT).value)
            assert (direct.s_txc, direct.r_rxc, direct.r_txc) == (2 * i + 1, i + 1, i + 1)
            assert {t.type: t.flags for t in answer.tlvs if t.flags} == {99: stamp.UNRECOGNIZED}
            assert stamp.find(answer, 99).value == b"unknown"
            assert stamp.find(answer, stamp.PADDING).value == b"x" * 40


def test_what_is_not_signed_by_a_key_is_not_answered(ours: tuple[int, int]) -> None:
    good = stamp.sign(stamp.SecureSender(seq=7), KEY)
    second = stamp.sign(stamp.SecureSender(seq=9), bytes.fromhex("77" * 32))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for bad in (
            stamp.sign(stamp.SecureSender(seq=8), STRANGER),
            bytes(112),
            good[:-1],
            bytes(stamp.Sender()),
        ):
            s.sendto(bad, (HOST, ours[1]))
        assert stamp.SecureReflector(ask(s, good, ours[1])).sender_seq == 7  # the first that is answered
        answer = stamp.SecureReflector(ask(s, second, ours[1]))
        assert answer.sender_seq == 9
        assert stamp.verified(answer, bytes.fromhex("77" * 32))  # with the key of the question


def test_tlvs_without_integrity_are_flagged(ours: tuple[int, int]) -> None:
    question = stamp.SecureSender(seq=1, tlvs=[stamp.TLV(type=stamp.DIRECT, value=bytes(12))])  # no HMAC TLV
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        answer = stamp.SecureReflector(ask(s, stamp.sign(question, KEY), ours[1]))
    assert [(t.type, t.flags, t.value) for t in answer.tlvs] == [(stamp.DIRECT, 0x20, bytes(12))]


def test_a_twamp_light_sender(ours: tuple[int, int]) -> None:
    """41 bytes, symmetrical (RFC 6038): the base of RFC 5357 section 4.1.2 and 27 bytes of padding."""
    question = bytes(stamp.Sender(seq=3, ts=stamp.now(), error=0x0101))[:14] + bytes(range(27))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        data = ask(s, question, ours[0])
        assert len(data) == 41
        answer = stamp.Reflector(data + bytes(3))
        assert (answer.sender_seq, answer.sender_ts, answer.sender_error) == (
            3,
            int.from_bytes(question[4:12]),
            0x0101,
        )
        assert (answer.ttl, answer.mbz1, answer.ssid) == (64, 0, 0)
        s.sendto(question[:40], (HOST, ours[0]))  # an answer would be larger
        s.settimeout(0.5)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            s.recv(100)
        assert time.monotonic() - started >= 0.4
