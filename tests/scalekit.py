"""Running what docs/how-to/scale.md tells people to run, with addresses and folders of a test's own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml
from portkit import free_ports
from prometheuskit import CONTENT, Family, Native, encode

from vigia_testing import eventually

__all__ = [
    "ROOT",
    "Counter",
    "Host",
    "Machines",
    "Program",
    "Replica",
    "block",
    "blocks",
    "free_ports",
    "instant",
    "samples",
    "vm_samples",
]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/how-to/scale.md"

_PROGRAMS = {
    "alertmanager": "prometheus-alertmanager",
    "thanos": str(ROOT / "bin/thanos"),
    "vigia": str(ROOT / ".venv/bin/vigia"),
}
"""Where a program has another name here than on the page, or another place than PATH."""

_BLOCK = re.compile(r"^<!-- test: ([\w-]+) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

HTTP = httpx.Client(trust_env=False, timeout=60.0)


def blocks() -> dict[str, tuple[str, str]]:
    """Return language and text of each block of the page that a test uses, by its name."""
    return {m[1]: (m[2], m[3]) for m in _BLOCK.finditer(PAGE.read_text())}


def block(name: str) -> Any:
    """Return a block of YAML of the page, read."""
    language, text = blocks()[name]
    assert language == "yaml", name
    return yaml.safe_load(text)


@dataclass
class Program:
    """A program of the page, running."""

    name: str
    words: list[str]
    environment: Mapping[str, str]
    log: Path
    ready: str
    """URL that answers 200 once it is up."""
    cwd: Path
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> Program:
        """Start it and wait until it answers; after stop or kill it goes on with what it has on disk."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.words, env={**os.environ, **self.environment}, stdout=log, stderr=log, cwd=self.cwd
            )
        eventually(self._answers, lambda: f"{self.name} to be ready: {self.said()}")
        return self

    def said(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended: {self.said()}"
        with contextlib.suppress(httpx.TransportError):
            return HTTP.get(self.ready).status_code == 200
        return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it and wait for its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(timeout=180)
        self._process = None

    def kill(self) -> None:
        """Let it die at once."""
        self.stop(signal.SIGKILL)


def _program(name: str) -> str:
    """Return where a program of the page is."""
    program = _PROGRAMS.get(name, name)
    found = shutil.which(program)
    assert found, f"{program} is missing; run make test-scale"
    return found


@dataclass
class Host:
    """A machine of the page: /etc/vigia and /var/lib/vigia are folders of it, and its addresses are free ones."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)
    """What stands for an address, or for a time, of the page."""
    programs: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "etc").mkdir(parents=True)
        (self.folder / "lib").mkdir()

    def here(self, text: str) -> str:
        """Return a text of the page or of a shipped file as this machine has it."""
        texts = {"/etc/vigia": f"{self.folder}/etc", "/var/lib/vigia": f"{self.folder}/lib", **self.texts}
        known = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
        return re.sub(rf"({known})\b", lambda m: texts[m[1]], text)

    def put(self, shipped: str, changes: Mapping[str, str]) -> Path:
        """Copy a file of deploy/ below /etc/vigia with this machine's addresses; changes are texts to replace."""
        to = self.folder / "etc" / Path(shipped).relative_to("deploy")
        to.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / shipped).read_text()
        for old, new in changes.items():
            assert old in text, f"{shipped} has no {old}"
            text = text.replace(old, new)
        to.write_text(self.here(text))
        return to

    def targets(self, **jobs: list[dict[str, Any]]) -> None:
        """Write what Prometheus scrapes; names of jobs have _ for -."""
        folder = self.folder / "etc/prometheus/targets"
        folder.mkdir(parents=True, exist_ok=True)
        for job, groups in jobs.items():
            (folder / f"{job.replace('_', '-')}.json").write_text(json.dumps(groups))

    def _words(self, name: str) -> list[str]:
        """Return the command of a block of the page, with this machine's folders and addresses."""
        language, text = blocks()[name]
        assert language == "sh", name
        return shlex.split(self.here(text).replace("\\\n", " "))

    def run(self, name: str) -> None:
        """Run the command of a block of the page, which ends by itself."""
        words = self._words(name)
        ran = subprocess.run([_program(words[0]), *words[1:]], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    def start(self, name: str, ready: str, *more: str, **environment: str) -> Program:
        """Start the command of a block of the page; more are further arguments, environment replaces the page's."""
        words = self._words(name)
        given: dict[str, str] = {}
        while "=" in words[0]:
            key, _, value = words.pop(0).partition("=")
            given[key] = value
        found = _program(words[0])
        log = self.folder / f"{name}.log"
        made = Program(
            name, [found, *words[1:], *more], given | environment, log, self.here(ready), self.folder
        )
        self.programs.append(made)
        return made.start()

    def close(self) -> None:
        """End everything that was started here."""
        for program in self.programs:
            program.kill()


class Counter:
    """A page that counts its scrapes, so that a sample that is missing, or there twice, is seen.

    Beside the count it has a native histogram.
    """

    series = 50

    def __init__(self) -> None:
        self.served = 0
        self._lock = threading.Lock()
        counter = self

        class Target(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = b""  # of a page beside it
                if self.path == "/metrics":
                    with counter._lock:
                        counter.served += 1
                        body = counter._page()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Target)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _page(self) -> bytes:
        values: list[tuple[Mapping[str, str], float]] = [
            ({"series": str(i)}, float(self.served)) for i in range(self.series)
        ]
        delays = Native({1e-3: self.served, 2e-3: self.served})
        return encode(Family("vigia_test_scrape", "gauge", [*values])) + encode(
            Family("vigia_test_delay_seconds", "histogram", [({}, delays)])
        )

    def more(self, count: int) -> int:
        """Wait for so many further scrapes; returns how many there have been."""
        wanted = self.served + count
        eventually(lambda: self.served >= wanted, f"{count} further scrapes")
        return self.served

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


Samples = Mapping[tuple[str, ...], list[tuple[float, float]]]
"""Time stamps and values of each series, by the values of the labels that were asked for."""


def samples(url: str, selector: str, *labels: str) -> Samples:
    """Return every sample that a Prometheus has of a selector's series in the last hour, as it is stored."""
    answer = HTTP.get(f"{url}/api/v1/query", params={"query": f"{selector}[1h]"})
    assert answer.status_code == 200, answer.text
    return {
        tuple(r["metric"].get(name, "") for name in labels): [(t, float(v)) for t, v in r["values"]]
        for r in answer.json()["data"]["result"]
    }


def vm_samples(url: str, selector: str, *labels: str) -> Samples:
    """Return every sample that VictoriaMetrics has of a selector's series."""
    asked: dict[str, str | int] = {"match[]": selector, "start": int(time.time()) - 3600}
    answer = HTTP.get(f"{url}/api/v1/export", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for line in answer.text.splitlines():
        series = json.loads(line)
        key = tuple(series["metric"].get(name, "") for name in labels)
        found.setdefault(key, []).extend(
            (t / 1000, v)
            for t, v in zip(series["timestamps"], series["values"], strict=True)
            if v is not None  # that a series is stale, after a scrape that failed
        )
    return found


def instant(url: str, expression: str, **more: str | float) -> list[dict[str, Any]]:
    """Return what an instant query finds."""
    answer = HTTP.get(f"{url}/api/v1/query", params={"query": expression, **more})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


class Machines:
    """The machines of a test, and the pages that it serves, all of which end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[Host | Counter] = []

    def host(self, name: str, texts: Mapping[str, str]) -> Host:
        """Make a machine; texts are what differs on it from the page."""
        made = Host(self.folder / name, dict(texts))
        self._made.append(made)
        return made

    def counter(self) -> Counter:
        """Serve a page that counts."""
        made = Counter()
        self._made.append(made)
        return made

    def close(self) -> None:
        """End everything."""
        for made in reversed(self._made):
            made.close()


class Replica:
    """One of the two Prometheus servers of a site, on a machine of its own."""

    def __init__(
        self, machines: Machines, name: str, page: str, texts: Mapping[str, str], *more: str
    ) -> None:
        """page is what it scrapes every second, HOST:PORT; texts are what differs from the page, for example the store."""
        self.name = name
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.host = machines.host(name, {"127.0.0.1:9090": f"127.0.0.1:{port}", **texts})
        changes = {
            "scrape_interval: 15s": "scrape_interval: 1s",
            "evaluation_interval: 15s": "evaluation_interval: 1s",
        }
        self.host.put("deploy/prometheus/replica.yml", changes)
        self.host.targets(vigia_exporter=[{"targets": [page], "labels": {"node": "lb1"}}])
        self._more = more

    def start(self) -> Program:
        """Start the program."""
        return self.host.start("replica", f"{self.url}/-/ready", *self._more, VIGIA_REPLICA=self.name)
