"""An engine of the tests' own for docker-compose.yml: its data, sockets, mounts and network are nobody else's."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import debiankit
import httpx

from vigia.host import processes, syscalls
from vigia_testing import eventually

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".build" / "compose"
IMAGES = ("init", "vigia-probe", "vigia-exporter", "vigia-enforcer", "vigia-compare", "isolation-agent")
"""Services that stand for one image each."""

PACKAGES = (
    "ca-certificates curl python3 python3-venv libcap2-bin tini prometheus prometheus-alertmanager "
    "prometheus-node-exporter victoria-metrics openvswitch-switch iproute2 iputils-ping ethtool iperf3 "
    "util-linux procps kmod charon-systemd strongswan-swanctl libcharon-extra-plugins "
    "libstrongswan-standard-plugins"
)
"""What the pulled images are replaced by."""

SLOW = 300.0
"""Seconds for what takes a few on an idle machine."""

T = TypeVar("T")


def tree() -> Path:
    """A Debian tree with the packages, as a tar file."""
    return debiankit.tree(PACKAGES)


def _run(argv: list[str], stderr: bool = False, **options: Any) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, **options)
    assert done.returncode == 0, f"$ {' '.join(argv)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr if stderr else done.stdout


class Engine:
    """Docker's engine, in a mount namespace and, unless it has to download, a network namespace of its own."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.socket = scratch / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, apart: bool) -> None:
        """Start it; apart: with a network that has nothing but loopback."""
        binds = "mount --make-rshared / && { mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf; }"
        network = "ip link set lo up" if apart else "true"
        words = [
            *("--data-root", str(CACHE / "engine"), "--exec-root", str(self.scratch / "exec")),
            *("--host", f"unix://{self.socket}", "--pidfile", str(self.scratch / "docker.pid")),
            *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
        ]
        kinds = ["--mount", "--propagation", "private", *(["--net"] if apart else [])]
        argv = [
            *("setpriv", "--pdeathsig", "TERM"),
            "unshare",
            *kinds,
            "sh",
            "-c",
            f'{binds} && {network} && exec dockerd "$@"',
            "dockerd",
            *words,
        ]
        with (self.scratch / "engine.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env=self.environment())
        eventually(self._answers, "the engine answers", SLOW)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError((self.scratch / "engine.log").read_text()[-3000:])
        done = subprocess.run(["docker", "info"], capture_output=True, check=False, env=self.environment())
        return done.returncode == 0

    def stop(self) -> None:
        """Stop it and whatever it left running."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._process = None
        processes.stop(self.members(), self._ours, grace=10)

    def members(self) -> list[int]:
        """Processes of the engine: shims and what they keep."""
        return [pid for pid in processes.all_pids() if self._ours(pid)]

    def _ours(self, pid: int) -> bool:
        return any(str(self.scratch) in word for word in processes.arguments(pid))

    def environment(self) -> dict[str, str]:
        """What docker and docker-compose need to talk to this engine; Debian's programs come first."""
        return {
            **os.environ,
            "PATH": f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ['PATH']}",
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_DOCKER_CLI_BUILD": "1",
            "COMPOSE_HTTP_TIMEOUT": "600",
            "COMPOSE_PROJECT_NAME": "vigia-test",
            "VIGIA_RUN": str(self.scratch / "run"),
        }

    def docker(self, *arguments: str, **options: Any) -> str:
        """Run docker and return what it prints."""
        return _run(["docker", *arguments], env=self.environment(), **options)

    def inside(self, call: Callable[[], T]) -> T:
        """Run call in the engine's network, on a thread of its own."""
        pid = (self.scratch / "docker.pid").read_text().strip()
        found: list[T] = []
        failed: list[BaseException] = []

        def body() -> None:
            try:
                with Path(f"/proc/{pid}/ns/net").open("rb") as f:
                    syscalls.setns(f.fileno())
                found.append(call())
            except BaseException as e:
                failed.append(e)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]


