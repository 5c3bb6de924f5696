"""Making and removing the lab t1: whole or not at all, after any crash, and nothing else touched."""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.host import commands, netns, processes
from vigia.lab import buffers, down, openvswitch, state, status, up
from vigia.lab.clouds import plain
from vigia_testing import DEADLINE, eventually

pytestmark = pytest.mark.netns
LONG = pytest.mark.long

Children = list[subprocess.Popen[Any]]
Look = Callable[[str], Any]
VIGIA = str(Path(sys.executable).with_name("vigia"))


def test_up_and_down_leave_the_machine_as_it_was(
    lab_t1: Any, machine: Look, wait_until: Callable[..., None]
) -> None:
    before = machine("t1")
    done = lab_t1.up()
    assert done.status == 0, done.stderr
    during = machine("t1")
    assert len(during.namespaces) - len(before.namespaces) == 24
    assert len(during.processes) == 4
    assert during.run == ["t1"]
    assert len(during.mounts) > len(before.mounts)
    for kept in ("links", "qdiscs", "rules", "settings", "pins"):
        assert getattr(during, kept) == getattr(before, kept), (
            f"{kept} of the machine change while a lab is up"
        )
    done = lab_t1.down()
    assert done.status == 0, done.stderr
    assert machine("t1") == before


def test_every_step_is_a_line_with_its_time(lab_t1: Any) -> None:
    done = lab_t1.up()
    lines = done.stdout.splitlines()
    datapath = state.running("t1").datapath
    sockets = "raised the buffers of 16 packet sockets of ovs-vswitchd"
    assert all(re.fullmatch(r" *\d+\.\d\d s  .+", line) for line in lines)
    assert [re.sub(r"^ *\S+ s  ", "", line) for line in lines] == [
        "checked rights, programs, kernel and addresses",
        "mounted /run/vigia/t1/bpffs",
        "created 4 nodes, 18 virtual machines, 2 links",
        "connected the nodes: lb 200 Mbit/s, ovs 200 Mbit/s",
        "brought up the virtual machines",
        "Linux bridge on lb1, lb2",
        f"Open vSwitch ({datapath} datapath) on ovs1, ovs2",
        "wrote 27 files below /run/vigia/t1",
        "all paths carry packets (11 pairs)",
        sockets if datapath == "userspace" else "no buffers to raise: the kernel forwards",
        "lab t1 is up",
    ]
    done = lab_t1.down()
    assert re.fullmatch(
        r" *\d+\.\d\d s  removed lab t1: 24 namespaces, 4 processes, 1 mount, the run directory\n",
        done.stdout,
    )
    done = lab_t1.down()
    assert (done.status, done.stdout[-34:]) == (0, "lab t1 is not up: nothing to remove\n"[-34:])


def test_json(lab_t1: Any) -> None:
    done = lab_t1.up()
    again = lab_t1.up_again("--json")
    assert "already up" in again.stderr
    for key, value in {
        "lab": "t1",
        "directory": "/run/vigia/t1",
        "nodes": {"lb1": "127.78.0.1", "lb2": "127.78.0.2", "ovs1": "127.78.0.3", "ovs2": "127.78.0.4"},
    }.items():
        assert again.json[key] == value
    gone = lab_t1.vigia("lab", "down", "--json")
    assert (gone.json["lab"], gone.json["removed"], len(gone.json["namespaces"])) == ("t1", True, 24)
    assert len(gone.json["processes"]) == 4
    assert lab_t1.vigia("lab", "down", "--json").json["removed"] is False
    assert done.status == 0


