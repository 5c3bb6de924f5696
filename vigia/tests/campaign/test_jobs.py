"""The closed list of jobs: their command lines and their bounds."""

from __future__ import annotations

import pytest

from vigia.campaign import jobs

CLIENT = {"kind": "iperf3-client", "address": "10.0.0.1", "port": 5201, "duration": 2}


def test_command_lines() -> None:
    tcp = jobs.adapter.validate_python(
        {**CLIENT, "threads": 10, "buffer": 262144, "message": 57344, "warm_up": 1.5}
    )
    words = " ".join(jobs.argv(tcp, "/bin/probe", "python"))
    assert words == (
        "iperf3 --client 10.0.0.1 --port 5201 --json --connect-timeout 10000 --time 2 --parallel 10 "
        "--omit 2 --window 262144 --length 57344"
    )
    udp = jobs.adapter.validate_python(
        {**CLIENT, "protocol": "udp", "rate": 100_000_000, "threads": 10, "both_ways": True}
    )
    assert "--udp --bitrate 10000000 --bidir" in " ".join(jobs.argv(udp, "", "")), (
        "iperf3 counts the rate per stream"
    )
    probe = jobs.Probe(source="10.0.0.2", address="10.0.0.1", count=5, interval=0.0005)
    assert jobs.argv(probe, "/bin/probe", "")[:2] == ["/bin/probe", "once"]
    assert "500us" in jobs.argv(probe, "/bin/probe", "")


@pytest.mark.parametrize(
    "given",
    [
        {**CLIENT, "address": "10.0.0.1; reboot"},
        {**CLIENT, "port": 22},
        {**CLIENT, "duration": 100_000},
        {**CLIENT, "netns": "../../proc/1/ns/net"},
        {**CLIENT, "netns": "-x"},
        {**CLIENT, "extra": 1},
        {"kind": "shell", "command": "reboot"},
        {"kind": "ping", "source": "10.0.0.1", "address": "10.0.0.2", "count": 10**9},
    ],
)
def test_a_job_is_data_within_bounds(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        jobs.adapter.validate_python(given)
