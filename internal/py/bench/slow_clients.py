"""How long a health check takes beside slow clients, and what a request costs: our server and others.

Others are measured as far as they are installed:

    .build/uv/bin/uv run --with cheroot==11.1.2 --with gunicorn==27.0.1 \\
        python internal/py/bench/slow_clients.py

Every server has eight threads and serves the same application. Slow clients
send the beginning of a request and nothing more; silent ones send nothing.
"""

# ruff: noqa: PLC0415, T201 - servers are imported where they run; this prints a table

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

THREADS = 8
ASKED = 20
"""Health checks of a case."""
MOST = 30.0
"""Seconds after which a health check has failed."""
SLOW = b"POST /v1/webhook HTTP/1.1\r\nHost: x\r\nContent-Le"
CASES: dict[str, tuple[int, bytes]] = {
    "nobody else": (0, b""),
    "16 slow": (16, SLOW),
    "200 slow": (200, SLOW),
    "200 silent": (200, b""),
}


def application(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "8")])
    return [b"healthy\n"]


def serve_vigia(port: int) -> None:
    from vigia_service.server import Limits, Server, listen

    Server(application, [listen(f"127.0.0.1:{port}")], Limits(threads=THREADS)).run()


def serve_cheroot(port: int) -> None:
    from cheroot.wsgi import Server  # type: ignore[import-not-found]

    Server(("127.0.0.1", port), application, numthreads=THREADS, request_queue_size=1024).start()


def serve_gunicorn(port: int) -> None:
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):
        def load_config(self) -> None:
            options = {
                "bind": f"127.0.0.1:{port}",
                "threads": THREADS,
                "worker_class": "gthread",
                "loglevel": "error",
            }
            for key, value in options.items():
                self.cfg.set(key, value)

        def load(self) -> Any:
            return application

    Application().run()


SERVERS: dict[str, tuple[Callable[[int], None], str]] = {
    "vigia_service": (serve_vigia, "vigia-internal"),
    "cheroot": (serve_cheroot, "cheroot"),
    "gunicorn": (serve_gunicorn, "gunicorn"),
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def health_check(port: int) -> float:
    """Ask once, on a connection of its own; return the seconds it took, or infinity."""
    begin = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=MOST) as sock:
            sock.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while not answer.endswith(b"healthy\n"):
                data = sock.recv(4096)
                if not data:
                    return float("inf")
                answer += data
    except OSError:
        return float("inf")
    return time.perf_counter() - begin


@contextlib.contextmanager
def running(name: str) -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, __file__, "--serve", name, "--port", str(port)])
    try:
        deadline = time.monotonic() + MOST
        while health_check(port) > MOST and time.monotonic() < deadline:
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(name: str, count: int, sent: bytes) -> list[float]:
    """Return the times of health checks beside so many clients; gives up after one that failed."""
    with running(name) as port, contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=MOST))
            sock.sendall(sent)
        time.sleep(0.5)  # what the others do with their threads, they have done now
        taken: list[float] = []
        while len(taken) < ASKED and (not taken or taken[-1] < 1.0):
            taken.append(health_check(port))
        return taken


def processor_time(name: str, *, keep: bool) -> float:
    """Return the seconds of processor time that a server takes for a request, kernel included."""
    with running(name) as port:
        pids = _processes(os.getpid()) - {os.getpid()}
        before = sum(map(_spent, pids))
        clients = [threading.Thread(target=_requests, args=(port, 500, keep)) for _ in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return (sum(map(_spent, pids)) - before) / 2000


def _requests(port: int, count: int, keep: bool) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    for _ in range(count):
        connection.request("GET", "/-/healthy", headers={"Connection": "keep-alive" if keep else "close"})
        connection.getresponse().read()
        if not keep:
            connection.close()
    connection.close()


def _processes(pid: int) -> set[int]:
    """Return a process and all below it."""
    children = [c for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    return {pid}.union(*(_processes(int(c)) for c in children))


def _spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown(seconds: float) -> str:
    return f"over {MOST:.0f} s" if seconds == float("inf") else f"{seconds * 1e3:,.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        SERVERS[options.serve][0](options.port)
        return 0
    print(f"{'server':<24}{'beside':<14}{'median':>12}{'worst':>12}{'median, ours = 1':>18}")
    ours: dict[str, float] = {}
    for name, (_, distribution) in SERVERS.items():
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name:<24}is not installed")
            continue
        for case, (count, sent) in CASES.items():
            taken = measure(name, count, sent)
            worst = max(taken)
            median = statistics.median(taken)
            ours.setdefault(case, median)
            row = (shown(median), shown(worst), f"{median / ours[case]:,.1f}")
            print(f"{name + ' ' + version:<24}{case:<14}{row[0]:>12}{row[1]:>12}{row[2]:>18}", flush=True)
        for case, keep in (("new connection", False), ("kept", True)):
            spent = processor_time(name, keep=keep)
            ours.setdefault(case, spent)
            ratio = f"{spent / ours[case]:,.1f}"
            print(
                f"{name + ' ' + version:<24}{case:<16}{spent * 1e3:>9.2f} ms{'processor':>12}{ratio:>16}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
