"""What systemd is told of a service, and when."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from vigia_testing import DEADLINE, start_python

SERVES = """
import os, signal
os.environ["NOTIFY_SOCKET"] = {notify!r}
from vigia_service import logs
from vigia_service.server import Limits, Server, listen
logs.setup()
server = Server(
    lambda environ, start_response: [], [listen("127.0.0.1:0")], Limits(threads=1),
    signals={{signal.SIGHUP: lambda: (print("reload", flush=True), server.stop())}},
)
{before}
server.run()
print("done", flush=True)
"""


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_that_says_it_is_ready_takes_its_signals(tmp_path: Path, abstract: bool) -> None:
    address = f"\0vigia-test-{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(DEADLINE)
        service = start_python(SERVES.format(notify=address.replace("\0", "@"), before=""))
        try:
            assert systemd.recv(64) == b"READY=1"
            service.send_signal(signal.SIGHUP)
            out, err = service.communicate(timeout=DEADLINE)
        finally:
            service.kill()
            service.communicate()
        assert (service.returncode, out, err) == (0, "reload\ndone\n", "")


def test_a_server_beside_others_of_a_process_says_nothing(tmp_path: Path) -> None:
    """Where it does not take the signals, somebody else does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        beside = (
            "import threading\nthreading.Timer(0.1, lambda: (server._ready.wait(), server.stop())).start()\n"
        )
        beside += "t = threading.Thread(target=server.run); t.start(); t.join(); raise SystemExit"
        service = start_python(SERVES.format(notify=str(tmp_path / "notify"), before=beside))
        out, err = service.communicate(timeout=DEADLINE)
        assert (service.returncode, out, err) == (0, "", "")
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(64)


@pytest.mark.parametrize(("notify", "says"), [("", ""), ("/nowhere/notify", "cannot tell systemd that")])
def test_a_service_runs_without_systemd(notify: str, says: str) -> None:
    before = "import threading\nthreading.Timer(0.1, lambda: (server._ready.wait(), server.stop())).start()"
    out, err = start_python(SERVES.format(notify=notify, before=before)).communicate(timeout=DEADLINE)
    assert out == "done\n"
    assert says in err and bool(says) == bool(err), err
