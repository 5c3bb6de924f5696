"""The examples of internal/py/README.md do what they say."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vigia_http
import vigia_json
import vigia_prometheus
import vigia_service.server
import vigia_testing
from vigia_prometheus import Prometheus
from vigia_service import cli as frame
from vigia_service.server import Server
from vigia_text import numbers, tables, terminal

from ..server.serving import PATIENCE, Gate, Running, application, status_of

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS, SERVER = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_every_package_is_listed() -> None:
    listed = set(re.findall(r"^\| `(vigia_\w+)` \|", README, re.MULTILINE))
    assert listed == {p.parent.name for p in Path(__file__).parents[2].glob("vigia_*/__init__.py")}


def test_extras_are_those_of_the_distribution() -> None:
    import tomllib  # noqa: PLC0415

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    table = [line for line in README.splitlines() if line.startswith("| `vigia_")]
    named = {extra for line in table for extra in re.findall(r"`(\w+)`", line.rsplit("|", 2)[1])}
    assert named == set(project["optional-dependencies"])


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(COMMANDS, names)  # noqa: S102 - our own example
    main: Callable[[list[str]], int] = names["main"]
    assert main(["--help"]) == 0
    words = capsys.readouterr().out
    for command in ("run", "check-config", "healthcheck", "audit"):
        assert re.search(rf"^  {command} ", words, re.MULTILINE), command
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "sample, version 1.0\n"
    assert main(["audit"]) == 0


def test_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Server] = []
    began = threading.Event()

    class Known(Server):
        def run(self) -> None:
            made.append(self)
            began.set()
            super().run()

    monkeypatch.setattr(vigia_service.server, "Server", Known)
    gate = Gate()
    names = {
        "config": SimpleNamespace(listen="127.0.0.1:0"),
        "app": application(gate),
        "live": SimpleNamespace(context=None),
        "reloader": SimpleNamespace(request=lambda: None),
        "signal": __import__("signal"),
    }
    thread = threading.Thread(target=exec, args=(SERVER, names))
    thread.start()
    assert began.wait(PATIENCE)
    (server,) = made
    try:
        host, _, port = server.addresses[0].rpartition(":")
        assert status_of(Running(server, (host, int(port)), gate, thread).get()) == 200
    finally:
        server.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_is_named_is_there() -> None:
    text = README.partition("## Prometheus, text, tests")[2]
    for name in re.findall(r"`p\.(\w+)\(", text):
        assert hasattr(Prometheus, name), name
    for name in re.findall(
        r"`(\w+)(?:\([^`]*\))?`[,.;]", text.partition("vigia_text.numbers`:")[2].partition(".")[0]
    ):
        assert hasattr(numbers, name), name
    for module, name in re.findall(r"\b(tables|terminal)\.(\w+)", text):
        assert hasattr({"tables": tables, "terminal": terminal}[module], name), name
    for name in ("Group", "CONTEXT", "main", "common", "as_json", "command_line"):
        assert f"cli.{name}" in README and hasattr(frame, name)
    assert all(hasattr(vigia_json, n) for n in re.findall(r"vigia_json\.(\w+)", README))
    assert callable(vigia_testing.eventually) and callable(vigia_testing.modules_after)
    assert callable(vigia_http.read) and vigia_prometheus.PrometheusError