class Stack:
    """The compose file with its offline override on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.profiles = "lab,metrics"
        self.client: dict[str, Any] = {}

    def compose(self, *arguments: str) -> str:
        """Run docker-compose and return what it prints."""
        files = ["-f", "docker-compose.yml", "-f", "docker-compose.offline.yml"]
        environment = {**self.engine.environment(), "COMPOSE_PROFILES": self.profiles}
        return _run(["docker-compose", *files, *arguments], env=environment)

    def images(self) -> None:
        """Make the base image and build the others."""
        base = hashlib.sha256((tree().name + _certificates_digest()).encode()).hexdigest()[:12]
        have = self.engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        if f"vigia-offline/tree:{base}" not in have:
            self.engine.docker("import", str(tree()), "vigia-offline/tree:new")
            target = ["--target", "debian", "--tag", "vigia-offline/debian:local"]
            arguments = ["--network=host", "--build-arg", "TREE=vigia-offline/tree:new", *target, "-"]
            with tempfile.TemporaryFile() as context:
                _context(context)
                context.seek(0)
                self.engine.docker("build", "--quiet", *arguments, stdin=context)
            self.engine.docker("tag", "vigia-offline/debian:local", f"vigia-offline/tree:{base}")
        self.compose("build", "--quiet", *IMAGES)

    def up(self, *services: str) -> None:
        """Start, and wait until every container works."""
        try:
            self.compose("up", "--detach", "--no-build", *services)
            eventually(lambda: not self.unwell(), "every container works", SLOW)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self._complaints()}") from e

    def _complaints(self) -> str:
        """What the containers that do not work say."""
        said = []
        for line in self.unwell():
            if line == "no container":
                continue
            name = line.split()[0]
            logs = self.engine.docker("logs", "--tail", "40", name, stderr=True)
            health = self.engine.docker("inspect", "--format", "{{json .State}}", name)
            said.append(f"--- {line}\n{logs}{health}")
        return "\n".join(said)

    def unwell(self) -> list[str]:
        """Containers that neither work nor have done their work."""
        form = "{{.Names}} {{.Status}}"
        lines = self.engine.docker("ps", "--all", "--format", form).splitlines() or ["no container"]
        return [x for x in lines if "(healthy)" not in x and "Exited (0)" not in x]

    def container(self, service: str) -> dict[str, Any]:
        """What the engine knows of a service's container."""
        label = f"label=com.docker.compose.service={service}"
        name = self.engine.docker("ps", "--all", "--quiet", "--filter", label).strip()
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", name))[0]
        return found

    def size(self, image: str) -> int:
        """Return an image's size in bytes."""
        return int(self.engine.docker("image", "inspect", "--format", "{{.Size}}", image))

    def services(self) -> list[str]:
        """Services that have a container."""
        label = '{{.Label "com.docker.compose.service"}}'
        return sorted(self.engine.docker("ps", "--all", "--format", label).split())

    def get(self, url: str, **options: Any) -> httpx.Response:
        """Ask a part."""

        def ask() -> httpx.Response:
            with httpx.Client(trust_env=False, timeout=90, **self.client) as client:
                return client.get(url, **options)

        return self.engine.inside(ask)

    def read(self, service: str, file: str) -> str:
        """Return what a service's container has in a file."""
        return self.engine.docker("exec", self.container(service)["Id"], "cat", file)

    def listeners(self) -> set[tuple[str, int]]:
        """Every address and port that something in the engine's network listens on."""
        pid = (self.engine.scratch / "docker.pid").read_text().strip()
        rows = [
            line.split()[1].split(":")
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == "0A"  # TCP_LISTEN
        ]
        return {(str(_address(address)), int(port, 16)) for address, port in rows}

    @property
    def scheme(self) -> str:
        """What the parts speak."""
        return "https" if self.client else "http"

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Ask Prometheus."""
        parameters = {"query": expression, **({"time": str(at)} if at else {})}
        answer = self.get(f"{self.scheme}://127.0.0.1:9090/api/v1/query", params=parameters).json()
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def actions(self) -> list[dict[str, Any]]:
        """Ask the isolation agent what it did."""
        token = self.read("isolation-agent", "/etc/vigia/isolation-agent/api.token").strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = self.get(f"{self.scheme}://127.0.0.1:9874/v1/actions", headers=headers)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["actions"]
        return found

    def down(self, *options: str) -> None:
        """Remove the containers; with --volumes their data, too."""
        self.compose("down", "--timeout", "30", *options)


def _address(field: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address of /proc/net/tcp: words of the machine's byte order, in hexadecimal."""
    words = [int(field[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(field), 8)]
    return ipaddress.ip_address(b"".join(words))


def _certificates() -> list[Path]:
    return sorted(Path("/usr/local/share/ca-certificates").glob("*.crt"))


def _certificates_digest() -> str:
    return hashlib.sha256(b"".join(p.read_bytes() for p in _certificates())).hexdigest()


def _context(file: Any) -> None:
    """Write what the base image is built from."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(ROOT / "deploy/docker/offline.Dockerfile", "Dockerfile")
        folder = tarfile.TarInfo("certificates")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for path in _certificates():
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"certificates/{path.name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def remove(scratch: Path) -> None:
    """Remove the scratch folder; what the lab's namespaces were mounted on are plain files here."""
    deadline = time.monotonic() + 120
    while scratch.exists():
        shutil.rmtree(scratch, ignore_errors=True)
        assert time.monotonic() < deadline, f"{scratch} cannot be removed"
        time.sleep(0.2)


def main() -> None:
    """Build the images, so that the test finds them made."""
    scratch = Path(tempfile.mkdtemp(prefix="vigia-compose-"))
    engine = Engine(scratch)
    try:
        engine.start(apart=False)
        Stack(engine).images()
    finally:
        engine.stop()
        remove(scratch)


if __name__ == "__main__":
    main()
