"""How a lab with Neutron comes into being, for each mechanism driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.lab import files, paths, preflight, underlay
from vigia.lab.clouds import Cloud, plain
from vigia.lab.model import Datapath, Lab
from vigia.lab.neutron import control, guest, guestfiles, health, machines, network, nodes, programs, tenants
from vigia.lab.neutron.places import Driver

__all__ = ["cloud"]

_NEEDED = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "ethtool": "ethtool",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ping": "iputils-ping",
    "tc": "iproute2",
    "unshare": "util-linux",
}


def cloud(driver: Driver, topology: str) -> Cloud:
    """Return the cloud of a mechanism driver."""
    with_driver = [
        ("starting MariaDB", control.start_database),
        *(
            [("starting OVN's databases", control.start_ovn)]
            if driver == "ovn"
            else [
                ("starting RabbitMQ", control.start_messages),
                ("starting Keystone", control.start_keystone),
            ]
        ),
        ("starting Neutron", control.start_neutron),
    ]
    return Cloud(
        check=lambda lab, datapath: _check(lab, datapath, driver),
        build=(
            ("mounting the BPF file system", lambda lab, datapath: underlay.mount_bpffs(lab)),
            ("connecting the nodes", lambda lab, datapath: network.make(lab)),
            *((doing, _step(start, driver)) for doing, start in with_driver),
            ("starting the nodes' switches", nodes.start_switches),
            (
                "starting the nodes' agents",
                lambda lab, datapath: nodes.start_agents(lab, driver, datapath),
            ),
            ("making projects, networks and ports", lambda lab, datapath: machines.make(lab, driver)),
            ("plugging the machines", lambda lab, datapath: machines.plug(lab, driver, datapath)),
            ("booting a guest", lambda lab, datapath: guest.boot(lab, driver, datapath)),
            ("testing all paths", _try),
            ("raising the buffers of Open vSwitch", plain.raise_buffers),
            ("writing the agents' files", _files),
        ),
        daemons=(),
        expected={
            "starting MariaDB": 5,
            "starting RabbitMQ": 8,
            "starting Keystone": 25,
            "starting Neutron": 25,
            "starting the nodes' agents": 15,
            "making projects, networks and ports": 10,
            "plugging the machines": 10,
            "booting a guest": 15,
        },
        prepare=_prepare,
        known=machines.known,
        problems=lambda lab: health.problems(lab, driver),
        topology=topology,
    )


def _prepare(steps: Steps) -> None:
    programs.prepare(steps)
    guestfiles.prepare(steps)


def _step(start: Callable[[Lab, Driver], str], driver: Driver) -> Callable[[Lab, Datapath], str]:
    return lambda lab, datapath: start(lab, driver)


def _check(lab: Lab, datapath: Datapath, driver: Driver) -> None:
    preflight.check_rights()
    switch = "linuxbridge" if driver == "linuxbridge" else "openvswitch"
    preflight.check_programs({**_NEEDED, **(preflight.OVS_PACKAGES if switch == "openvswitch" else {})})
    preflight.check_features(lab.layout, preflight.FEATURES)
    filesystems = Path("/proc/filesystems").read_text()
    preflight.check_filesystem(filesystems)
    if "overlay" not in filesystems.split():
        raise VigiaError("the kernel has no overlay file system; run: modprobe overlay")
    preflight.check_addresses(lab)
    _check_topology(lab, driver, switch)


def _check_topology(lab: Lab, driver: Driver, switch: str) -> None:
    """Raise VigiaError for what Neutron has no word for, or the driver cannot."""
    fit = "leave out --topology for one that fits"
    wrong = [n.name for n in lab.nodes if n.switch != switch]
    if wrong:
        raise VigiaError(f"node {wrong[0]} needs switch: {switch} with this cloud; {fit}")
    tunnels = {"ovn": ("geneve",), "openvswitch": ("vxlan", "gre"), "linuxbridge": ("vxlan",)}[driver]
    for path in lab.topology.paths:
        if path.kind not in ("direct", "overlay", "local") or path.mode != "normal" or path.match is not None:
            raise VigiaError(f"path {path.name} is nothing that Neutron makes; {fit}")
        if path.kind == "overlay" and path.encap not in tunnels:
            raise VigiaError(f"path {path.name}: this cloud has {', '.join(tunnels)} alone; {fit}")


def _try(lab: Lab, datapath: Datapath) -> str:
    here = machines.known(lab)
    paths.first_packets(paths.tunnels(here))
    wanted = paths.targets(here)
    paths.first_packets(wanted)
    return f"all paths carry packets ({len(wanted)} pairs)"


def _files(lab: Lab, datapath: Datapath) -> str:
    here = machines.known(lab)
    tenants.write_hosts(here)
    count = files.write(here, datapath, change=lambda name, content: tenants.by_project(here, name, content))
    return f"wrote {count} files below {lab.layout.directory}"
