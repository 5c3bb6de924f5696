"""What the tests of several parts share: the command as people run it, a lab of the tests' own, the machine's state."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from gate.leftovers import LABS

from vigia.cli.main import main
from vigia.lab import topology

__all__ = [
    "DEMO",
    "ROOT",
    "VIGIA",
    "Machine",
    "Ran",
    "claim",
    "invoke_vigia",
    "need_root",
    "output",
    "own_topology",
    "run_vigia",
]

ROOT = Path(__file__).resolve().parent.parent
VIGIA = Path(sys.executable).with_name("vigia")


@dataclass(frozen=True)
class Ran:
    """A run of the vigia command."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def run_vigia(*arguments: str, env: dict[str, str] | None = None, timeout: float = 900) -> Ran:
    done = subprocess.run(
        [str(VIGIA), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def invoke_vigia(*arguments: str, env: dict[str, str] | None = None) -> Ran:
    """Run the vigia command in this process: starting Python takes longer than most of what it does."""
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, env or {}), redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    return Ran(status, out.getvalue(), err.getvalue())


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


DEMO = Path(topology.__file__).with_name("topologies") / "demo.yaml"


def claim(lab: str) -> str:
    """Say that a lab is this process's, so that the gate can remove it should the process be killed."""
    if os.geteuid() == 0:
        LABS.mkdir(exist_ok=True)
        (LABS / lab).write_text(str(os.getpid()))
    return lab


def own_topology(directory: Path, name: str, agents: str, given: Path = DEMO) -> Path:
    """The demo's topology, or a given one, as another lab, which can be up beside the demo."""
    claim(name)
    text = re.sub(r"^name: \w+$", f"name: {name}", given.read_text(), count=1, flags=re.MULTILINE)
    text = re.sub(r"^agents: \S+", f"agents: {agents}", text, count=1, flags=re.MULTILINE)
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return path


def output(*argv: str) -> list[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


_BY_MODULES = re.compile(
    r"\b(?:ifb[01]|dummy0|bond0|teql0|gre0|gretap0|erspan0|ip6gre0|tunl0|sit0|ip6tnl0|ip_vti0|ip6_vti0)\b"
)
"""Devices that a module of the kernel makes where it is loaded for the first time, for whichever test that is."""


@dataclass
class Machine:
    """What a lab could leave behind on the machine, and what it must not touch."""

    namespaces: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    qdiscs: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    processes: list[str] = field(default_factory=list)
    pins: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)

    @classmethod
    def now(cls, lab: str) -> Machine:
        """Look. Things of other labs and of other tests, which may run at once, are left out."""
        others = re.compile(rf"vigia-(?!{lab}-)|/run/vigia/(?!{lab}(/|\.|$))|/tmp/|/sys/fs/bpf/vigia-test")
        return cls(
            namespaces=sorted(n for n in _children("/run/netns") if not others.match(n)),
            links=[
                re.sub(r"state \w+|qlen \d+", "", line)
                for line in output("ip", "-o", "link")
                if not _BY_MODULES.match(line.split()[1])
            ],
            qdiscs=[line for line in output("tc", "qdisc", "show") if not _BY_MODULES.search(line)],
            rules=output("nft", "list", "ruleset"),
            mounts=sorted(
                " ".join(line.split()[3:5])
                for line in Path("/proc/self/mountinfo").read_text().splitlines()
                # The first ip netns add of the machine mounts /run/netns on itself, and ip never unmounts it.
                if not others.search(line) and line.split()[4] != "/run/netns"
            ),
            settings={
                str(p): p.read_text()
                for p in sorted(Path("/proc/sys/net/core").iterdir())
                if p.name.startswith(("rmem", "wmem", "netdev"))
            },
            processes=sorted(
                words for words in map(_words, _children("/proc")) if f"/run/vigia/{lab}/" in words
            ),
            pins=_children("/sys/fs/bpf"),
            run=sorted(n for n in _children("/run/vigia") if n.startswith(lab)),
        )


def _children(directory: str) -> list[str]:
    try:
        return sorted(p.name for p in Path(directory).iterdir())
    except OSError:
        return []


def _words(pid: str) -> str:
    if not pid.isdigit():
        return ""
    try:
        return Path("/proc", pid, "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
