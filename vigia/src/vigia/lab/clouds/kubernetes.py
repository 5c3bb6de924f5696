"""A cluster of Kubernetes: kubelet, containerd, kube-proxy on every node, a control plane beside."""

from __future__ import annotations

from pathlib import Path

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import source_root
from vigia.lab import preflight
from vigia.lab.clouds import Cloud
from vigia.lab.kubernetes import certificates, cluster, images, machines, network, programs, removal
from vigia.lab.kubernetes.places import members
from vigia.lab.model import Datapath, Lab

__all__ = ["CLOUD"]

_NEEDED = {
    "ip": "iproute2",
    "tc": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "nft": "nftables",
    "dpkg-deb": "dpkg",
    "ldd": "libc-bin",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
_HELM = 240.0  # seconds that it takes to build
_LONG = 3600.0


def _check(lab: Lab, datapath: Datapath) -> None:
    preflight.check_rights()
    preflight.check_programs(_NEEDED)
    preflight.check_filesystem(Path("/proc/filesystems").read_text())
    if len(lab.links) != 1 or lab.nodes[0].underlay.version != 4:
        raise VigiaError(
            "a cluster has one link between two nodes with IPv4; leave out --topology for one that fits"
        )
    unfit = [p.name for p in lab.topology.paths if p.kind != "direct"]
    if unfit:
        raise VigiaError(f"a cluster's nodes have no path {unfit[0]}; leave out --topology for one that fits")
    missing = [c for c in machines.CONTROLLERS if not (machines.GROUPS / c).is_dir()]
    if missing:
        raise VigiaError(
            f"the machine has no hierarchy of control groups for {missing[0]}: the nodes use version 1; "
            "boot with systemd.unified_cgroup_hierarchy=0"
        )


def _prepare(steps: Steps) -> None:
    programs.prepare(steps)
    if not (source_root() / "bin/helm").exists():
        with steps.step("building Helm", expected=_HELM):
            commands.run(["make", "-C", str(source_root()), "--no-print-directory", "helm"], timeout=_LONG)


def _images(lab: Lab, datapath: Datapath) -> str:
    removal.remove(lab.layout)  # what a reboot left on disk
    images.write_values(lab)
    return images.write(lab, programs.find())


def _network(lab: Lab, datapath: Datapath) -> str:
    return network.make(lab)


def _certificates(lab: Lab, datapath: Datapath) -> str:
    machines.prepare(lab)
    cluster.write_commands(lab, programs.find())
    return f"issued {certificates.write(lab)} certificates"


def _machines(lab: Lab, datapath: Datapath) -> str:
    machines.make_groups(lab)
    machines.start_control(lab, programs.find())
    for member in members(lab):  # they import the images meanwhile
        machines.start_node(lab, member, programs.find())
    return cluster.wait_for_api(lab)


def _nodes(lab: Lab, datapath: Datapath) -> str:
    return cluster.wait_for_nodes(lab)


def _furnish(lab: Lab, datapath: Datapath) -> str:
    return cluster.furnish(lab)


def _problems(lab: Lab) -> list[str]:
    return cluster.unready(lab, members(lab))


CLOUD = Cloud(
    check=_check,
    build=(
        ("making the images", _images),
        ("connecting the nodes", _network),
        ("issuing certificates", _certificates),
        ("starting the control plane", _machines),
        ("waiting for the nodes", _nodes),
        ("starting the cluster's DNS", _furnish),
    ),
    daemons=(),
    expected={
        "making the images": 30,
        "starting the control plane": 15,
        "waiting for the nodes": 20,
        "starting the cluster's DNS": 10,
    },
    prepare=_prepare,
    problems=_problems,
    remove=removal.remove,
    stack="helm install, see docs/how-to/kubernetes.md",
    topology="kubernetes",
)
