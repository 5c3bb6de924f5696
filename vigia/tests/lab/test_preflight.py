"""What is checked before anything is made: one line each, and nothing left behind."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.lab import model, preflight, state, topology
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.lab.preflight import KernelFeature
from vigia.lab.state import State


@pytest.fixture
def idle(edited: Callable[..., Path], tmp_path: Path) -> Lab:
    """A lab with addresses that no other one has, its files in a folder of the test."""
    lab = model.resolve(topology.load(edited(("127.77.0.0/24 ", "127.79.0.0/24 "))))
    return Lab(lab.topology, Layout(lab.name, tmp_path / "run"), lab.nodes, lab.links)


def as_nobody(code: str) -> str:
    """Run code without rights and return what it prints."""
    head = "import os; from vigia import errors; from vigia.lab import preflight; os.setuid(65534)\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True)
    return done.stdout


def test_without_rights(root: None) -> None:
    said = as_nobody(
        "try: preflight.check_rights()\nexcept errors.VigiaError as e: print(e)",
    )
    assert said == (
        "the lab needs root (CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN missing); run it as root\n"
    )


def test_with_rights(root: None) -> None:
    preflight.check_rights()


@pytest.mark.parametrize(
    ("program", "package"),
    [
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("ethtool", "ethtool"),
        ("ping", "iputils-ping"),
        ("ovs-vswitchd", "openvswitch-switch"),
        ("ovsdb-server", "openvswitch-switch"),
        ("ovs-vsctl", "openvswitch-switch"),
        ("ovsdb-tool", "openvswitch-switch"),
    ],
)
def test_a_missing_program_names_its_package(
    program: str, package: str, pairs: Lab, monkeypatch: pytest.MonkeyPatch, root: None
) -> None:
    """The first program that is not found is reported, before anything is made."""
    real = commands.find
    monkeypatch.setattr(commands, "find", lambda name: None if name == program else real(name))
    with pytest.raises(VigiaError) as e:
        preflight.check(pairs, "userspace")
    assert str(e.value) == f"{program} is not installed; run: apt-get install {package}"


def test_a_lab_without_open_vswitch_does_not_need_it(
    pairs: Lab, monkeypatch: pytest.MonkeyPatch, root: None, tmp_path: Path
) -> None:
    real = commands.find
    monkeypatch.setattr(commands, "find", lambda name: None if name.startswith("ovs") else real(name))
    monkeypatch.setattr(preflight, "AGENT_PORTS", {})
    nodes = tuple(n for n in pairs.nodes if n.switch == "linuxbridge")
    preflight.check(Lab(pairs.topology, Layout("t3", tmp_path), nodes, pairs.links[:1]), "userspace")
    assert netns.names("vigia-t3-") == []


@pytest.mark.netns
@pytest.mark.parametrize("feature", preflight.FEATURES, ids=lambda f: f.name)
def test_a_missing_kernel_feature(feature: KernelFeature, root: None, tmp_path: Path) -> None:
    """The same trial, with a kind of device that no kernel has."""
    broken = KernelFeature(
        feature.name, feature.option, re.sub(r"(type|root|dev t0|mirred) \w+", r"\1 novigia", feature.command)
    )
    assert broken.command != feature.command
    before = [f for f in preflight.FEATURES if f.name != feature.name]
    layout = Layout("t3", tmp_path)
    with pytest.raises(VigiaError) as e:
        preflight.check_features(layout, (*before[: preflight.FEATURES.index(feature)], broken))
    assert str(e.value).startswith(
        f"the kernel has no {feature.name}; run: modprobe {feature.name}, or use a kernel with {feature.option} ("
    )
    assert netns.names(layout.prefix) == [], "nothing stays behind"


@pytest.mark.netns
def test_this_kernel_has_all_features(root: None, tmp_path: Path) -> None:
    preflight.check_features(Layout("t3", tmp_path), preflight.FEATURES)
    assert netns.names("vigia-t3-") == []


def test_the_file_system_for_pins() -> None:
    preflight.check_filesystem("nodev\tsysfs\nnodev\tbpf\n\text4\n")
    preflight.check_filesystem(Path("/proc/filesystems").read_text())
    with pytest.raises(VigiaError) as e:
        preflight.check_filesystem("nodev\tsysfs\nnodev\tbpffs2\n\text4\n")
    assert str(e.value) == "the kernel has no BPF file system; use a kernel with CONFIG_BPF_SYSCALL"


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.create_server(("127.79.0.3", 9872)) as s:
        yield s


@pytest.mark.usefixtures("taken")
def test_a_taken_port(idle: Lab) -> None:
    with pytest.raises(VigiaError) as e:
        preflight.check_addresses(idle)
    assert str(e.value) == (
        "127.79.0.3:9872 (vigia-exporter of node ovs1) cannot be used: Address already in use; "
        "stop what listens there (ss -ltnp), or give the lab other agents"
    )


def test_free_ports_stay_free(idle: Lab) -> None:
    for _ in range(2):
        preflight.check_addresses(idle)


def test_addresses_of_another_lab(idle: Lab) -> None:
    layout = Layout("other", idle.layout.root)
    other = Lab(idle.topology.model_copy(update={"name": "other"}), layout, idle.nodes, idle.links)
    layout.directory.mkdir(parents=True)
    state.write(State("up", other, "userspace", 0.0))
    with pytest.raises(VigiaError) as e:
        preflight.check_addresses(idle)
    assert str(e.value) == (
        "127.79.0.1 of node lb1 belongs to lb1 of lab other; "
        "give this lab other agents, or run: vigia lab down --lab other"
    )


def test_own_addresses_are_not_anothers(idle: Lab) -> None:
    idle.layout.directory.mkdir(parents=True)
    state.write(State("starting", idle, "userspace", 0.0))
    preflight.check_addresses(idle)


def test_the_datapath() -> None:
    """auto is what the machine has; the kernel's is refused where there is none."""
    module = Path("/sys/module/openvswitch").exists()
    assert preflight.choose_datapath("userspace") == "userspace"
    chosen = preflight.choose_datapath("auto")
    if chosen == "kernel":
        assert preflight.choose_datapath("kernel") == "kernel"
        return
    assert not module
    with pytest.raises(VigiaError) as e:
        preflight.choose_datapath("kernel")
    assert str(e.value) == (
        "the kernel has no openvswitch module; use --ovs-datapath userspace, or a kernel with CONFIG_OPENVSWITCH"
    )


def test_the_module_may_be_loaded_on_demand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """modprobe is asked where the module is not there yet; its answer decides."""
    log = tmp_path / "log"
    program = tmp_path / "modprobe"
    program.write_text(f"#!/bin/sh\necho $@ >> {log}\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert preflight.choose_datapath("auto") == "kernel"
    if not Path("/sys/module/openvswitch").exists():
        assert log.read_text() == "--quiet openvswitch\n"
