"""The agent as the process that operators run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from .world import API_TOKEN, WEBHOOK_TOKEN, payload

DEADLINE = 60.0
"""Seconds that a test waits for something that takes a moment on an idle machine."""


def eventually(check: Callable[[], Any], what: str) -> Any:
    """Poll until check returns something true, and return it."""
    end = time.monotonic() + DEADLINE
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.05)


class AgentProcess:
    """``isolation-agent`` on a free loopback port, with its log in a file."""

    def __init__(self, config: Path, *options: str) -> None:
        self.log_path = config.with_suffix(".log")
        self._log = self.log_path.open("ab")
        self._skip = self._log.tell()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "isolation_agent", "--config", str(config), *options],
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
        )
        try:
            url = self._wait_for_url()
        except BaseException:
            self.process.kill()
            self.process.wait(DEADLINE)
            self._log.close()
            raise
        self.http = httpx.Client(base_url=url, timeout=30.0, trust_env=False)

    @property
    def log(self) -> str:
        """What this process has logged."""
        return self.log_path.read_bytes()[self._skip :].decode()

    @property
    def address(self) -> tuple[str, int]:
        return self.http.base_url.host, int(self.http.base_url.port or 0)

    def _wait_for_url(self) -> str:
        def listening() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log
            return re.search(r"msg=listening address=(\S+)|\"listening\", \"address\": \"([^\"]+)", self.log)

        found = eventually(listening, "listening")
        return f"http://{found[1] or found[2]}"

    def wait_until_ready(self) -> AgentProcess:
        eventually(lambda: self.get("/-/ready").status_code == 200, "ready")
        return self

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path, headers={"Authorization": f"Bearer {API_TOKEN}"})

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, path, headers={"Authorization": f"Bearer {API_TOKEN}"}, **options)

    def post(self, *alerts: dict[str, Any]) -> httpx.Response:
        return self.http.post(
            "/v1/webhook/alertmanager",
            json=payload(*alerts),
            headers={"Authorization": f"Bearer {WEBHOOK_TOKEN}"},
        )

    def actions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/v1/actions").json()["actions"]
        return found

    def wait_for_state(self, state: str) -> dict[str, Any]:
        """Wait until the newest action is in a state, and return it in detail."""

        def there() -> dict[str, Any] | None:
            actions = self.actions()
            return actions[0] if actions and actions[0]["state"] == state else None

        action_id = eventually(there, f"an action that is {state}")["id"]
        found: dict[str, Any] = self.get(f"/v1/actions/{action_id}").json()
        return found

    def children(self) -> list[int]:
        """Process ids of the workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        self.http.close()
        self._log.close()
        return code

    def kill(self) -> None:
        """Let it die at once, workers and all."""
        workers = self.children()
        self.stop(signal.SIGKILL)
        for pid in workers:
            eventually(lambda pid=pid: not alive(pid), f"worker {pid} ends with its master")


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
