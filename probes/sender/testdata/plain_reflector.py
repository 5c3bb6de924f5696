"""A stateless Session-Reflector written from RFC 8762 alone: it knows no session
identifier and no TLV, and answers with 44 bytes or with the size of the request.

Usage: plain_reflector.py short|symmetric; prints its port."""

import socket
import struct
import sys
import time

NTP_UNIX = 2208988800


def ntp(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("!II", (whole + NTP_UNIX) & 0xFFFFFFFF, int((seconds - whole) * 2**32))


def main() -> None:
    symmetric = sys.argv[1] == "symmetric"
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    while True:
        data, peer = sock.recvfrom(65535)
        received = time.time()
        if len(data) < 44:
            continue
        sequence, stamp, error = struct.unpack("!I8sH", data[:14])
        reply = struct.pack("!I", sequence)  # stateless: the sender's number
        reply += ntp(time.time())
        reply += struct.pack("!HH", 0x0001, 0)  # error estimate, MBZ
        reply += ntp(received)
        reply += struct.pack("!I8sHH", sequence, stamp, error, 0)
        reply += struct.pack("!BBH", 64, 0, 0)  # TTL, MBZ
        assert len(reply) == 44
        if symmetric:
            reply += bytes(len(data) - 44)
        sock.sendto(reply, peer)


main()
