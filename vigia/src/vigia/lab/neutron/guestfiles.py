"""What a guest with a kernel of its own is made of: Debian's cloud kernel, BusyBox and vigia-probe.

It takes its address and MTU from the kernel's command line (``address=IP/PREFIX mtu=BYTES``), and commands by
its serial console.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from vigia.console import Steps
from vigia.host.source import built
from vigia.lab import packages
from vigia.lab.neutron.libvirt import PACKAGES

__all__ = ["INITRD", "KERNEL", "possible", "prepare", "root", "say", "write"]

KERNEL, INITRD = "vmlinuz", "initrd.gz"
"""What is written into a folder."""

_PACKAGES = ("busybox-static", *PACKAGES, "linux-image-cloud-amd64", "qemu-system-x86")
_MODULES = (
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
)
"""Of the kernel, in the order in which they are loaded."""

_INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module"; done < /modules/order
for word in $(cat /proc/cmdline); do
  case $word in address=*) address=${word#address=} ;; mtu=*) mtu=${word#mtu=} ;; esac
done
ip link set lo up
ip addr add "$address" dev eth0
ip link set eth0 mtu "$mtu" up
while :; do sh < /dev/ttyS0 > /dev/ttyS0 2>&1; done
"""


def prepare(steps: Steps) -> None:
    """Fetch and unpack what a guest is made of, unless it is there or the machine can have none."""
    where = root()
    if possible() and not where.exists():
        with steps.step("unpacking a guest's packages (95 MB to fetch)", expected=30) as done:
            count = packages.unpack_closure(_PACKAGES, where)
            done.append(f"unpacked {count} Debian packages below {where}")


def possible() -> bool:
    """Whether the machine can have guests."""
    return platform.machine() == "x86_64"


def root() -> Path:
    """Return where the packages are unpacked, whether they are or not. Raises VigiaError."""
    made_from = f"{' '.join(_PACKAGES)} {packages.release()}"
    return packages.cache() / f"guest-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"


def write(folder: Path) -> None:
    """Write the guest's kernel and its files: BusyBox, its network device's modules, and vigia-probe."""
    usr = root() / "usr"
    (kernel,) = (root() / "boot").glob("vmlinuz-*")
    shutil.copyfile(kernel, folder / KERNEL)  # libvirt sees the lab's files, and not everybody's cache
    (modules,) = (usr / "lib/modules").iterdir()
    files: dict[str, bytes] = {"init": _INIT.encode(), "bin/busybox": (usr / "bin/busybox").read_bytes()}
    for name in _MODULES:
        file = modules / "kernel" / f"{name}.ko"
        files[f"modules/{file.name}"] = file.read_bytes()
    files["modules/order"] = "".join(f"{name.rpartition('/')[2]}.ko\n" for name in _MODULES).encode()
    files["bin/vigia-probe"] = built("vigia-probe").read_bytes()
    (folder / INITRD).write_bytes(gzip.compress(b"".join(_archive(files)), 1))


def say(console: Path, command: str, timeout: float = 60.0) -> str:
    """Have the guest's shell run a command, by its console; return what comes of it, with the echo.

    Raises OSError if there is no guest, or it takes longer.
    """
    said, mark, end = b"", secrets.token_hex(4), time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(console))
        # The quotes are in the echo, and not in what is printed. QEMU takes in some characters at a time, and
        # forgets the others if it is left before.
        line.sendall(command.encode() + f'\necho vigia""{mark}\n'.encode())
        while f"vigia{mark}".encode() not in said:
            line.settimeout(max(end - time.monotonic(), 0.01))
            more = line.recv(4096)
            if not more:
                raise ConnectionError("the guest has ended")
            said += more
    return said.decode(errors="replace")


def _archive(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield a cpio archive as the kernel unpacks it: folders, files that may be executed, and its trailer."""
    folders = dict.fromkeys(name.rpartition("/")[0] for name in files)
    for number, folder in enumerate((f for f in folders if f), 1):
        yield _entry(number, folder, stat.S_IFDIR | 0o755, b"")
    for number, (name, content) in enumerate(files.items(), len(folders) + 1):
        yield _entry(number, name, stat.S_IFREG | 0o755, content)
    yield _entry(0, "TRAILER!!!", 0, b"")


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    """Return an entry in the format newc of cpio(5): thirteen numbers, name and content."""
    numbers = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = ("070701" + "".join(f"{n:08x}" for n in numbers)).encode() + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)
