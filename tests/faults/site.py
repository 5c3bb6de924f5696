"""The demo's lab and stack under a name and addresses of its own, arranged so that each part can be hurt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from labkit import claim

from vigia.console import Steps
from vigia.host import commands
from vigia.lab import down as lab_down
from vigia.lab import model, state, topology
from vigia.lab import up as lab_up
from vigia.lab.model import Lab
from vigia.lab.state import State
from vigia.stack import control, plan
from vigia.stack.places import Places
from vigia.stack.plan import Service
from vigia_testing import eventually

__all__ = ["AGENT", "LAB", "SIZES", "Page", "Site", "running"]

LAB = "faults"
AGENTS, STACK = "127.87.0.0/24", "127.87.0.250"

SIZES = {"isolation-agent": 32, "vigia-compare": 8, "alertmanager": 8, "prometheus": 256, "log": 64}
"""MiB of the file system that each writer has to itself, so that it can be filled."""

AGENT = "isolation-agent"
SETTLED = 600.0
"""Seconds for the whole site to be well again, at most: scrapes are 15 s apart, and this machine may be very busy."""

_WRAPPER = """#!/bin/sh
# Starts a service; what a test has put beside this file comes first.
set -eu
name=$1; shift
if [ -e "$(dirname "$0")/$name.env" ]; then . "$(dirname "$0")/$name.env"; fi
exec "$@"
"""

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Samples of a page of metrics, by name and labels."""


