"""Samples to a store: a real VictoriaMetrics, which takes InfluxDB 2's writes, down and up again."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from portkit import free_port

from vigia.campaign import folder, influx
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Record, Series
from vigia.errors import VigiaError
from vigia_testing import DEADLINE, eventually

CAMPAIGN = {
    "version": 1,
    "name": "sent",
    "title": "T",
    "question": "Q?",
    "study": "isolation",
    "topology": "e3",
    "standard": {"designs": [{"factors": {"path": ["direct"]}}], "stop": {"repetitions": 9}},
}


class Server:
    """A VictoriaMetrics that can be stopped and started again on the same data."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [
            "victoria-metrics",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            f"-storageDataPath={self._directory}",
        ]
        argv += ["-retentionPeriod=100y", "-search.latencyOffset=0s", "-influx.maxLineSize=65536"]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self._healthy, "VictoriaMetrics answers")

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=DEADLINE, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(timeout=DEADLINE)
            self._process = None

    def points(self, selector: str) -> list[float]:
        with httpx.Client(base_url=self.url, timeout=DEADLINE, trust_env=False) as http:
            http.get("/internal/force_flush")
            answer = http.get("/api/v1/export", params={"match[]": selector})
        return [v for line in answer.text.splitlines() for v in json.loads(line)["values"]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    assert shutil.which("victoria-metrics"), "apt-get install victoria-metrics"
    made = Server(tmp_path / "store")
    yield made
    made.stop()


@pytest.fixture
def measured(tmp_path: Path) -> Folder:
    manifest = {"environment": {}, "topology": ""}
    return folder.create(tmp_path / "campaigns", Campaign.model_validate(CAMPAIGN), "standard", manifest)


def add(f: Folder, run: int, values: list[float]) -> None:
    began = time.time() - 60 + run
    f.add(
        Record(run, run, 0, {"path": "direct"}, began, 1.0, len(values)), [Series("rtt_small", "s", values)]
    )


def test_nothing_is_lost_while_the_store_is_away(server: Server, measured: Folder) -> None:
    store = influx.Store(server.url, "vigia", "vigia", "secret-token")
    spool = influx.Spool(measured, store)
    for run in range(3):
        add(measured, run, [0.001 * (i + 1) for i in range(40)])
    assert spool.drain(patience=0) == 3
    assert "cannot be reached" in spool.problem
    assert "secret-token" not in spool.problem + repr(store)
    server.start()
    assert spool.drain(patience=60) == 0
    assert spool.problem == ""
    selector = 'vigia_campaign_value{campaign="' + measured.name + '",metric="rtt_small"}'
    eventually(lambda: len(server.points(selector)) == 120, "all points are there")
    server.stop()
    add(measured, 3, [0.5, float("nan"), 0.7])
    assert spool.drain(patience=0) == 1
    server.start()
    again = influx.Spool(folder.open_folder(measured.path), store)
    assert again.waiting == 1, "what was taken is not sent again"
    assert again.drain(patience=60) == 0
    eventually(lambda: len(server.points(selector)) == 122, "the rest is there")
    lost = 'vigia_campaign_lost{campaign="' + measured.name + '"}'
    eventually(lambda: server.points(lost) == [1], "the lost packet is a point of its own")


def test_a_campaign_that_was_merged_can_still_be_sent(server: Server, measured: Folder) -> None:
    for run in range(3):
        add(measured, run, [1.0, 2.0])
    measured.merge()
    server.start()
    assert influx.Spool(measured, influx.Store(server.url, "o", "b", "")).drain(patience=60) == 0
    eventually(lambda: len(server.points('vigia_campaign_value{run="2"}')) == 2, "run 2 is there")


def test_line_protocol_is_escaped(measured: Folder) -> None:
    record = Record(1, 0, 0, {"path": "a b,c=d"}, 1000.0, 1.0, 2)
    measured.add(record, [Series("rtt", "s", [0.25, float("nan")])])
    assert list(influx.lines("c", record, measured.samples_of(1))) == [
        r"vigia_campaign,campaign=c,connection=0,metric=rtt,path=a\ b\,c\=d,run=1 value=0.25 1000000000000",
        r"vigia_campaign,campaign=c,connection=0,metric=rtt,path=a\ b\,c\=d,run=1 lost=1i 1000000001000",
    ]


def test_where_points_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIGIA_INFLUX_TOKEN", "from-environment")
    assert influx.store_from("http://x", "o", "b", None).token == "from-environment"
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert influx.store_from("http://x", "o", "b", file).token == "from-file"
    with pytest.raises(VigiaError, match=r"cannot be read: No such file"):
        influx.store_from("http://x", "o", "b", tmp_path / "none")
    with pytest.raises(VigiaError, match=r'--influx-url "ftp://x" is not a URL; write for example'):
        influx.store_from("ftp://x", "o", "b", None)
