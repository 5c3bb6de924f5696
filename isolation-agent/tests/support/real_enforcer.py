"""A node with a tenant's port and the real vigia-enforcer on it, and traffic from the tenant."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml
from portkit import free_port

from vigia_testing import DEADLINE, eventually

from .fake_enforcer import TOKEN
from .world import GUARANTEE, PORT, secret

BINARY = Path(__file__).resolve().parents[3] / "bin/vigia-enforcer"
ADDRESS = "10.77.0.1"
PACKETS = 5000
NEW_FLOWS = 4000
CEILING = 12_500_000

# Datagrams of 1 000 bytes to ever other ports, so many in 20 ms: 40 of them are 2 000 a second.
_SENDER = f"""
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end, port, payload = time.monotonic() + 240, 0, bytes(1000)
while time.monotonic() < end:
    for _ in range(int(sys.argv[1])):
        port = (port + 7919) % 60000
        try:
            s.sendto(payload, ("{ADDRESS}", 1024 + port))
        except ConnectionRefusedError:
            pass  # the port of a datagram before is closed
    time.sleep(0.02)
"""


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEADLINE).stdout


_ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7))
print("ready", flush=True)
peer, _ = server.accept()
while data := peer.recv(64):
    peer.sendall(data)
"""

_TALK = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7), timeout=90)
print("ready", flush=True)
for _ in sys.stdin:
    peer.sendall(b"x")
    print("ok" if peer.recv(1) else "gone", flush=True)