@dataclass
class Site:
    """A lab with its stack, both up."""

    present: State
    where: Places
    folder: Path
    """Of the test: file systems of the writers, and what is put before a service."""
    client: httpx.Client

    @property
    def lab(self) -> Lab:
        return self.present.lab

    @property
    def services(self) -> dict[str, Service]:
        return {s.name: s for s in plan.read(self.where.plan)}

    def disk(self, writer: str) -> Path:
        """The file system of a writer."""
        return self.folder / "disks" / writer

    def status(self) -> dict[str, Any]:
        """What the supervisor says."""
        found: dict[str, Any] = json.loads(self.where.status.read_text())
        return found

    def pids(self) -> dict[str, int | None]:
        return {name: s["pid"] for name, s in self.status()["services"].items()}

    def pid(self, service: str) -> int:
        """The process of a service, which runs."""
        found = eventually(lambda: self.pids()[service], f"{service} to run")
        return int(found)

    def restarted(self, service: str, old: int) -> int:
        """Wait until a service has another process and works; return it."""
        eventually(lambda: self.pids()[service] not in (None, old), f"{service} to be started again", SETTLED)
        self.works(service)
        return self.pid(service)

    def works(self, service: str) -> None:
        """Wait until a service is ready."""
        eventually(
            lambda: not self.problem(service),
            lambda: f"{service} to work: {self.problem(service)}; {self.log(service)[-600:]}",
            SETTLED,
        )

    def problem(self, service: str) -> str:
        """Why a service does not work; empty if it does. It is asked on a connection of its own, as who is new."""
        asked = self.services[service]
        try:
            answer = httpx.get(asked.ready_url, auth=asked.auth, timeout=3.0, trust_env=False, verify=False)  # noqa: S501 - plain HTTP, and TLS would take long to set up
        except httpx.HTTPError as e:
            return f"no answer: {e!r}"
        return "" if answer.status_code == httpx.codes.OK else f"{answer.status_code} {answer.text[:200]}"

    def log(self, service: str) -> str:
        with suppress(OSError):
            return (self.where.logs / f"{service}.log").read_text(errors="replace")
        return ""

    def url(self, service: str, path: str) -> str:
        return f"http://{self.services[service].address}{path}"

    def page(self, service: str, path: str = "/metrics") -> Page:
        """A page of metrics, empty while the service does not answer."""
        try:
            text = self.client.get(self.url(service, path), timeout=5.0).text
        except httpx.HTTPError:
            return {}
        return parsed(text)

    def value(self, service: str, metric: str, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        wanted = set(labels.items())
        return sum(v for (name, given), v in self.page(service).items() if name == metric and wanted <= given)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Ask Prometheus; nothing while it does not answer."""
        try:
            answer = self.client.get(
                self.url("prometheus", "/api/v1/query"), params={"query": expression}
            ).json()
        except (httpx.HTTPError, ValueError):
            return []
        found: list[dict[str, Any]] = answer.get("data", {}).get("result", [])
        return found

    def api(self, path: str, **parameters: str) -> Any:
        """Ask the isolation agent as a person does. Raises httpx.HTTPError."""
        headers = {"Authorization": f"Bearer {self.where.api_token.read_text().strip()}"}
        answer = self.client.get(self.url(AGENT, path), params=parameters, headers=headers)
        return answer.raise_for_status().json()

    def reload(self, service: str) -> httpx.Response:
        """Have a service read its configuration again."""
        headers = {"Authorization": f"Bearer {self.where.api_token.read_text().strip()}"}
        return self.client.post(self.url(service, "/-/reload"), headers=headers, timeout=30.0)

    def put_before(self, service: str, lines: str) -> None:
        """Have lines of sh run before a service from its next start on; none of them if there are no lines."""
        file = self.folder / "before" / f"{service}.env"
        if lines:
            file.write_text(lines)
        else:
            file.unlink(missing_ok=True)


_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parsed(text: str) -> Page:
    """Read a page of metrics."""
    found: Page = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            with suppress(ValueError):  # it is no sample
                found[match[1], frozenset(_LABEL.findall(match[2] or ""))] = float(match[3])
    return found


def lab() -> Lab:
    """The demo's lab under another name."""
    given = topology.default().model_dump(mode="json")
    given |= {"name": LAB, "agents": AGENTS, "stack_address": STACK}
    return model.resolve(topology.Topology.model_validate(given))


@contextmanager
def running() -> Iterator[Site]:
    """Bring the lab and its stack up; nothing of them is left afterwards."""
    wanted = lab()
    where = Places(wanted.layout)
    steps = Steps()
    claim(LAB)
    remove(where)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vigia-faults-")))
        stack.callback(remove, where)
        present = lab_up.bring_up(wanted, "auto", steps)
        for writer, size in SIZES.items():
            stack.enter_context(_disk(folder / "disks" / writer, size))
        _arrange(where, folder)
        services = [_wrapped(s, folder) for s in control.prepare(present.lab)]
        plan.write(where.plan, services)
        stack.callback(control.down, where)
        control.start(where)
        for _ in control.wait_ready(where, services, SETTLED):
            pass
        client = stack.enter_context(httpx.Client(timeout=10.0, trust_env=False))
        yield Site(present, where, folder, client)


def remove(where: Places) -> None:
    """Remove the lab and its stack, also what a run that was killed has left."""
    layout = where.layout
    with state.locked(layout):
        control.down(where)
        lab_down.remove(layout)
    for mount in Path("/proc/self/mounts").read_text().splitlines():
        point = Path(mount.split()[1])
        if mount.startswith("vigia-faults-disk "):
            commands.run(["umount", "--lazy", str(point)])


@contextmanager
def _disk(place: Path, size: int) -> Iterator[None]:
    place.mkdir(parents=True)
    options = f"size={size}m,mode=750"
    commands.run(["mount", "-t", "tmpfs", "-o", options, "vigia-faults-disk", str(place)])
    try:
        yield
    finally:
        commands.run(["umount", "--lazy", str(place)])


def _arrange(where: Places, folder: Path) -> None:
    """Have every writer write to a file system of its own."""
    where.data.mkdir(parents=True, exist_ok=True)
    where.directory.mkdir(parents=True, exist_ok=True)
    for writer in SIZES:
        place = where.logs if writer == "log" else where.data / writer
        place.symlink_to(folder / "disks" / writer)
    (folder / "before").mkdir()
    wrapper = folder / "before" / "start"
    wrapper.write_text(_WRAPPER)
    wrapper.chmod(0o755)


def _wrapped(service: Service, folder: Path) -> Service:
    return replace(service, argv=(str(folder / "before" / "start"), service.name, *service.argv))


def free_space(place: Path) -> int:
    """Bytes that are free on a file system."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def run(*argv: str, netns: str | None = None) -> str:
    """Run a command, inside a namespace if one is named."""
    words = [*(["ip", "netns", "exec", netns] if netns else []), *argv]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
    return done.stdout


def node_netns(site: Site, node: str = "node1") -> str:
    """The namespace of a node."""
    return site.lab.node(node).netns
