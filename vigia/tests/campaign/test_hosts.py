"""Jobs on this machine: what their exit means, and servers that listen before anybody connects."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from portkit import free_port

from vigia.campaign import hosts
from vigia.campaign.hosts import LocalHost
from vigia.campaign.jobs import Benchmark, IperfClient, IperfServer, Ping, Probe
from vigia.errors import VigiaError
from vigia.host import processes

LOOPBACK = "127.0.0.1"


def program(directory: Path, text: str) -> Path:
    """A program that stands for vigia-probe: what it prints and how it ends is the job's outcome."""
    file = directory / "probe"
    file.write_text(f"#!{sys.executable}\nimport sys, json\n{text}\n")
    file.chmod(0o755)
    return file


PROBE = Probe.model_validate({"source": LOOPBACK, "address": LOOPBACK, "count": 2, "interval": 0.001})


def test_what_a_program_printed_is_returned_also_if_packets_were_lost(tmp_path: Path) -> None:
    for status in (0, 1):
        probe = program(tmp_path, f"print(json.dumps(sys.argv[1:])); sys.exit({status})")
        words = json.loads(LocalHost(probe).run(PROBE))
        assert words[:2] == ["once", "--json"]
        assert words[words.index("--to") + 1] == f"{LOOPBACK}:862"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sys.exit(0)", "exit status 0"),
        ("print(' '); sys.exit(1)", "exit status 1"),
        ("print('{}'); sys.exit(2)", "exit status 2"),
        ("sys.exit('cannot open a socket')", "cannot open a socket"),
    ],
)
def test_a_program_that_did_not_measure_is_a_failure(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(VigiaError, match=message):
        LocalHost(program(tmp_path, text)).run(PROBE)


def test_a_program_that_is_missing_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(VigiaError, match="nowhere"):
        LocalHost(tmp_path / "nowhere").run(PROBE)


def test_a_job_in_a_namespace_that_is_not_there(tmp_path: Path, root: None) -> None:
    job = PROBE.model_copy(update={"netns": "vigia-test-none"})
    with pytest.raises(VigiaError, match="vigia-test-none"):
        LocalHost(program(tmp_path, "print(1)")).run(job)


def test_echoes_over_loopback(tmp_path: Path, root: None) -> None:
    # ping waits for the last answer no longer than the interval.
    job = Ping.model_validate({"source": LOOPBACK, "address": LOOPBACK, "count": 2, "interval": 2})
    printed = LocalHost(tmp_path).run(job)
    assert printed.count("icmp_seq=") == 2


def test_a_server_listens_when_the_body_begins_and_is_gone_afterwards(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    server = IperfServer.model_validate({"address": LOOPBACK, "port": free_port()})
    client = IperfClient.model_validate(
        {"address": LOOPBACK, "port": server.port, "duration": 1, "protocol": "udp", "rate": 1_000_000}
    )
    with host.serving(server):
        report = json.loads(host.run(client))
    assert report["end"]["sum"]["packets"] > 0
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, server.port), 5):
        pass


def test_a_server_whose_client_never_comes_is_ended(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    server = IperfServer.model_validate({"address": LOOPBACK, "port": free_port()})
    with pytest.raises(ZeroDivisionError), host.serving(server):
        raise ZeroDivisionError
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, server.port), 5):
        pass


def test_a_server_that_cannot_listen_says_why(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        server = IperfServer.model_validate({"address": LOOPBACK, "port": taken.getsockname()[1]})
        with (
            pytest.raises(VigiaError, match=rf"the iperf3 server on {LOOPBACK}:\d+ ended: .*in use"),
            LocalHost(tmp_path).serving(server),
        ):
            pass


def test_a_server_that_never_listens_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_READY_SECONDS", 0.05)
    monkeypatch.setattr(processes, "listens", lambda pid, port: False)
    server = IperfServer.model_validate({"address": LOOPBACK, "port": free_port()})
    with (
        pytest.raises(VigiaError, match=r"does not listen after 0\.05 s"),
        LocalHost(tmp_path).serving(server),
    ):
        pass


def test_a_benchmark_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    job = Benchmark.model_validate({"what": "linpack", "size": 50})
    assert json.loads(LocalHost(tmp_path).run(job))["linpack"] > 0
    stranger = LocalHost(tmp_path, python="/bin/echo").run(job)
    assert stranger.split() == ["-m", "vigia.campaign.benchmarks", "linpack", "50"]
