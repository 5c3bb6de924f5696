"""A Session-Sender written from RFC 8762 (and from the session identifier and the
Follow-Up Telemetry TLV of RFC 8972). It sends packets to the given port on
127.0.0.1, takes the answers apart by the offsets of the RFC's figures, and prints
them as JSON.

Usage: plain_sender.py PORT COUNT plain|follow-up"""

import json
import socket
import struct
import sys
import time

NTP_UNIX = 2208988800


def main() -> None:
    port, count, extended = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "follow-up"
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(20)
    sock.connect(("127.0.0.1", port))
    answers = []
    for sequence in range(count):
        now = time.time()
        stamp = struct.pack("!II", int(now) + NTP_UNIX, int(now % 1 * 2**32))
        ssid = 0xBEEF if extended else 0
        packet = struct.pack("!I", sequence) + stamp + struct.pack("!HH", 0x0101, ssid) + bytes(28)
        assert len(packet) == 44
        if extended:
            packet += struct.pack("!BBH", 0x80, 7, 16) + bytes(16)
        sock.send(packet)
        data = sock.recv(65535)
        arrived = time.time()
        entry = {
            "size": len(data),
            "asked": len(packet),
            "sequence": struct.unpack("!I", data[0:4])[0],
            "error": struct.unpack("!H", data[12:14])[0],
            "ssid": struct.unpack("!H", data[14:16])[0],
            "sender_sequence": struct.unpack("!I", data[24:28])[0],
            "echo": data[28:36] == stamp and data[36:38] == b"\x01\x01",
            "zeros": data[38:40] == bytes(2) and data[41:44] == bytes(3),
            "ttl": data[40],
            "ordered": ntp(stamp) - 1e-6 <= ntp(data[16:24]) <= ntp(data[4:12]) <= arrived + NTP_UNIX + 1e-6,
        }
        if extended:
            flags, kind, length, followed = struct.unpack("!BBHI", data[44:52])
            entry.update(flags=flags, type=kind, length=length, followed=followed)
            entry.update(follow_up=ntp(data[52:60]), mode=data[60], sent=ntp(data[4:12]))
        answers.append(entry)
    json.dump(answers, sys.stdout)


def ntp(raw: bytes) -> float:
    seconds, fraction = struct.unpack("!II", raw)
    return seconds + fraction / 2**32


main()