def start_up(lab: Any, children: Children, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [VIGIA, "lab", "up", "--topology", str(lab.file)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    children.append(child)
    return child


def start_held(lab: Any, children: Children) -> subprocess.Popen[str]:
    """Bring the lab up no further than a step beyond what was read of it, however late it is read.

    Its pipe has room for one write, and each line is one.
    """
    readable, writable = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
    fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, os.sysconf("SC_PAGE_SIZE"))
    try:
        child = start_up(lab, children, writable)
    finally:
        os.close(writable)
        said = os.fdopen(readable)
    child.stdout = said
    return child


STEPS = [
    "checked rights",
    "mounted",
    "created 4 nodes",
    "connected the nodes",
    "brought up",
    "Linux bridge on",
    "Open vSwitch",
    "wrote 27 files",
    "all paths carry",
]


def wait_for_line(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdout and child.stderr
    while text not in (line := child.stdout.readline()):
        assert line, child.stderr.read()


@pytest.mark.parametrize("step", [s if s in STEPS[1::3] else pytest.param(s, marks=LONG) for s in STEPS])
def test_killed_after_a_step(lab_t1: Any, machine: Look, children: Children, step: str) -> None:
    before = machine("t1")
    child = start_held(lab_t1, children)
    wait_for_line(child, step)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = lab_t1.down()
    assert done.status == 0, done.stderr
    assert machine("t1") == before


@pytest.mark.parametrize(
    "tenths", [pytest.param(n, marks=LONG) if n not in (5, 9) else n for n in range(3, 23, 2)]
)
def test_killed_at_any_moment(lab_t1: Any, machine: Look, children: Children, tenths: int) -> None:
    before = machine("t1")
    child = start_up(lab_t1, children)
    time.sleep(tenths / 10)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = lab_t1.down()
    assert done.status == 0, done.stderr
    assert machine("t1") == before


@pytest.mark.parametrize("step", [pytest.param("created 4 nodes", marks=LONG), "Open vSwitch"])
def test_up_after_a_crash_begins_anew(lab_t1: Any, children: Children, step: str) -> None:
    child = start_held(lab_t1, children)
    wait_for_line(child, step)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = lab_t1.up()
    assert done.status == 0, done.stderr
    assert "removed leftovers of an interrupted run: " in done.stdout
    assert lab_t1.well("lab", "status").status == 0


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USUAL = (("mounted", signal.SIGHUP), ("connected", signal.SIGTERM), ("wrote", signal.SIGINT))


@pytest.mark.parametrize(
    ("step", "number"),
    [
        pytest.param(step, number, id=f"{step}-{number.name}", marks=() if (step, number) in USUAL else LONG)
        for step in ("mounted", "connected", "Linux bridge on", "wrote")
        for number in SIGNALS
    ],
)
def test_stopped_it_removes_what_it_made(
    lab_t1: Any, machine: Look, children: Children, step: str, number: signal.Signals
) -> None:
    before = machine("t1")
    child = start_held(lab_t1, children)
    wait_for_line(child, step)
    child.send_signal(number)
    out, err = child.communicate(timeout=DEADLINE)
    assert child.returncode == 1
    assert "rolled back: " in out
    assert err == f"vigia: stopped by {number.name}\n"
    assert machine("t1") == before


def test_stopped_twice_it_still_removes_what_it_made(lab_t1: Any, machine: Look, children: Children) -> None:
    before = machine("t1")
    child = start_held(lab_t1, children)
    wait_for_line(child, "Linux bridge on")
    for _ in range(20):
        child.send_signal(signal.SIGINT)
        time.sleep(0.01)
    child.communicate(timeout=DEADLINE)
    assert child.returncode in (1, -signal.SIGINT), "the last one may come when all is done"
    assert machine("t1") == before


BUILD = [doing for doing, _ in plain.CLOUD.build]


@pytest.mark.parametrize(
    "which",
    [pytest.param(n, id=doing, marks=() if n % 3 == 2 else LONG) for n, doing in enumerate(BUILD)],
)
def test_a_step_that_fails_leaves_nothing(
    lab_t1: Any, machine: Look, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """Each step in turn does its work and then fails."""
    before = machine("t1")
    steps = plain.CLOUD.build
    doing, build = steps[which]

    def fail(*arguments: Any) -> str:
        build(*arguments)
        raise VigiaError("the disk is full")

    broken = replace(plain.CLOUD, build=(*steps[:which], (doing, fail), *steps[which + 1 :]))
    monkeypatch.setattr(plain, "CLOUD", broken)
    with pytest.raises(VigiaError, match="the disk is full"):
        up.bring_up(lab_t1.lab, "auto", Steps(io.StringIO()))
    assert machine("t1") == before


def test_an_ovs_vswitchd_that_does_not_run(lab_t1: Any) -> None:
    with pytest.raises(VigiaError) as e:
        openvswitch.vswitchd(lab_t1.layout, "ovs1")
    assert str(e.value) == (
        "ovs-vswitchd of node ovs1 is not running; see /run/vigia/t1/nodes/ovs1/ovs/ovs-vswitchd.log"
    )


def test_down_without_the_state_file(lab_t1: Any, machine: Look) -> None:
    before = machine("t1")
    assert lab_t1.up().status == 0
    lab_t1.layout.state_file.unlink()
    assert lab_t1.vigia("lab", "status").status == 1
    assert lab_t1.down().status == 0
    assert machine("t1") == before


def test_down_without_the_run_directory(lab_t1: Any, machine: Look) -> None:
    """Nothing is known but the names: the daemons are found by the namespaces that they are in."""
    before = machine("t1")
    assert lab_t1.up().status == 0
    commands.run(["umount", str(lab_t1.layout.bpffs)])
    shutil.rmtree(lab_t1.layout.directory)
    done = lab_t1.down()
    assert done.status == 0
    assert "24 namespaces, 4 processes" in done.stdout
    assert machine("t1") == before


def test_down_without_the_namespaces(lab_t1: Any, machine: Look) -> None:
    """Somebody removed their names: the daemons, which keep them in being, are found by their files."""
    before = machine("t1")
    assert lab_t1.up().status == 0
    commands.ip_batch([f"netns del {name}" for name in netns.names(lab_t1.layout.prefix)])
    done = lab_t1.down()
    assert done.status == 0
    assert "0 namespaces, 4 processes" in done.stdout
    assert machine("t1") == before


def test_down_without_anything_but_the_daemons(lab_t1: Any, machine: Look) -> None:
    before = machine("t1")
    assert lab_t1.up().status == 0
    commands.ip_batch([f"netns del {name}" for name in netns.names(lab_t1.layout.prefix)])
    commands.run(["umount", str(lab_t1.layout.bpffs)])
    shutil.rmtree(lab_t1.layout.directory)
    assert "0 namespaces, 4 processes" in lab_t1.down().stdout
    assert machine("t1") == before


def test_the_same_lab_in_a_container_is_another_one(
    lab_t1: Any, children: Children, wait_until: Callable[..., None]
) -> None:
    """Its daemons have the same names and arguments, but other files."""
    words = ["ovs-vswitchd", "-c", "read x", "sh", f"--pidfile={lab_t1.layout.ovs('ovs1')}/ovs-vswitchd.pid"]
    pretend = ["bash", "-c", 'exec -a "$0" sh "$@"', *words]
    inside = subprocess.Popen(["unshare", "--mount", *pretend], stdin=subprocess.PIPE)
    outside = subprocess.Popen(pretend, stdin=subprocess.PIPE)
    children += [inside, outside]
    for child in (inside, outside):
        wait_until(lambda pid=child.pid: processes.arguments(pid) == words, "it runs")
    assert "1 processes" in lab_t1.down().stdout
    assert outside.wait(timeout=DEADLINE) == -15
    assert inside.poll() is None


def test_down_with_a_second_mount(lab_t1: Any, machine: Look) -> None:
    before = machine("t1")
    assert lab_t1.up().status == 0
    commands.run(["mount", "-t", "bpf", "bpf", str(lab_t1.layout.bpffs)])
    assert "2 mounts" in lab_t1.down().stdout
    assert machine("t1") == before


def test_down_with_a_foreign_mount_inside(lab_t1: Any) -> None:
    """What somebody mounted there is not removed with the directory."""
    assert lab_t1.up().status == 0
    place = lab_t1.layout.directory / "data"
    place.mkdir()
    commands.run(["mount", "-t", "tmpfs", "tmpfs", str(place)])
    (place / "precious").write_text("")
    try:
        done = lab_t1.down()
        assert (done.status, done.stderr) == (
            1,
            f"vigia: {place} is still mounted; unmount it: umount {place}\n",
        )
        assert (place / "precious").exists()
        assert "lab t1 is not up" in lab_t1.vigia("lab", "status").stderr, "half a lab is none"
    finally:
        commands.run(["umount", str(place)])
    assert lab_t1.down().status == 0


@pytest.fixture
def strangers(root: None, children: Children) -> Iterator[dict[str, Any]]:
    """Namespaces, devices and processes that look a little like the lab's."""
    names = ["vigia-test-t1", "vigia-t12-lb1", "t1-lb1", "vigia-t1"]
    links = ["red-110", "vx110"]

    def clean() -> None:
        commands.ip_batch([*(f"netns del {name}" for name in names), f"link del {links[0]}"], force=True)

    clean()
    commands.ip_batch(
        [
            *(f"netns add {name}" for name in names),
            f"link add name {links[0]} type veth peer name {links[1]}",
        ]
    )
    children += [
        subprocess.Popen(["ip", "netns", "exec", names[1], "sleep", "600"]),
        subprocess.Popen(["sleep", "600"]),
    ]
    yield {"namespaces": names, "links": links, "processes": [c.pid for c in children[-2:]]}
    clean()


def test_strangers_are_left_alone(lab_t1: Any, machine: Look, strangers: dict[str, Any]) -> None:
    inodes = {name: netns.inode(name) for name in strangers["namespaces"]}
    links = machine("t1").links
    assert {link.split()[1].partition("@")[0] for link in links} >= set(strangers["links"])
    assert lab_t1.up().status == 0
    assert lab_t1.down().status == 0
    assert lab_t1.up().status == 0
    shutil.copy(lab_t1.layout.state_file, lab_t1.file.parent)
    lab_t1.layout.state_file.unlink()
    assert lab_t1.down().status == 0
    assert {name: netns.inode(name) for name in strangers["namespaces"]} == inodes
    assert machine("t1").links == links
    assert all(processes.alive(pid) for pid in strangers["processes"])


def test_a_pid_file_that_names_a_stranger(lab_t1: Any, children: Children) -> None:
    """After a crash and a reboot the number may belong to anybody."""
    stranger = subprocess.Popen(["sleep", "600"])
    children.append(stranger)
    directory = lab_t1.layout.ovs("ovs1")
    directory.mkdir(parents=True)
    for name in openvswitch.DAEMONS:
        (directory / f"{name}.pid").write_text(f"{stranger.pid}\n")
    assert not any(d.alive for d in openvswitch.daemons(lab_t1.layout, "ovs1"))
    done = lab_t1.down()
    assert "0 namespaces, 0 processes, the run directory" in done.stdout
    assert stranger.poll() is None


def test_a_daemon_of_another_lab_is_a_stranger(
    lab_t1: Any, tmp_path: Path, children: Children, wait_until: Callable[..., None]
) -> None:
    """A process of the right name that was started for another directory."""
    program = tmp_path / "ovs-vswitchd"
    program.symlink_to(shutil.which("sleep") or "")
    other = subprocess.Popen([str(program), "600"])
    children.append(other)
    wait_until(lambda: processes.arguments(other.pid) == [str(program), "600"], "it runs")
    assert not openvswitch.is_daemon(other.pid, "ovs-vswitchd", lab_t1.layout.ovs("ovs1"))


def test_what_uses_the_lab_is_stopped_with_it(
    lab_t1: Any, tmp_path: Path, children: Children, wait_until: Callable[..., None]
) -> None:
    assert lab_t1.up().status == 0
    # Processes in the lab's namespaces would keep them in being, without a name.
    inside = [
        subprocess.Popen(["ip", "netns", "exec", lab_t1.netns(place), "sleep", "600"])
        for place in ("lb1", "ovs2/red/ovs-gre")
    ]
    # Agents are in the root namespace, but their sockets are in the lab's.
    program = tmp_path / "vigia-probe"
    program.symlink_to(shutil.which("tail") or "")
    config = lab_t1.layout.node("lb1") / "probe.yaml"
    agent = subprocess.Popen([str(program), "-f", str(config)], stdout=subprocess.DEVNULL)
    reader = subprocess.Popen(["tail", "-f", str(config)], stdout=subprocess.DEVNULL)
    children += [*inside, agent, reader]
    for child in (agent, reader):
        wait_until(lambda pid=child.pid: str(config) in processes.arguments(pid), "it runs")
    for child in inside:
        wait_until(lambda pid=child.pid: processes.arguments(pid) == ["sleep", "600"], "it runs")
    assert lab_t1.down().status == 0
    assert [child.wait(timeout=DEADLINE) for child in (*inside, agent)] == [-15, -15, -15]
    assert reader.poll() is None, "reading a file of the lab is not being an agent"


def test_down_from_inside_the_lab(lab_t1: Any) -> None:
    """The command does not stop itself, or the shell that it is run from."""
    assert lab_t1.up().status == 0
    done = lab_t1.vigia("lab", "exec", "lb1", "--", "sh", "-c", f"{VIGIA} lab down --lab t1; echo still here")
    assert done.stdout.endswith("still here\n")
    assert netns.names(lab_t1.layout.prefix) == []


def test_two_at_once(lab_t1: Any, children: Children) -> None:
    """The second says who is at work, and leaves it alone."""
    lab_t1.layout.root.mkdir(exist_ok=True)
    with lab_t1.layout.lock_file.open("w") as f:
        f.write(f"{os.getpid()}\n")
        f.flush()
        fcntl.flock(f, fcntl.LOCK_EX)
        for words in (("lab", "up", "--topology", str(lab_t1.file)), ("lab", "down")):
            done = lab_t1.vigia(*words)
            assert (done.status, done.stderr) == (
                1,
                f"vigia: another command (process {os.getpid()}) is working on lab t1; wait for its end\n",
            )
    lab_t1.layout.lock_file.unlink()
    assert netns.names(lab_t1.layout.prefix) == []


def says(present: state.State, wanted: list[str], of: str = "") -> None:
    """Wait until these are the problems: each echo of a path has a second, which a busy machine may not keep to."""
    found: list[str] = []

    def told() -> bool:
        found[:] = [p for p in status.examine(present).problems if p.startswith(of)]
        return found == wanted

    eventually(told, lambda: f"{wanted} to be the problems, and not {found}")


def test_what_status_sees(lab_t1: Any) -> None:
    """Each fault is made for real, found, and named."""
    assert lab_t1.up().status == 0
    present = state.running("t1")

    def problems() -> list[str]:
        return status.examine(present).problems

    says(present, [])
    node = lab_t1.netns("lb1")
    commands.run(["ip", "link", "set", "red-110", "down"], netns=node)
    assert any(p.startswith("port lb1-red-110: red-110 ") for p in problems())
    lost = "path linuxbridge-vxlan of red from lb1 to lb2: 0 of 3 answered"
    says(present, [lost], "path ")
    commands.run(["ip", "link", "set", "red-110", "up"], netns=node)
    commands.run(["ip", "link", "set", "vx120", "down"], netns=node)
    assert "node lb1: vx120 is down" in problems()
    commands.run(["ip", "link", "set", "vx120", "up"], netns=node)
    wire = lab_t1.layout.wire_netns("ovs")
    commands.run(["tc", "qdisc", "del", "dev", "ovs2", "root"], netns=wire)
    says(present, ["link ovs: the rate towards ovs2 is not limited"])
    daemon = openvswitch.daemons(present.lab.layout, "ovs1")[0]
    processes.stop([daemon.pid], lambda pid: True)
    found = problems()
    assert "node ovs1: ovs-vswitchd is not running" in found
    assert any(p.startswith("path ovs-gre of blue from ovs1 to ovs2: ") for p in found)
    commands.run(["ip", "netns", "del", lab_t1.netns("lb2/blue/linuxbridge-vxlan")])
    assert any("vigia-t1-lb2-blue-linuxbridge-vxlan is missing" in p for p in problems())
    done = lab_t1.vigia("lab", "status")
    assert done.status == 1
    assert "problem: node ovs1: ovs-vswitchd is not running\n" in done.stdout
    assert lab_t1.vigia("lab", "status", "--json").json["ok"] is False
    again = lab_t1.up()
    assert again.status == 1
    assert re.fullmatch(
        r"vigia: lab t1 is unhealthy: .+; to replace it, run: vigia lab down --lab t1\n", again.stderr
    )


def test_a_port_of_open_vswitch_without_a_device_is_seen(lab_t1: Any) -> None:
    assert lab_t1.up().status == 0
    openvswitch.vsctl(lab_t1.layout, "ovs1", "add-port", "br-int", "nodev", "tag=99")
    wanted = "node ovs1: Open vSwitch cannot use nodev: could not open network device nodev (No such device)"
    says(state.running("t1"), [wanted])


def test_small_buffers_are_seen(lab_t1: Any) -> None:
    """ovs-vswitchd opens a new socket for a new port, with the kernel's default size."""
    assert lab_t1.up().status == 0
    present = state.running("t1")
    if present.datapath == "kernel":
        return  # there are no such sockets
    pid = openvswitch.daemons(present.lab.layout, "ovs1")[0].pid
    sizes = buffers.read_all(pid)
    assert len(sizes) == 8  # six tenants' ports, the way out, and the socket that sends
    assert {(b.receive, b.send) for b in sizes} == {(8 << 20, 16 << 20)}
    node = lab_t1.netns("ovs1")
    commands.run(["ip", "link", "add", "name", "extra", "type", "veth", "peer", "name", "other"], netns=node)
    commands.run(["ip", "link", "set", "extra", "up"], netns=node)
    openvswitch.vsctl(present.lab.layout, "ovs1", "add-port", "br-int", "extra", "tag=99")
    small = [b for b in buffers.read_all(pid) if b.receive < buffers.RECEIVE]
    assert len(small) == 1
    told = f"node ovs1: 1 packet sockets of ovs-vswitchd have small buffers ({small[0].receive} bytes)"
    says(present, [told])
    assert buffers.raise_all(pid) == 9
    says(present, [])


def test_buffers_of_a_process_that_has_ended() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(VigiaError) as e:
        buffers.raise_all(child.pid)
    assert str(e.value) == (
        f"buffers of ovs-vswitchd (process {child.pid}) cannot be set: No such process; "
        "it needs CAP_SYS_PTRACE, CAP_NET_ADMIN and Linux 5.6 or later"
    )


def test_status_of_a_lab_that_is_being_made(lab_t1: Any) -> None:
    lab_t1.layout.directory.mkdir(parents=True)
    state.write(state.State("starting", lab_t1.lab, "userspace", 0.0))
    done = lab_t1.vigia("lab", "status")
    assert (done.status, done.stderr) == (1, "vigia: lab t1 is not up; bring it up: vigia lab up\n")


def test_a_record_without_a_lab_is_no_lab(lab_t1: Any) -> None:
    """After a reboot on a machine whose /run is on disk."""
    lab_t1.layout.directory.mkdir(parents=True)
    state.write(state.State("up", lab_t1.lab, "userspace", 0.0))
    done = lab_t1.up()
    assert done.status == 0, done.stderr
    assert (
        "removed leftovers of an interrupted run: 0 namespaces, 0 processes, the run directory" in done.stdout
    )


def test_a_taken_address(lab_t1: Any, machine: Look) -> None:
    before = machine("t1")
    with socket.create_server(("127.78.0.4", 9873)):
        done = lab_t1.up()
    assert (done.status, done.stderr) == (
        1,
        "vigia: 127.78.0.4:9873 (vigia-enforcer of node ovs2) cannot be used: Address already in use; "
        "stop what listens there (ss -ltnp), or give the lab other agents\n",
    )
    assert machine("t1") == before


def test_a_run_directory_that_is_a_file(lab_t1: Any, machine: Look) -> None:
    """What the system refuses is a line, too."""
    before = machine("t1")
    lab_t1.layout.root.mkdir(exist_ok=True)
    lab_t1.layout.directory.write_text("")
    for words in (("lab", "up", "--topology", str(lab_t1.file)), ("lab", "down")):
        done = lab_t1.vigia(*words)
        assert done.status == 1
        assert re.fullmatch(r"vigia: /run/vigia/t1.*: Not a directory.*\n", done.stderr)
    lab_t1.layout.directory.unlink()
    assert lab_t1.down().status == 0
    assert machine("t1") == before


def test_the_kernels_datapath_where_there_is_none(lab_t1: Any, machine: Look) -> None:
    if Path("/sys/module/openvswitch").exists():
        return
    before = machine("t1")
    done = lab_t1.vigia("lab", "up", "--topology", str(lab_t1.file), "--ovs-datapath", "kernel")
    assert (done.status, done.stderr) == (
        1,
        "vigia: the kernel has no openvswitch module; use --ovs-datapath userspace, "
        "or a kernel with CONFIG_OPENVSWITCH\n",
    )
    assert machine("t1") == before


def test_leftovers(lab_t1: Any) -> None:
    assert not down.leftovers(lab_t1.layout)
    commands.run(["ip", "netns", "add", "vigia-t1-x"])
    assert down.leftovers(lab_t1.layout)
    assert lab_t1.down().status == 0
    assert not down.leftovers(lab_t1.layout)


def test_a_namespace_name_without_a_namespace(lab_t1: Any) -> None:
    """Between making the file and mounting the namespace on it there is a moment."""
    (netns.DIRECTORY / "vigia-t1-half").touch()
    assert lab_t1.down().status == 0
    assert netns.names("vigia-t1-") == []


def test_a_mount_hidden_below_another(root: None) -> None:
    """In a container the mounts of the machine may be listed, hidden, at the lab's paths."""
    script = (
        f"mkdir -p /run/vigia/t1/bpffs && mount -t tmpfs x /run/vigia/t1/bpffs && mount -t tmpfs x /run && "
        f"ip link set lo up && {VIGIA} lab up --topology $0 && {VIGIA} lab down --lab t1 && {VIGIA} lab down --lab t1"
    )
    topology = Path(up.__file__).with_name("topologies") / "demo.yaml"
    text = topology.read_text().replace("name: demo\n", "name: t1\n")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(text)
        f.flush()
        done = subprocess.run(
            ["unshare", "--mount", "--net", "sh", "-c", script, f.name],
            capture_output=True,
            text=True,
            check=False,
        )
    shutil.rmtree("/run/vigia/t1", ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert "removed lab t1: 61 namespaces, 8 processes, 1 mount, the run directory" in done.stdout
    assert done.stdout.endswith("lab t1 is not up: nothing to remove\n")
