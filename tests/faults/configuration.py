"""Configurations that are replaced by rubbish, and put back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx

from faults.registry import Course, Expected, Scene, fault
from faults.site import SETTLED, Site
from vigia_testing import eventually

RUBBISH = "\x00{{{ - : not yaml [\nlisten: 7\n"

_ANSWERS = {
    "vigia-probe@node1": ("probe.yaml", "vigia_probe_config_last_reload_successful"),
    "vigia-exporter@node1": ("exporter.yaml", "vigia_exporter_config_last_reload_successful"),
    "vigia-enforcer@node1": ("enforcer.yaml", "vigia_enforcer_config_last_reload_successful"),
}
_HEARS = {
    "isolation-agent": ("isolation-agent.yaml", "vigia_agent_config_last_reload_successful"),
    "vigia-compare": ("compare.yaml", "vigia_compare_config_last_reload_successful"),
    "prometheus": ("prometheus.yml", "prometheus_config_last_reload_successful"),
    "alertmanager": ("alertmanager.yml", "alertmanager_config_last_reload_successful"),
}


def _file(site: Site, service: str) -> Path:
    _, _, node = service.partition("@")
    if node:
        return site.lab.layout.node(node) / _ANSWERS[service][0]
    return site.where.directory / _HEARS[service][0]


def _reloaded(site: Site, service: str) -> float | None:
    metric = {**_ANSWERS, **_HEARS}[service][1]
    auth = site.services[service].auth
    try:
        text = site.client.get(site.url(service, "/metrics"), auth=auth).text
    except httpx.HTTPError:
        return None
    lines = [
        line for line in text.splitlines() if line.startswith(metric + " ") or line.startswith(metric + "{")
    ]
    return float(lines[0].split()[-1]) if lines else None


def _ask(site: Site, service: str) -> None:
    if service in _ANSWERS:
        site.reload(service)
    else:
        os.kill(site.pid(service), signal.SIGHUP)


def _rubbish(service: str) -> Course:
    def course(scene: Scene) -> Iterator[None]:
        site = scene.site
        file = _file(site, service)
        good = file.read_text()
        file.write_text(RUBBISH)
        try:
            if service in _ANSWERS:
                answer = site.reload(service)
                assert answer.status_code >= 400, answer.text
                assert str(file) in answer.text or file.name in answer.text, answer.text
            else:
                _ask(site, service)
            eventually(
                lambda: _reloaded(site, service) == 0, f"{service} to say that it refused the file", SETTLED
            )
            site.works(service)
        finally:
            file.write_text(good)
        _ask(site, service)
        eventually(lambda: _reloaded(site, service) == 1, f"{service} to take the good file", SETTLED)
        yield

    return course


for _service in (*_ANSWERS, *_HEARS):
    _program = _service.partition("@")[0]
    fault(
        f"rubbish for {_program}",
        "configurations",
        f"The configuration of {_program} is replaced by rubbish and reloaded, then put back",
        "The reload is refused and shown, what was in force stays, and the good file is taken without a restart.",
        Expected(),
        short=_service == "vigia-probe@node1",
    )(_rubbish(_service))


def _starts_with_rubbish(scene: Scene) -> Iterator[None]:
    site, service = scene.site, "vigia-exporter@node2"
    file = site.lab.layout.node("node2") / "exporter.yaml"
    good, old = file.read_text(), site.pid(service)
    file.write_text(RUBBISH)
    try:
        os.kill(old, signal.SIGKILL)
        eventually(lambda: f"{service} ended with" in site.log(service), "the start to fail", SETTLED)
        eventually(
            lambda: site.status()["services"][service]["restarts"] >= 2, "it to be tried again", SETTLED
        )
    finally:
        file.write_text(good)
    site.restarted(service, old)
    yield


fault(
    "rubbish at a start",
    "configurations",
    "A service ends while its configuration is rubbish",
    "It is tried again and again, more and more slowly, and works as soon as the file is good again.",
    Expected(restarts="vigia-exporter@node2"),
)(_starts_with_rubbish)
