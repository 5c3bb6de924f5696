"""Bringing a lab up, all of it or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.host.signals import Deferred, deferred
from vigia.lab import (
    buffers,
    bypass,
    down,
    files,
    ipsec,
    linuxbridge,
    openvswitch,
    paths,
    preflight,
    state,
    status,
    underlay,
)
from vigia.lab.model import Datapath, Lab
from vigia.lab.preflight import Wish
from vigia.lab.state import Phase, State

__all__ = ["BUILD", "bring_up"]


def bring_up(lab: Lab, wish: Wish, steps: Steps) -> State:
    """Bring a lab up, or find that it is up as the topology says, and return its state.

    What an interrupted run left is removed first. On failure, and on SIGINT,
    SIGTERM or SIGHUP, what was made is removed. Raises VigiaError.
    """
    preflight.check_rights()
    with state.locked(lab.layout), deferred() as stop:
        present = state.read(lab.layout)
        if present and present.phase == "up" and netns.names(lab.layout.prefix):
            return _already_up(lab, present, wish, steps)
        if down.leftovers(lab.layout):
            with steps.step("removing what an interrupted run left") as done:
                done.append(f"removed what an interrupted run left: {down.remove(lab.layout)}")
        return _make(lab, wish, steps, stop)


def _already_up(lab: Lab, present: State, wish: Wish, steps: Steps) -> State:
    again = "to replace it, run: vigia lab down --lab " + lab.name
    if present.lab.topology != lab.topology:
        raise VigiaError(f"lab {lab.name} is up with another topology; {again}")
    if wish not in ("auto", present.datapath):
        raise VigiaError(f"lab {lab.name} is up with the {present.datapath} datapath; {again}")
    with steps.step(f"checking lab {lab.name}, which is up") as done:
        report = status.examine(present)
        if report.problems:
            raise VigiaError(f"lab {lab.name} is up but not well: {report.problems[0]}; {again}")
        done.append(f"lab {lab.name} is already up, as the topology says")
    return present


def _make(lab: Lab, wish: Wish, steps: Steps, stop: Deferred) -> State:
    with steps.step("checking rights, programs, kernel and addresses") as done:
        datapath = preflight.choose_datapath(wish)
        preflight.check(lab, datapath)
        done.append("checked rights, programs, kernel and addresses")
    stop.check()
    try:
        _record("starting", lab, datapath)
        for doing, build in BUILD:
            with steps.step(doing) as done:
                done.append(build(lab, datapath))
            stop.check()
        present = _record("up", lab, datapath)
    except BaseException:
        with steps.step("removing what was made") as done:
            done.append(f"removed what was made: {down.remove(lab.layout)}")
        raise
    steps.line(f"lab {lab.name} is up")
    return present


def _record(phase: Phase, lab: Lab, datapath: Datapath) -> State:
    lab.layout.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = State(phase, lab, datapath, time.time())
    state.write(new)
    return new


def _mount(lab: Lab, datapath: Datapath) -> str:
    lab.layout.bpffs.mkdir(mode=0o700)
    commands.run(["mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(lab.layout.bpffs)])
    return f"mounted {lab.layout.bpffs}"


def _namespaces(lab: Lab, datapath: Datapath) -> str:
    underlay.make_namespaces(lab)
    underlay.make_links(lab)
    endpoints = sum(1 for _ in lab.endpoints)
    return f"made {len(lab.nodes)} nodes, {endpoints} virtual machines, {len(lab.links)} wires"


def _wires(lab: Lab, datapath: Datapath) -> str:
    for link in lab.links:
        underlay.make_wire(link)
    for node in lab.nodes:
        underlay.make_node(node)
    rates = ", ".join(f"{link.name} {link.rate * 8 / 1e6:g} Mbit/s" for link in lab.links)
    return f"joined the nodes: {rates}"


def _machines(lab: Lab, datapath: Datapath) -> str:
    by_ovs = {n.name for n in lab.nodes if n.switch == "openvswitch"}
    for endpoint in lab.endpoints:
        userspace = endpoint.node in by_ovs and datapath == "userspace"
        underlay.make_endpoint(endpoint, checksum_offload=not userspace)
    return "brought up the virtual machines"


def _bridges(lab: Lab, datapath: Datapath) -> str:
    nodes = [n for n in lab.nodes if n.switch == "linuxbridge"]
    for node in nodes:
        linuxbridge.make_switch(node)
    return f"Linux bridge on {_names(n.name for n in nodes)}"


def _ovs(lab: Lab, datapath: Datapath) -> str:
    nodes = [n for n in lab.nodes if n.switch == "openvswitch"]
    for node in nodes:
        openvswitch.make_switch(node, lab.layout, datapath)
    return f"Open vSwitch ({datapath} datapath) on {_names(n.name for n in nodes)}"


def _names(names: Iterator[str]) -> str:
    return ", ".join(names) or "no node"


def _stations(lab: Lab, datapath: Datapath) -> str:
    made = bypass.make(lab)
    ipsec.start(lab)
    protected = sum(s.kind == "ipsec" for node in lab.nodes for s in node.stations) // 2
    if not made and not protected:
        return ""
    return f"{made} machines beside the switches, {protected} paths under IPsec" + (
        f" ({ipsec.implementation()})" if protected else ""
    )


def _files(lab: Lab, datapath: Datapath) -> str:
    return f"wrote {files.write(lab, datapath)} files below {lab.layout.directory}"


def _try(lab: Lab, datapath: Datapath) -> str:
    paths.first_packets(paths.tunnels(lab))  # ovs-vswitchd drops what it knows no neighbour for
    wanted = paths.targets(lab)
    paths.first_packets(wanted)
    return f"packets pass on all paths ({len(wanted)} pairs)"


def _buffers(lab: Lab, datapath: Datapath) -> str:
    """Comes after the first packets: only then ovs-vswitchd has the socket that it sends through."""
    nodes = [n for n in lab.nodes if n.switch == "openvswitch"]
    if datapath == "kernel" or not nodes:
        return "no buffers to raise: the kernel forwards"
    pids = [openvswitch.vswitchd(lab.layout, node.name) for node in nodes]
    sockets = sum(buffers.raise_all(pid) for pid in pids)
    return f"buffers of {sockets} packet sockets of ovs-vswitchd are large enough"


BUILD: tuple[tuple[str, Callable[[Lab, Datapath], str]], ...] = (
    ("mounting the BPF file system", _mount),
    ("making namespaces", _namespaces),
    ("joining the nodes", _wires),
    ("bringing up the virtual machines", _machines),
    ("setting up the Linux bridges", _bridges),
    ("starting Open vSwitch", _ovs),
    ("writing the agents' files", _files),
    ("setting up what bypasses the switches, and IPsec", _stations),
    ("trying all paths", _try),
    ("raising the buffers of Open vSwitch", _buffers),
)
