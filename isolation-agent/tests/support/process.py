"""The agent as the process that operators run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from vigia_testing import DEADLINE, eventually

from .world import API_TOKEN, WEBHOOK_TOKEN, payload


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
        self.http = httpx.Client(base_url=url, timeout=DEADLINE, trust_env=False)

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

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        self.http.close()
        self._log.close()
        return code

    def kill(self) -> None:
        """Let it die at once."""
        self.stop(signal.SIGKILL)