"""


class RealEnforcer:
    """``bin/vigia-enforcer`` for one port of tenant red, and the namespaces that it works on."""

    node = "lb1"

    def __init__(self) -> None:
        assert BINARY.exists(), f"{BINARY} is missing; run make build"
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="vigia-real-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._host, self._guest = (f"vigia-test-real-{side}-{os.getpid()}" for side in ("n", "g"))
        try:
            self._make()
            self.start()
        except BaseException:
            self.stop()
            raise

    def _make(self) -> None:
        for name in (self._host, self._guest):
            _run("ip", "netns", "add", name)
            self._stack.callback(_run, "ip", "netns", "del", name)
            _run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run(
            "ip", "-n", self._host, "link", "add", "tap-red", "type", "veth",
            "peer", "name", "eth0", "netns", self._guest,
        )  # fmt: skip
        _run("ip", "-n", self._host, "addr", "add", f"{ADDRESS}/24", "dev", "tap-red")
        _run("ip", "-n", self._guest, "addr", "add", "10.77.0.2/24", "dev", "eth0")
        _run("ip", "-n", self._host, "link", "set", "tap-red", "up")
        _run("ip", "-n", self._guest, "link", "set", "eth0", "up")
        pins = self.folder / "bpf"
        pins.mkdir()
        _run("mount", "-t", "bpf", f"vigia-test-{os.getpid()}", str(pins))
        self._stack.callback(_run, "umount", str(pins))
        port = {"device": "tap-red", "port": PORT, "tenant": "red"}
        (self.folder / "ports.yaml").write_text(yaml.safe_dump({"version": 1, "ports": [port]}))
        config = {
            "node": self.node,
            "netns": self._host,
            "ports_file": str(self.folder / "ports.yaml"),
            "token_file": str(secret(self.folder / "token", TOKEN)),
            "bpf": {"pin_dir": str(pins / "node"), "max_ports": 8},
            "contracts": [
                {
                    "tenant": "red",
                    "guarantee": f"{GUARANTEE * 8}bit",
                    "ceiling": f"{CEILING * 8}bit",
                    "packets_per_second": PACKETS,
                    "new_flows_per_second": NEW_FLOWS,
                }
            ],
        }
        (self.folder / "enforcer.yaml").write_text(yaml.safe_dump(config))

    def start(self) -> None:
        """Start the process, on the address of the last time if there was one."""
        address = getattr(self, "_address", f"127.0.0.1:{free_port()}")
        log_path = self.folder / "log"
        with log_path.open("ab") as log:
            skip = log.tell()
            self._process = subprocess.Popen(
                [str(BINARY), "--config", str(self.folder / "enforcer.yaml"), "--web.listen-address", address],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

        def listening() -> re.Match[str] | None:
            text = log_path.read_text()[skip:]
            assert self._process is not None
            assert self._process.poll() is None, text
            return re.search(r"address=(127\.0\.0\.1:\d+)", text)

        self._address = eventually(listening, "listening")[1]
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=DEADLINE, trust_env=False
        )
        eventually(
            lambda: self.http.get("/-/ready").status_code == httpx.codes.OK, "the enforcer to be ready"
        )
        eventually(self.attached, "the port to be attached")

    def kill(self) -> None:
        """End the process at once; what is in the kernel stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE)
            self.http.close()
            self._process = None

    def stop(self) -> None:
        """End the process and take away everything that was made."""
        self.kill()
        self._stack.close()

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    def state(self) -> dict[str, Any]:
        answer = self.http.get("/v1/state")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def port(self) -> dict[str, Any]:
        """Return the port as the kernel has it, or nothing while it is not known."""
        return next((p for p in self.state()["ports"] if p["port"] == PORT), {})

    def attached(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return bool(self.port().get("attached"))
        return False

    def limit(self) -> dict[str, Any] | None:
        """Return the limit in force, if there is one."""
        found: dict[str, Any] | None = self.port()["limit"]
        return found

    # Traffic

    def flood(self, burst: int = 40) -> subprocess.Popen[bytes]:
        """Let the tenant flood until the end, or until what is returned is killed; burst datagrams in 20 ms."""
        sender = subprocess.Popen(
            ["ip", "netns", "exec", self._guest, sys.executable, "-c", _SENDER, str(burst)]
        )
        self._stack.callback(sender.wait, DEADLINE)
        self._stack.callback(sender.kill)
        return sender

    def export(self) -> str:
        """Start vigia-exporter on the same port and the same programs; returns its address, HOST:PORT."""
        config = {
            "node": self.node,
            "netns": self._host,
            "ports_file": str(self.folder / "ports.yaml"),
            "bpf": {"pin_dir": str(self.folder / "bpf/node"), "max_ports": 8},
        }
        (self.folder / "exporter.yaml").write_text(yaml.safe_dump(config))
        log_path = self.folder / "exporter.log"
        with log_path.open("wb") as log:
            exporter = subprocess.Popen(
                [
                    str(BINARY.with_name("vigia-exporter")),
                    "--config", str(self.folder / "exporter.yaml"), "--web.listen-address", "127.0.0.1:0",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._stack.callback(exporter.wait, DEADLINE)
        self._stack.callback(exporter.kill)

        def listening() -> re.Match[str] | None:
            text = log_path.read_text()
            assert exporter.poll() is None, text
            return re.search(r"address=(127\.0\.0\.1:\d+)", text)

        address: str = eventually(listening, "the exporter to listen")[1]
        return address

    def arrived(self) -> int:
        """Return how many datagrams have come through to the node."""
        out = _run("ip", "netns", "exec", self._host, "nstat", "-asz", "UdpNoPorts", "UdpInDatagrams")
        return sum(int(line.split()[1]) for line in out.splitlines() if line.startswith("Udp"))

    def connect(self) -> Callable[[], bool]:
        """Open a TCP connection from the tenant to the node; what is returned tells whether it still carries."""

        def start(namespace: str, program: str) -> subprocess.Popen[str]:
            argv = ["ip", "netns", "exec", namespace, sys.executable, "-c", program, ADDRESS]
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._stack.enter_context(process)
            self._stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            return process

        start(self._host, _ECHO)
        talker = start(self._guest, _TALK)
        assert talker.stdin is not None
        assert talker.stdout is not None
        said, heard = talker.stdin, talker.stdout

        def carries() -> bool:
            said.write("\n")
            said.flush()
            return heard.readline() == "ok\n"

        return carries
