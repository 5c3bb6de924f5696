"""vigia doctor, on this machine with real faults planted."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labkit import VIGIA, Ran, invoke_vigia, need_root, own_topology

from vigia.doctor import kernel, machine, openvswitch
from vigia.doctor.finding import Finding
from vigia.host import commands, syscalls
from vigia.lab import buffers, model, topology
from vigia.lab.model import Lab

ADDRESS = "127.81.0.9"  # nobody else's, so that the ports are free


def found(ran: Ran, check: str, state: str) -> list[dict[str, Any]]:
    return [f for f in ran.json["findings"] if f["check"] == check and f["state"] == state]


def doctor(*arguments: str, within: tuple[str, ...] = ()) -> Ran:
    if not within:
        return invoke_vigia("doctor", "--json", "--address", ADDRESS, *arguments)
    done = subprocess.run(
        [*within, str(VIGIA), "doctor", "--json", "--address", ADDRESS, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def in_mounts(script: str) -> tuple[str, ...]:
    """A mount namespace of its own, prepared by a script, in which the rest of the command line runs."""
    return ("unshare", "--mount", "sh", "-c", f'{script}; exec "$@"', "sh")


def test_a_taken_port_is_named_with_its_holder() -> None:
    with socket.socket() as s:
        s.bind((ADDRESS, 9873))
        s.listen()
        ran = doctor()
    assert ran.status == 1
    (fault,) = found(ran, "ports", "fault")
    assert fault["concerns"] == ["vigia-enforcer"]
    assert f"{ADDRESS}:9873/tcp is taken by " in fault["found"]
    assert Path("/proc/self/comm").read_text().strip() in fault["found"]
    assert "ss -lnp 'sport = :9873'" in fault["fix"]
    assert not found(doctor(), "ports", "fault")


def test_the_last_line_counts_in_words_that_fit() -> None:
    ran = invoke_vigia("doctor", "--address", ADDRESS)
    number, states = r"(?:1 {0}|(?:0|[2-9]|\d\d+) {0}s)", ("fault", "warning")
    counted = ", ".join(number.format(state) for state in states)
    assert re.fullmatch(rf"{counted}, \d+ passed, \d+ not on this node", ran.stdout.splitlines()[-1])


def test_the_folder_for_pins_is_looked_at_wherever_it_is() -> None:
    need_root()
    lab = "umount -l /sys/fs/bpf 2>/dev/null; mount -t tmpfs none /mnt && mkdir /mnt/lab && mount -t bpf bpf /mnt/lab"
    (fault,) = found(doctor(within=in_mounts(lab)), "bpffs", "fault")
    assert fault["found"].startswith("/sys/fs/bpf/vigia is not on a BPF file system; there is one at ")
    assert "/mnt/lab" in fault["found"]
    (fine,) = found(doctor("--pin-dir", "/mnt/lab/lb1", within=in_mounts(lab)), "bpffs", "ok")
    assert fine["found"] == "/mnt/lab/lb1 is on the BPF file system /mnt/lab"
    covered = f"{lab}; mount -t tmpfs none /mnt/lab"
    assert found(doctor("--pin-dir", "/mnt/lab/lb1", within=in_mounts(covered)), "bpffs", "fault")


def test_a_missing_bpf_file_system_is_mended_by_the_fix() -> None:
    need_root()
    without = "umount -l /sys/fs/bpf 2>/dev/null"
    ran = doctor(within=in_mounts(without))
    (fault,) = found(ran, "bpffs", "fault")
    assert ran.status == 1
    mended = doctor(within=in_mounts(f"{without}; {fault['fix']}"))
    assert not found(mended, "bpffs", "fault")
    assert found(mended, "bpffs", "ok")


def test_a_missing_trace_file_system_is_mended_by_the_fix() -> None:
    need_root()
    without = "umount -l /sys/kernel/tracing /sys/kernel/debug/tracing 2>/dev/null"
    (warning,) = found(doctor(within=in_mounts(without)), "tracefs", "warning")
    assert found(doctor(within=in_mounts(f"{without}; {warning['fix']}")), "tracefs", "ok")


def test_missing_capabilities_are_named_for_each_program() -> None:
    need_root()
    ran = doctor(within=("setpriv", "--bounding-set=-bpf,-net_raw", "--inh-caps=-bpf,-net_raw", "--"))
    texts = {f["concerns"][0]: f["found"] for f in found(ran, "capabilities", "fault")}
    assert texts == {
        "vigia-probe": "vigia-probe would lack CAP_NET_RAW",
        "vigia-exporter": "vigia-exporter would lack CAP_BPF",
        "vigia-enforcer": "vigia-enforcer would lack CAP_BPF",
    }
    assert ran.status == 1


def test_a_port_that_this_user_may_not_use() -> None:
    need_root()
    ran = doctor(within=("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service", "--"))
    start = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    refused = [f for f in found(ran, "ports", "fault") if ":862/udp" in f["found"]]
    assert len(refused) == (1 if start > 862 else 0)
    assert all("CAP_NET_BIND_SERVICE" in f["fix"] for f in refused)


@pytest.mark.parametrize(
    ("release", "state"),
    [
        ("6.6.0", "ok"),
        ("6.18.44-fc", "ok"),
        ("7.0", "ok"),
        ("6.1.0-18-amd64", "ok"),
        ("5.18.0", "ok"),
        ("5.15.0", "fault"),
        ("odd", "fault"),
    ],
)
def test_kernels(release: str, state: str) -> None:
    finding = kernel.version(release)
    assert finding.state == state
    assert release in finding.found


def test_features_of_the_kernel_are_tried_and_leave_nothing() -> None:
    need_root()
    before = commands.run(["ip", "-o", "link"]).stdout.count("\n")
    assert {f.state for f in kernel.features(kernel.FEATURES)} == {"ok"}
    lacking = kernel.NodeFeature(
        "sch_nothing", "CONFIG_NOTHING", "tc qdisc add dev lo root nothing", "it", ()
    )
    (warning,) = kernel.features([lacking])
    assert warning.state == "warning"
    assert warning.found.startswith("the kernel has no sch_nothing: no it (")
    assert warning.fix == "modprobe sch_nothing, or use a kernel with CONFIG_NOTHING"
    assert commands.run(["ip", "-o", "link"]).stdout.count("\n") == before


@pytest.mark.parametrize(
    ("there", "without", "fix"),
    [
        (("unshare",), "tc", "apt-get install iproute2"),
        (("tc",), "unshare", "apt-get install util-linux"),
        ((), "unshare and tc", "apt-get install util-linux iproute2"),
    ],
)
def test_what_cannot_be_tried_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], without: str, fix: str
) -> None:
    for program in there:
        (tmp_path / program).symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(commands, "_SBIN", ())
    (warning,) = kernel.features(kernel.FEATURES[:1])
    assert warning.state == "warning"
    assert warning.found == f"sch_ingress cannot be tested without {without}"
    assert warning.fix == fix


def test_missing_files_of_the_kernel(tmp_path: Path) -> None:
    assert kernel.type_information(tmp_path / "none").state == "fault"
    assert kernel.psi(tmp_path / "none").state == "absent"
    (tmp_path / "there").touch()
    assert kernel.type_information(tmp_path / "there").state == "ok"
    assert kernel.psi(tmp_path / "there").state == "ok"


def test_the_clock_as_the_kernel_has_it() -> None:
    state, timex = machine.read_clock()
    assert 0 <= state <= 5
    timex.status &= ~0x40
    assert machine.clock((0, timex)).state == "ok"
    assert machine.clock((5, timex)).state == "warning"
    timex.status |= 0x40
    assert machine.clock((0, timex)).state == "warning"
    assert machine.clock((0, timex)).fix


def test_without_open_vswitch(tmp_path: Path) -> None:
    (finding,) = openvswitch.check(tmp_path, None)
    assert finding.state == "absent"
    assert str(tmp_path / "db.sock") in finding.found


def test_an_open_vswitch_that_is_dead(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "db.sock"))  # nobody listens
    (finding,) = openvswitch.check(tmp_path, None)
    assert (finding.state, finding.check) == ("fault", "ovs")
    assert "does not answer" in finding.found


def test_what_people_see() -> None:
    with socket.socket() as s:
        s.bind((ADDRESS, 9090))
        s.listen()
        ran = invoke_vigia("doctor", "--address", ADDRESS)
    assert ran.status == 1
    lines = ran.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("fault    ports: "))
    assert lines[at + 1].startswith("         fix: stop what listens there")
    assert lines[-1].split(",")[0].endswith("faults")
    assert not any(line.startswith("ok") for line in lines)
    every = invoke_vigia("doctor", "--address", ADDRESS, "--all").stdout.splitlines()
    assert any(line.startswith("ok       ports: ") for line in every)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_root()
    file = own_topology(tmp_path_factory.mktemp("doctor"), "doc", "127.82.0.0/24")
    invoke_vigia("lab", "down", "--lab", "doc")
    up = invoke_vigia("lab", "up", "--topology", str(file))
    assert up.status == 0, up.stderr
    yield model.resolve(topology.load(file))
    assert invoke_vigia("lab", "down", "--lab", "doc").status == 0


def of(lab: Lab, check: str) -> list[Finding]:
    node = lab.layout.node("node1")
    (rundir,) = {p.parent for p in node.glob("**/db.sock")}
    return [f for f in openvswitch.check(rundir, f"{lab.layout.prefix}node1") if f.check == check]


def mend(fix: str) -> None:
    """Run a fix as a person would paste it."""
    subprocess.run(shlex.split(fix), check=True)


def test_a_healthy_open_vswitch(lab: Lab) -> None:
    for check in ("ovs", "openflow", "ovs-buffers", "ovs-offloads"):
        findings = of(lab, check)
        assert findings or check != "ovs"
        assert {f.state for f in findings} <= {"ok"}, findings


def test_checksum_offload_in_a_tenant_is_found_and_mended_by_the_fix(lab: Lab) -> None:
    if not of(lab, "ovs-offloads"):
        pytest.skip("the kernel has the openvswitch module: its datapath fills in checksums")
    tenant = f"{lab.layout.prefix}node1-red-ovs-vxlan"
    (device,) = [
        link["ifname"]
        for link in json.loads(commands.run(["ip", "-json", "link"], netns=tenant).stdout)
        if link["ifname"] != "lo"
    ]
    commands.run(["ethtool", "-K", device, "tx", "on"], netns=tenant)
    (fault,) = [f for f in of(lab, "ovs-offloads") if f.state == "fault"]
    assert fault.fix == f"ip netns exec {tenant} ethtool -K {device} tx off"
    mend(fault.fix)
    assert {f.state for f in of(lab, "ovs-offloads")} == {"ok"}


def test_a_bridge_that_speaks_an_old_openflow_only(lab: Lab) -> None:
    (database,) = lab.layout.node("node1").glob("**/db.sock")
    vsctl = ["ovs-vsctl", f"--db=unix:{database}"]
    bridge = commands.run([*vsctl, "list-br"]).stdout.split()[0]
    commands.run([*vsctl, "set", "bridge", bridge, "protocols=OpenFlow10"])
    (warning,) = [f for f in of(lab, "openflow") if f.state == "warning"]
    mend(warning.fix.replace("ovs-vsctl", " ".join(vsctl)))
    assert {f.state for f in of(lab, "openflow")} == {"ok"}


def test_a_small_buffer_of_a_packet_socket_is_found(lab: Lab) -> None:
    if not of(lab, "ovs-buffers"):
        pytest.skip("the kernel has the openvswitch module: no packet sockets are read")
    (pidfile,) = lab.layout.node("node1").glob("**/ovs-vswitchd.pid")
    pid = int(pidfile.read_text())
    table = {line.split()[8] for line in Path(f"/proc/{pid}/net/packet").read_text().splitlines()[1:]}
    number = next(
        int(fd.name)
        for fd in Path(f"/proc/{pid}/fd").iterdir()
        if str(fd.readlink()).removeprefix("socket:[").removesuffix("]") in table
    )
    pidfd = os.pidfd_open(pid)
    try:
        with syscalls.borrowed_socket(pidfd, number) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    finally:
        os.close(pidfd)
    (warning,) = [f for f in of(lab, "ovs-buffers") if f.state == "warning"]
    assert warning.found.startswith("1 of ")
    assert "131072 bytes" in warning.found  # the kernel doubles what is asked for
    buffers.raise_all(pid)
    assert {f.state for f in of(lab, "ovs-buffers")} == {"ok"}
