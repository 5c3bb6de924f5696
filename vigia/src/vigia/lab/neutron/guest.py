"""A machine with a kernel of its own at one of Neutron's ports: QEMU without KVM, a domain of libvirt.

All other machines of a lab are namespaces. The guest is Debian's cloud kernel with BusyBox and vigia-probe,
and takes commands by its serial console. It is the first tenant's, on the first node.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab import naming
from vigia.lab.model import Datapath, Endpoint, Lab
from vigia.lab.neutron import guestfiles, machines
from vigia.lab.neutron.api import Neutron
from vigia.lab.neutron.libvirt import Domain, Libvirt
from vigia.lab.neutron.machines import Known
from vigia.lab.neutron.places import Driver, NeutronPlaces
from vigia.lab.neutron.services import until

__all__ = ["DOMAIN", "Guest", "boot", "libvirt", "read", "say"]

DOMAIN = "instance-00000001"
"""What libvirt calls the guest."""

_MEMORY, _MTU = 192, 1500


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
    if not guestfiles.possible() or peer is None:
        return ""
    if found is None:
        raise VigiaError("the cloud has no networks yet")
    places, neutron = NeutronPlaces(lab.layout), Neutron(NeutronPlaces(lab.layout), driver)
    made = _made(lab, neutron, found, peer)
    _record(lab).write_text(json.dumps(asdict(made), indent=1) + "\n")
    guestfiles.write(places.directory)
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
    return Libvirt(lab.layout, lab.node(made.node), guestfiles.root())


def say(lab: Lab, command: str, timeout: float = 60.0) -> str:
    """Have the guest's shell run a command; see guestfiles.say."""
    return guestfiles.say(_console(NeutronPlaces(lab.layout)), command, timeout)


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
        kernel=places.directory / guestfiles.KERNEL,
        initrd=places.directory / guestfiles.INITRD,
        command_line=f"console=ttyS0 quiet panic=-1 address={made.address} mtu={_MTU}",
        console=_console(places),
    )
