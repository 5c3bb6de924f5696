"""The lab inside a container: brings it up, tells the site of its nodes, removes it at the end."""

from __future__ import annotations

import ssl
import sys
import time
from pathlib import Path

import httpx

from vigia.compose.files import Volume
from vigia.console import Steps
from vigia.errors import Interrupted, VigiaError
from vigia.host import commands
from vigia.host.signals import Deferred, deferred
from vigia.lab import down as lab_down
from vigia.lab import model, state, topology, up
from vigia.lab.model import Lab
from vigia.stack.files import SHORT
from vigia.stack.site import PORTS, Site
from vigia_service.patience import Patience

__all__ = ["join", "run"]

_RELOAD_SECONDS = 300.0
"""How long the isolation agent and the comparison may take to be there; generous, for slow machines."""

_ATTEMPTS, _PAUSE = 3, 2.0
"""How often the lab is tried, and the seconds between."""


def run(volume: Volume) -> None:
    """Bring the lab up, join it to the site, and remove it on SIGTERM. Raises VigiaError."""
    wanted = model.resolve(topology.default())
    steps = Steps(sys.stdout)
    # Containers have it read-only; what is written there is the namespaces' own.
    commands.run(["mount", "-o", "remount,bind,rw", "/proc/sys"])
    with deferred() as stop:
        try:
            _bring_up(wanted, steps, stop)
            join(volume, wanted, stop)
            steps.line(f"the site scrapes the nodes {', '.join(n.name for n in wanted.nodes)}")
            while True:
                stop.check()
                time.sleep(0.2)
        except Interrupted as e:
            steps.line(str(e))
        finally:
            # An agent that is started meanwhile must not enter what is about to go: without its
            # configuration it ends, and is started again.
            for file in wanted.layout.directory.glob("nodes/*/*.yaml"):
                file.unlink()
            with state.locked(wanted.layout):
                steps.line(f"removed the lab: {lab_down.remove(wanted.layout)}")
            volume.join(volume.site(volume.nodes()), {})


def _bring_up(wanted: Lab, steps: Steps, stop: Deferred) -> None:
    """Bring the lab up, trying again what fails. Raises VigiaError, and Interrupted by stop.

    compose gives everything up as soon as a container that others wait for has ended.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            up.bring_up(wanted, "auto", steps)
            return
        except Interrupted:
            raise
        except VigiaError as e:
            if attempt == _ATTEMPTS:
                raise
            steps.line(f"attempt {attempt} of {_ATTEMPTS} failed: {e}")
        stop.check()
        time.sleep(_PAUSE)


def join(volume: Volume, lab: Lab, stop: Deferred) -> None:
    """Let the site scrape the lab's nodes and limit on them. Raises VigiaError, and Interrupted by stop."""
    volume.put("isolation-agent", "lab.token", lab.layout.token_file.read_text())
    site = volume.site(volume.nodes())
    volume.join(site, SHORT)
    _reload(site, "isolation-agent", volume.folder("isolation-agent") / "api.token", stop)
    _reload(site, "vigia-compare", volume.folder("vigia-compare") / "reload.token", stop)


def _reload(site: Site, job: str, token: Path, stop: Deferred) -> None:
    """Have a part read its configuration again, waiting until it is there. Raises VigiaError."""
    headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
    url = f"{site.url(job)}/-/reload"
    patience = Patience(_RELOAD_SECONDS)
    with httpx.Client(timeout=60.0, trust_env=False, verify=_trust(site)) as client:
        while True:
            stop.check()
            try:
                answer = client.post(url, headers=headers)
                problem = "" if answer.is_success else f"answers {answer.status_code}: {answer.text[:300]}"
            except httpx.HTTPError as e:
                problem = f"no answer: {e}"
            if not problem:
                return
            if patience.over():
                raise VigiaError(f"{job} on port {PORTS[job]} rejects its new configuration: {problem}")
            time.sleep(1.0)


def _trust(site: Site) -> ssl.SSLContext | bool:
    files = site.credentials("isolation-agent")
    if not files:
        return True
    context = ssl.create_default_context(cafile=files["ca_file"])
    context.load_cert_chain(files["cert_file"], files["key_file"])
    return context
