"""A kubectl that answers from a folder, and a server behind its port-forward."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

KUBECTL = f"""#!{sys.executable}
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
with (here / "asked").open("a") as f:
    f.write(json.dumps(words) + "\\n")
answers = json.loads((here / "answers.json").read_text())
if "port-forward" in words:
    target = words[-2]
    if target not in answers["ports"]:
        sys.exit("error: services \\"" + target + "\\" not found")
    print("Forwarding from 127.0.0.1:%d -> 9" % answers["ports"][target], flush=True)
    time.sleep(3600)
kind = words[words.index("get") + 1]
selected = words[words.index("--selector") + 1] if "--selector" in words else ""
answer = answers["get"].get(kind + " " + selected, answers["get"].get(kind))
if answer is None:
    sys.exit("error: the server doesn't have a resource type " + kind)
print(answer if isinstance(answer, str) else json.dumps({{"items": answer}}))
"""


class Cluster:
    """What kubectl answers, and what was asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.get: dict[str, Any] = {}
        self.ports: dict[str, int] = {}
        self.queries: dict[str, list[tuple[dict[str, str], float]]] = {}
        """Samples by a part of the expression."""
        self.alerts: list[dict[str, str]] = []
        self.pages: dict[str, Any] = {}

    def save(self) -> None:
        (self._folder / "answers.json").write_text(json.dumps({"get": self.get, "ports": self.ports}))

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self._folder / "asked").read_text().splitlines()]

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """Answer as Prometheus does, or with a page."""
        if path == "/api/v1/alerts":
            found = [
                {
                    "labels": a,
                    "annotations": {},
                    "state": "firing",
                    "activeAt": "2026-01-01T00:00:00Z",
                    "value": "1",
                }
                for a in self.alerts
            ]
            return {"status": "success", "data": {"alerts": found}}
        if path == "/api/v1/query":
            text = query["query"][0]
            samples = next((s for part, s in self.queries.items() if part in text), [])
            result = [{"metric": k, "value": [1.0, "NaN" if math.isnan(v) else str(v)]} for k, v in samples]
            return {"status": "success", "data": {"resultType": "vector", "result": result}}
        return self.pages.get(path)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    known = Cluster(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Be quiet."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self.reply(known.answer(parts.path, parse_qs(parts.query)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.reply(known.answer(urlsplit(self.path).path, parse_qs(body)))

        def reply(self, found: Any) -> None:
            raw = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    port = server.server_address[1]
    known.ports = {f"service/vigia-{name}": port for name in ("prometheus", "compare", "isolation-agent")}
    yield known
    server.shutdown()
    thread.join()
    server.server_close()
