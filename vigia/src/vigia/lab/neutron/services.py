"""Running the cloud's programs: in a machine's network namespace, with the packages' files above /usr."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.lab.neutron import programs
from vigia.lab.neutron.places import NeutronPlaces

__all__ = ["PATIENCE", "Supervised", "prepare", "run", "start", "until"]

PATIENCE = 300.0
"""Seconds that a program may take to become ready: other work may have the processors."""


@dataclass(frozen=True)
class Supervised:
    """A program that is kept running."""

    name: str
    """What its log and what holds it begin with: the machine, and which of several it is."""
    netns: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


def prepare(places: NeutronPlaces) -> None:
    """Write the scripts that programs are started by, and what they run in place of what does not work."""
    for folder in (places.directory, places.logs, places.hold, places.scratch):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    own = resources.files("vigia.lab.neutron")
    shared = resources.files("vigia.lab.kubernetes").joinpath("supervise.sh")
    for script in (*(own.joinpath(n) for n in ("enter.sh", "libvirt.sh", "run.sh", "service.sh")), shared):
        (places.directory / script.name).write_text(script.read_text())
    mended = places.directory / "mended/sbin/ebtables"  # below their /usr
    mended.parent.mkdir(parents=True, exist_ok=True)
    mended.write_text(own.joinpath("ebtables.sh").read_text())
    mended.chmod(0o755)


def start(places: NeutronPlaces, service: Supervised) -> None:
    """Start a program, which goes on by itself, and again whenever it ends."""
    env = {**_environment(places), **service.env, "MACHINE": service.name}
    argv = _inside(places, service.netns, "service.sh", service.argv)
    commands.detach(argv, env=env, log=places.logs / f"{service.name}.log")


def run(
    places: NeutronPlaces,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float = PATIENCE,
) -> commands.CommandResult:
    """Run a program on the control plane's machine to its end. Raises CommandError if check is set."""
    # It ends with this process, should that be killed: until then it would hold the lab's lock.
    return commands.run(
        ["setpriv", "--pdeathsig", "KILL", *_inside(places, places.netns, "run.sh", argv)],
        env={**_environment(places), **(env or {})},
        check=check,
        timeout=timeout,
    )


def until(places: NeutronPlaces, what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds. Raises VigiaError that names the newest log."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            newest = max(places.logs.glob("*.log"), key=lambda p: p.stat().st_mtime, default=places.logs)
            raise VigiaError(f"{what} did not become ready within {PATIENCE:g} s; see {newest}")
        time.sleep(0.2)


def _inside(places: NeutronPlaces, netns: str, script: str, argv: Sequence[str]) -> list[str]:
    entered = ["nsenter", f"--net=/run/netns/{netns}", "unshare", "--mount", "--uts"]
    return [*entered, "bash", str(places.directory / script), *argv]


def _environment(places: NeutronPlaces) -> dict[str, str]:
    folder = str(places.directory)
    tmp = str(places.scratch)
    return {"LAB": folder, "ROOT": str(programs.find()), "HOME": folder, "TMPDIR": tmp, "PYTHONPATH": ""}
