"""The machines of a cluster: namespaces whose first process is a script of this package."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from vigia.host import commands, netns, processes
from vigia.lab.kubernetes.places import (
    CONTROL,
    FABRIC,
    PODS,
    SERVICES,
    ClusterPlaces,
    Member,
    api_address,
    members,
)
from vigia.lab.kubernetes.programs import ClusterPrograms
from vigia.lab.model import Lab

__all__ = ["CONTROLLERS", "GROUPS", "make_groups", "prepare", "start_control", "start_node", "stop_node"]

GROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
"""Hierarchies of version 1 that a kubelet wants."""


def make_groups(lab: Lab) -> None:
    """Make a control group for each node in every hierarchy."""
    places = ClusterPlaces(lab.layout)
    for controller in CONTROLLERS:
        own = GROUPS / controller / places.group
        own.mkdir(exist_ok=True)
        if controller == "cpuset":  # a new one has no processors, and nothing can be moved there
            for key in ("cpuset.cpus", "cpuset.mems"):
                (own / key).write_text((own.parent / key).read_text())
            (own / "cgroup.clone_children").write_text("1")
        for node in lab.nodes:
            (own / node.name).mkdir(exist_ok=True)


def prepare(lab: Lab) -> None:
    """Write what the machines' programs read."""
    places = ClusterPlaces(lab.layout)
    for folder in (places.directory, places.logs, places.hold, places.data / "etcd"):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in ("control.sh", "node.sh", "supervise.sh"):
        script = resources.files("vigia.lab.kubernetes").joinpath(name).read_text()
        (places.directory / name).write_text(script)
    for member in members(lab):
        _write_configuration(places, member)


def start_control(lab: Lab, programs: ClusterPrograms) -> None:
    """Start the control plane, which goes on by itself."""
    places = ClusterPlaces(lab.layout)
    _detach(places, CONTROL, places.control_netns, "control.sh", _shared(lab, programs))


def start_node(lab: Lab, member: Member, programs: ClusterPrograms) -> None:
    """Start a node, which goes on by itself."""
    places = ClusterPlaces(lab.layout)
    own = {"NODE": member.name, "ADDRESS": member.address, "GROUP": f"{places.group}/{member.name}"}
    _detach(places, member.name, member.node.netns, "node.sh", {**_shared(lab, programs), **own})


def stop_node(member: Member) -> None:
    """End everything on a node at once, as a power cut does. Its namespace, and the link, stay."""
    with netns.held([member.node.netns]) as inodes:
        mine = [pid for pid in processes.all_pids() if netns.is_inside(pid, inodes)]
        processes.stop(mine, lambda pid: netns.is_inside(pid, inodes), grace=0.0)


def _shared(lab: Lab, programs: ClusterPrograms) -> dict[str, str]:
    places = ClusterPlaces(lab.layout)
    return {
        "LAB": str(places.directory),
        "DATA": str(places.data),
        "BIN": str(programs.bin),
        "ROOT": str(programs.root),
        "API": api_address(lab),
        "SERVICES": str(SERVICES),
        "DNS": str(SERVICES.network_address + 10),
    }


def _detach(places: ClusterPlaces, name: str, namespace: str, script: str, env: Mapping[str, str]) -> None:
    kinds = ["--mount", "--uts", "--ipc", "--pid", "--cgroup"]
    argv = ["nsenter", f"--net=/run/netns/{namespace}", "unshare", *kinds, "--fork", "--kill-child"]
    argv += ["bash", str(places.directory / script)]
    if script == "node.sh":  # cgroup namespaces begin at the group of the process that makes them
        argv = [sys.executable, "-m", "vigia.lab.kubernetes.joining", env["GROUP"], *argv]
    commands.detach(argv, env=env, log=places.logs / f"{name}.log")


def _write_configuration(places: ClusterPlaces, member: Member) -> None:
    """Write what a node's programs read."""
    folder = places.directory / member.name
    folder.mkdir(exist_ok=True)
    pki = places.certificates
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"{member.name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"{member.name}.key"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [str(SERVICES.network_address + 10)],
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv-node.conf",
        "failSwapOn": False,
        "maxPods": 250,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "10s",
    }
    proxy = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(PODS),
        "clientConnection": {"kubeconfig": str(pki / "proxy.conf")},
        # Those of connection tracking are the whole machine's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "metricsBindAddress": "127.0.0.1:10249",
    }
    documents = {"kubelet.yaml": kubelet, "proxy.yaml": proxy, **_networks(member)}
    for name, document in documents.items():
        (folder / name).write_text(
            yaml.safe_dump(document) if name.endswith(".yaml") else json.dumps(document)
        )


def _networks(member: Member) -> dict[str, Any]:
    """What a pod's two interfaces are made by, as files of CNI."""
    ipam = {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": str(member.pods)}]]}
    bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True, "mtu": 1450}
    network = {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {**bridge, "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "bandwidth", "capabilities": {"bandwidth": True}},
        ],
    }
    # Pods get it beside the first one: a second network without Multus.
    addresses = {
        "subnet": str(FABRIC),
        "rangeStart": str(member.fabric[10]),
        "rangeEnd": str(member.fabric[250]),
    }
    macvlan = {"type": "macvlan", "master": "eth1", "mode": "bridge"}
    second = {
        "cniVersion": "0.4.0",
        "name": "fabric",
        "plugins": [{**macvlan, "ipam": {**ipam, "ranges": [[addresses]]}}],
    }
    return {"10-lab.conflist": network, "20-fabric.conflist": second}
