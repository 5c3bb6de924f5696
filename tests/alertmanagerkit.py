"""A real Alertmanager as it is shipped, alerts that are planted in it, and the notifications that it sends."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml
from portkit import free_port

from vigia_testing import eventually

__all__ = ["Alertmanager", "Inbox", "Notification", "configuration", "running"]

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "deploy/alertmanager/alertmanager.yml"
HOST = "127.0.0.1"
HTTP = httpx.Client(trust_env=False, timeout=60.0)
"""Made once: making one takes long on a busy machine."""
PATIENCE = 60.0


@dataclass(frozen=True)
class Notification:
    """One message to a receiver."""

    receiver: str
    group: Mapping[str, str]
    """The labels that its alerts have in common, by which they are grouped."""
    firing: tuple[Mapping[str, str], ...]
    """Labels of the alerts that fire."""
    resolved: tuple[Mapping[str, str], ...]


@dataclass
class Inbox:
    """What the receivers got."""

    _got: list[Notification] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, receiver: str, message: Mapping[str, Any]) -> None:
        """Keep a message as Alertmanager's webhook has it."""

        def labels(status: str) -> tuple[Mapping[str, str], ...]:
            return tuple(a["labels"] for a in message["alerts"] if a["status"] == status)

        with self._lock:
            self._got.append(
                Notification(receiver, message["groupLabels"], labels("firing"), labels("resolved"))
            )

    def of(self, receiver: str) -> list[Notification]:
        """What a receiver got, the oldest first."""
        with self._lock:
            return [n for n in self._got if n.receiver == receiver]


@dataclass(frozen=True)
class Alertmanager:
    """One that runs."""

    url: str
    inbox: Inbox

    def plant(self, alerts: Iterable[Mapping[str, str]], *, ended: bool = False) -> None:
        """Send alerts as Prometheus does; those that have ended are resolved."""
        now = datetime.now(UTC)
        # One that began earlier than a group's wait ago is told at once, before what keeps it back is known: none
        # does, however late it arrives.
        begins = now - timedelta(seconds=2) if ended else now + timedelta(minutes=5)
        ends = now - timedelta(seconds=1) if ended else now + timedelta(hours=1)
        body = [
            {
                "labels": dict(labels),
                "startsAt": begins.isoformat(),
                "endsAt": ends.isoformat(),
            }
            for labels in alerts
        ]
        HTTP.post(f"{self.url}/api/v2/alerts", json=body).raise_for_status()

    def kept_back(self) -> set[str]:
        """Names of the alerts that others keep back, as Alertmanager says."""
        answer = HTTP.get(f"{self.url}/api/v2/alerts?inhibited=true")
        answer.raise_for_status()
        return {a["labels"]["alertname"] for a in answer.json() if a["status"]["inhibitedBy"]}


def configuration(inbox_url: str, wait: str) -> str:
    """The shipped configuration, with every receiver at the inbox and so short a wait for a group's other alerts.

    The receiver nobody gets messages, too, so that a test sees what would go there.
    """
    content = yaml.safe_load(SHIPPED.read_text())
    content["route"]["group_wait"] = wait
    content["route"]["group_interval"] = wait
    for receiver in content["receivers"]:
        receiver["webhook_configs"] = [
            {"url": f"{inbox_url}/{receiver['name']}", "send_resolved": True, "max_alerts": 0}
        ]
    return yaml.safe_dump(content, sort_keys=False)


def _handler(inbox: Inbox) -> type[BaseHTTPRequestHandler]:
    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            inbox.put(self.path.removeprefix("/"), json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Webhook


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # all groups may be told at once


@contextlib.contextmanager
def running(folder: Path, wait: str = "1s") -> Iterator[Alertmanager]:
    """An Alertmanager of its own, which is empty."""
    program = shutil.which("prometheus-alertmanager")
    assert program, "prometheus-alertmanager is missing; run tools/bootstrap.sh test"
    inbox = Inbox()
    folder.mkdir(parents=True, exist_ok=True)
    with _Server((HOST, 0), _handler(inbox)) as webhook:
        threading.Thread(target=webhook.serve_forever, args=(0.05,), daemon=True).start()
        (folder / "alertmanager.yml").write_text(configuration(f"http://{HOST}:{webhook.server_port}", wait))
        address = f"{HOST}:{free_port()}"
        words = [f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data"]
        words += [f"--web.listen-address={address}", "--cluster.listen-address="]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=subprocess.STDOUT)
        try:
            _await_ready(address, process, folder / "log")
            yield Alertmanager(f"http://{address}", inbox)
        finally:
            process.terminate()
            process.wait(timeout=180)
            webhook.shutdown()


def _await_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def said() -> str:
        return log.read_text(errors="replace")[-2000:]

    def ready() -> bool:
        assert process.poll() is None, said()
        with contextlib.suppress(httpx.HTTPError):
            return HTTP.get(f"http://{address}/-/ready").is_success
        return False

    eventually(ready, lambda: f"Alertmanager to be ready: {said()}", PATIENCE)
