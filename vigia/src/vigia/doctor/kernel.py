"""Rights and kernel features."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vigia.doctor.finding import Finding, absent, fault, fine, warning
from vigia.host import commands

__all__ = [
    "FEATURES",
    "NodeFeature",
    "bpf_file_system",
    "capabilities",
    "check",
    "features",
    "psi",
    "trace_file_system",
    "type_information",
    "version",
]

NEEDED = {
    "vigia-probe": ("CAP_NET_RAW", "CAP_NET_BIND_SERVICE", "CAP_SYS_ADMIN"),
    "vigia-exporter": ("CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"),
    "vigia-enforcer": ("CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"),
}
"""Capabilities of the programs (capabilities(7)). CAP_SYS_ADMIN: to enter namespaces."""

_BITS = {
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
_TCX = (6, 6)
_OLDEST = (5, 18)  # bpf_xdp_get_buff_len (bpf-helpers(7))
_BPF_AGENTS = ("vigia-exporter", "vigia-enforcer")


@dataclass(frozen=True)
class NodeFeature:
    """Something that the kernel must be able to make, tried in a network namespace of its own."""

    module: str
    option: str
    command: str
    use: str
    concerns: tuple[str, ...]


FEATURES = (
    NodeFeature(
        "sch_ingress", "CONFIG_NET_SCH_INGRESS", "tc qdisc add dev lo clsact", "counting", _BPF_AGENTS
    ),
    NodeFeature(
        "sch_htb", "CONFIG_NET_SCH_HTB", "tc qdisc add dev lo root htb", "guarantees", ("vigia-enforcer",)
    ),
    NodeFeature(
        "ifb", "CONFIG_IFB", "ip link add name t0 type ifb", "guarantees inbound", ("vigia-enforcer",)
    ),
)
"""What the agents make beside BPF programs."""

_PACKAGES = {"unshare": "util-linux", "tc": "iproute2", "ip": "iproute2"}
"""Programs that try it, and Debian's packages that have them."""


def check(pins: Path) -> Iterator[Finding]:
    """Look at the machine; pins is the folder of the agents' BPF objects (bpf.pin_dir)."""
    yield from capabilities(Path("/proc/self/status").read_text())
    yield version(os.uname().release)
    yield from features(FEATURES)
    yield type_information(Path("/sys/kernel/btf/vmlinux"))
    yield bpf_file_system(Path("/proc/self/mounts").read_text(), pins)
    yield trace_file_system(Path("/proc/self/mounts").read_text())
    yield psi(Path("/proc/pressure/cpu"))


def capabilities(status: str) -> Iterator[Finding]:
    """Compare what a process may do (/proc/PID/status) with what the programs need."""
    held = int(re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    for program, needed in NEEDED.items():
        missing = [name for name in needed if not held >> _BITS[name] & 1]
        if not missing:
            yield fine("capabilities", f"{program} would have all it needs", program)
            continue
        yield fault(
            "capabilities",
            f"{program} would lack {', '.join(missing)}",
            f"run it as root, or by its unit: systemctl start {program}",
            program,
        )


def version(release: str) -> Finding:
    """Judge the kernel by its release, for example 6.1.0-18-amd64."""
    match = re.match(r"(\d+)\.(\d+)", release)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if number >= _TCX:
        return fine("kernel", f"Linux {release} has TCX links", *_BPF_AGENTS)
    if number >= _OLDEST:
        return fine("kernel", f"Linux {release}: programs are attached by clsact filters", *_BPF_AGENTS)
    return fault(
        "kernel",
        f"Linux {release} is older than 5.18 and lacks what the BPF programs need",
        "install a newer kernel (apt-get install linux-image-amd64 on Debian 12 or later), and restart",
        *_BPF_AGENTS,
    )


def features(wanted: Iterable[NodeFeature]) -> Iterator[Finding]:
    """Try what the kernel must be able to make; nothing of it stays."""
    for feature in wanted:
        argv = ["unshare", "--net", *feature.command.split()]
        lacking = [p for p in _PACKAGES if p in argv and not commands.find(p)]
        if lacking:
            # unshare would fail as if the kernel had refused.
            found = f"{feature.module} cannot be tested without {' and '.join(lacking)}"
            fix = f"apt-get install {' '.join(_PACKAGES[p] for p in lacking)}"
            yield warning("features", found, fix, *feature.concerns)
            continue
        done = commands.run(argv, check=False)
        if done.status == 0:
            yield fine("features", f"{feature.module} works, for {feature.use}", *feature.concerns)
        elif os.geteuid() != 0:
            found = f"{feature.module}, for {feature.use}, can only be tested by root"
            yield warning("features", found, "run vigia doctor as root", *feature.concerns)
        else:
            yield warning(
                "features",
                f"the kernel has no {feature.module}: no {feature.use} ({done.stderr.strip()})",
                f"modprobe {feature.module}, or use a kernel with {feature.option}",
                *feature.concerns,
            )


def type_information(file: Path) -> Finding:
    """Look for the kernel's BTF."""
    if os.access(file, os.R_OK):
        return fine("btf", f"{file} is there", *_BPF_AGENTS)
    return fault("btf", f"{file} cannot be read", "use a kernel with CONFIG_DEBUG_INFO_BTF=y", *_BPF_AGENTS)


def _mounted(mounts: str, kind: str, place: str) -> bool:
    fields = (line.split() for line in mounts.splitlines())
    return any(f[2] == kind and f[1] == place for f in fields if len(f) > 2)


def bpf_file_system(mounts: str, pins: Path) -> Finding:
    """Tell whether a folder for pins is on a BPF file system, by /proc/PID/mounts (the last there counts)."""
    fields = [line.split() for line in mounts.splitlines()]
    kinds = {f[1]: f[2] for f in fields if len(f) > 2}
    above = next(str(p) for p in (pins, *pins.parents) if str(p) in kinds or p == p.parent)
    if kinds.get(above) == "bpf":
        return fine("bpffs", f"{pins} is on the BPF file system {above}", *_BPF_AGENTS)
    others = ", ".join(sorted(place for place, kind in kinds.items() if kind == "bpf"))
    found = f"{pins} is not on a BPF file system"
    if others:
        found += f"; there is one at {others}, for agents with pin_dir below it (--pin-dir looks there)"
    default = Path("/sys/fs/bpf")
    place = default if pins.is_relative_to(default) else pins
    return fault("bpffs", found, f"mount -t bpf bpf {place}", *_BPF_AGENTS)


def trace_file_system(mounts: str) -> Finding:
    """Look for tracefs, where the names of drop reasons are read if BTF has none."""
    if any(_mounted(mounts, "tracefs", p) for p in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")):
        return fine("tracefs", "tracefs is mounted", "vigia-exporter")
    return warning(
        "tracefs",
        "tracefs is not mounted; drop reasons are named by the kernel's type information alone",
        "mount -t tracefs tracefs /sys/kernel/tracing",
        "vigia-exporter",
    )


def psi(file: Path) -> Finding:
    """Look for pressure stall information, by which the probe knows that the host is short of CPU."""
    if os.access(file, os.R_OK):
        return fine("psi", f"{file} is there", "vigia-probe")
    return absent("psi", f"{file} is not there; start the kernel with psi=1 to have it", "vigia-probe")
