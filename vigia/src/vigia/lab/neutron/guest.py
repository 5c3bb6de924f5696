"""A machine with a kernel of its own at one of Neutron's ports: QEMU without KVM, a domain of libvirt.

All other machines of a lab are namespaces. The guest is Debian's cloud kernel with BusyBox and vigia-probe,
and takes commands by its serial console. It is the first tenant's, on the first node.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import secrets
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import built
from vigia.lab import naming, packages
from vigia.lab.model import Datapath, Endpoint, Lab
from vigia.lab.neutron import machines
from vigia.lab.neutron.api import Neutron
from vigia.lab.neutron.libvirt import PACKAGES, Domain, Libvirt
from vigia.lab.neutron.machines import Known
from vigia.lab.neutron.places import Driver, NeutronPlaces
from vigia.lab.neutron.services import until

__all__ = ["DOMAIN", "Guest", "boot", "libvirt", "prepare", "read", "say"]

DOMAIN = "instance-00000001"
"""What libvirt calls the guest."""

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

_MEMORY, _MTU = 192, 1500
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


@dataclass(frozen=True)
class Guest:
    """The guest of a lab that is up."""

    node: str
    tenant: str
    port: str
    network: str
    device: str
    mac: str
    address: str
    """With its prefix length."""
    workload: str


def prepare(steps: Steps) -> None:
    """Fetch and unpack what a guest is made of, unless it is there or the machine can have none."""
    root = _root()
    if _possible() and not root.exists():
        with steps.step("unpacking a guest's packages (95 MB to fetch)", expected=30) as done:
            count = packages.unpack_closure(_PACKAGES, root)
            done.append(f"unpacked {count} Debian packages below {root}")


def read(lab: Lab) -> Guest | None:
    """Return the lab's guest, None without one."""
    try:
        return Guest(**json.loads(_record(lab).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def boot(lab: Lab, driver: Driver, datapath: Datapath) -> str:
    """Make a port, and have libvirt plug a guest into it as Nova does; wait until it answers."""
    here, found = machines.known(lab), machines.read_known(lab)
    peer = _peer(here)
    if not _possible() or peer is None:
        return ""
    if found is None:
        raise VigiaError("the cloud has no networks yet")
    places, neutron = NeutronPlaces(lab.layout), Neutron(NeutronPlaces(lab.layout), driver)
    made = _made(lab, neutron, found, peer)
    _record(lab).write_text(json.dumps(asdict(made), indent=1) + "\n")
    _write_kernel(places)
    its = libvirt(lab, made)
    its.start()
    its.boot(_domain(here, made, found, peer, datapath))
    address = made.address.partition("/")[0]

    def answers() -> bool:
        argv = ["ping", "-n", "-q", "-c", "1", "-W", "1", address]
        return commands.run(argv, netns=peer.netns, check=False).status == 0

    until(places, "the guest", answers)
    until(places, "the guest's port", lambda: neutron.listed("ports", id=made.port, status="ACTIVE") != [])
    return f"a guest of {made.tenant} runs on {made.node} ({address}, a kernel of its own, by libvirt)"


def libvirt(lab: Lab, made: Guest) -> Libvirt:
    """Return what runs a guest."""
    return Libvirt(lab.layout, lab.node(made.node), _root())


def say(lab: Lab, command: str, timeout: float = 60.0) -> str:
    """Have the guest's shell run a command, by its serial console; return what comes of it, with the echo.

    Raises OSError if there is no guest, or it takes longer.
    """
    said, mark, end = b"", secrets.token_hex(4), time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as console:
        console.connect(str(_console(NeutronPlaces(lab.layout))))
        # The quotes are in the echo, and not in what is printed. QEMU takes in some characters at a time, and
        # forgets the others if it is left before.
        console.sendall(command.encode() + f'\necho vigia""{mark}\n'.encode())
        while f"vigia{mark}".encode() not in said:
            console.settimeout(max(end - time.monotonic(), 0.01))
            more = console.recv(4096)
            if not more:
                raise ConnectionError("the guest has ended")
            said += more
    return said.decode(errors="replace")


def _possible() -> bool:
    return platform.machine() == "x86_64"


def _root() -> Path:
    made_from = f"{' '.join(_PACKAGES)} {packages.release()}"
    return packages.cache() / f"guest-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"


def _record(lab: Lab) -> Path:
    return NeutronPlaces(lab.layout).directory / "guest.json"


def _console(places: NeutronPlaces) -> Path:
    return places.directory / "guest.sock"


def _peer(lab: Lab) -> Endpoint | None:
    """Return a machine of the tenant and on the node of the guest."""
    found = (e for e in lab.nodes[0].endpoints if e.tenant != naming.INFRA and e.address.version == 4)
    return next(found, None)


def _made(lab: Lab, neutron: Neutron, found: Known, peer: Endpoint) -> Guest:
    """Make the guest's port, beside its peer's."""
    network, workload = found.network_of(peer), str(uuid.uuid5(uuid.NAMESPACE_DNS, f"guest.{lab.name}.vigia"))
    port = neutron.add(
        "port",
        name="guest",
        network_id=network,
        project_id=found.projects[peer.tenant],
        device_owner="compute:nova",
        device_id=workload,
        **{"binding:host_id": peer.node},
    )
    (address,) = (ip for a in port["fixed_ips"] if ":" not in (ip := str(a["ip_address"])))
    return Guest(
        node=peer.node,
        tenant=peer.tenant,
        port=port["id"],
        network=network,
        device=f"tap{port['id'][:11]}",
        mac=port["mac_address"],
        address=f"{address}/{peer.address.network.prefixlen}",
        workload=workload,
    )


def _domain(lab: Lab, made: Guest, found: Known, peer: Endpoint, datapath: Datapath) -> Domain:
    places, switched = NeutronPlaces(lab.layout), lab.node(made.node).has("openvswitch")
    return Domain(
        name=DOMAIN,
        shown="guest",
        workload=made.workload,
        tenant=made.tenant,
        project=found.projects[made.tenant],
        user=uuid.uuid5(uuid.NAMESPACE_DNS, f"admin.{lab.name}.vigia").hex,
        port=made.port,
        device=made.device,
        mac=made.mac,
        address=made.address.partition("/")[0],
        bridge="br-int" if switched else peer.bridge,
        switched=switched,
        # Open vSwitch in user space takes no frames whose checksums the guest leaves to the device.
        offloads=not (switched and datapath == "userspace"),
        mtu=_MTU,
        memory=_MEMORY,
        kernel=_kernel(places),
        initrd=_initrd(places),
        command_line=f"console=ttyS0 quiet panic=-1 address={made.address} mtu={_MTU}",
        console=_console(places),
    )


def _kernel(places: NeutronPlaces) -> Path:
    return places.directory / "vmlinuz"


def _initrd(places: NeutronPlaces) -> Path:
    return places.directory / "initrd.gz"


def _write_kernel(places: NeutronPlaces) -> None:
    """Write the guest's kernel and its files: BusyBox, its network device's modules, and vigia-probe."""
    (kernel,) = (_root() / "boot").glob("vmlinuz-*")
    shutil.copyfile(kernel, _kernel(places))  # libvirt sees the lab's files, and not everybody's cache
    root = _root() / "usr"
    (modules,) = (root / "lib/modules").iterdir()
    files: dict[str, bytes] = {"init": _INIT.encode(), "bin/busybox": (root / "bin/busybox").read_bytes()}
    for name in _MODULES:
        file = modules / "kernel" / f"{name}.ko"
        files[f"modules/{file.name}"] = file.read_bytes()
    files["modules/order"] = "".join(f"{name.rpartition('/')[2]}.ko\n" for name in _MODULES).encode()
    files["bin/vigia-probe"] = built("vigia-probe").read_bytes()
    _initrd(places).write_bytes(gzip.compress(b"".join(_archive(files)), 1))


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
