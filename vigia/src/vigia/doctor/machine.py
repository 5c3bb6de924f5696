"""Ports and the clock."""

from __future__ import annotations

import ctypes
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from vigia.doctor.finding import Finding, fault, fine, warning

__all__ = ["PORTS", "Timex", "check", "clock", "ports", "read_clock"]

PORTS = {
    ("tcp", 9871): "vigia-probe",
    ("udp", 862): "vigia-probe",
    ("tcp", 9872): "vigia-exporter",
    ("tcp", 9873): "vigia-enforcer",
    ("tcp", 9874): "isolation-agent",
    ("tcp", 9875): "vigia-compare",
    ("tcp", 9090): "prometheus",
    ("tcp", 9093): "alertmanager",
    ("tcp", 9100): "node_exporter",
    ("tcp", 3000): "grafana",
}
"""Default ports and whose they are."""

_NAMES = {"prometheus-aler": "alertmanager", "prometheus-node": "node_exporter", "grafana-server": "grafana"}
"""Programs that Debian's packages and the kernel, which keeps 15 characters, call otherwise."""

_TIME_ERROR = 5  # adjtimex(2)
_STA_UNSYNC = 0x40


def check(address: str) -> Iterator[Finding]:
    """Look at the machine."""
    yield from ports(address)
    yield clock(read_clock())


def ports(address: str) -> Iterator[Finding]:
    """Try to listen on each default port."""
    for (protocol, number), program in PORTS.items():
        kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
        where = f"{address}:{number}/{protocol}"
        with socket.socket(socket.AF_INET, kind) as s:
            if protocol == "tcp":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((address, number))
                if protocol == "tcp":
                    s.listen(1)
            except OSError as e:
                yield _refused(where, program, number, protocol, e)
            else:
                yield fine("ports", f"{where} is free for {program}", program)


def _refused(where: str, program: str, number: int, protocol: str, e: OSError) -> Finding:
    if e.errno == errno.EACCES:
        fix = f"run {program} with CAP_NET_BIND_SERVICE"
        return fault("ports", f"{where} may not be used by this user", fix, program)
    if e.errno != errno.EADDRINUSE:
        return fault("ports", f"{where} cannot be used: {e.strerror}", "choose another address", program)
    holder = _holder(number, protocol)
    if holder == program:
        return fine("ports", f"{where} is served by {program}", program)
    return fault(
        "ports",
        f"{where} is taken by {holder or 'another program'}, and {program} needs it",
        f"stop what listens there (ss -lnp 'sport = :{number}'), or give {program} another port",
        program,
    )


def _holder(number: int, protocol: str) -> str:
    """Return the name of a program that has the port, empty if it cannot be told."""
    inodes = set()
    for table in (f"/proc/net/{protocol}", f"/proc/net/{protocol}6"):
        for line in Path(table).read_text().splitlines()[1:] if Path(table).exists() else ():
            fields = line.split()
            listening = protocol == "udp" or fields[3] == "0A"
            if listening and int(fields[1].rsplit(":", 1)[1], 16) == number:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(fd.readlink()) in inodes for fd in (process / "fd").iterdir()):
                name = (process / "comm").read_text().strip()
                return _NAMES.get(name, name)
        except OSError:
            continue  # it has ended, or is not ours to look at
    return ""


class Timex(ctypes.Structure):
    """struct timex of linux/timex.h."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 26),
    ]


def read_clock() -> tuple[int, Timex]:
    """Return the clock's state and figures (adjtimex(2)); changes nothing. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = Timex()
    state = libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, "adjtimex")
    return state, timex


def clock(read: tuple[int, Timex]) -> Finding:
    """Tell whether the clock is disciplined. Round trips do not need it; one-way delays do."""
    state, timex = read
    if state == _TIME_ERROR or timex.status & _STA_UNSYNC:
        return warning(
            "clock",
            "the clock is not synchronised; one-way delays are not exported, everything else works",
            "apt-get install chrony",
            "vigia-probe",
        )
    return fine("clock", f"synchronised, at most {timex.maxerror} µs off", "vigia-probe")
