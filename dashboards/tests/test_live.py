"""The page of what panels find: values as people read them, and a page that has every panel."""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from vigia_dashboards import live
from vigia_dashboards.live import Found, every_panel, offered, shown, spark
from vigia_dashboards.model import Query, Unit, Variable
from vigia_prometheus import Prometheus

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/panels.md"


class _Prometheus(BaseHTTPRequestHandler):
    """Answers every query with two series, or with none."""

    knows: Callable[[str], bool] = staticmethod(lambda query: "vigia_compare_loss" not in query)

    def do_GET(self) -> None:
        if urlsplit(self.path).path.endswith("/buildinfo"):
            self._answer({"status": "success", "data": {"version": "2.42.0"}})
        else:
            self._answer({"status": "success", "data": ["one", "two"]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = {k: v[0] for k, v in parse_qs(raw).items()}
        if re.search(r"\$(?!\d)", asked["query"]):
            self._answer({"status": "error", "error": "a macro was left"})
        elif self.path.endswith("/query_range"):
            self._answer(
                {"status": "success", "data": {"resultType": "matrix", "result": self.series(asked)}}
            )
        else:
            one = [{"metric": {}, "value": [float(asked["time"]), "7"]}] if self.knows(asked["query"]) else []
            self._answer({"status": "success", "data": {"resultType": "vector", "result": one}})

    def series(self, asked: Mapping[str, str]) -> list[dict[str, object]]:
        """Return what a range query finds."""
        if not self.knows(asked["query"]):
            return []
        at = float(asked["end"])
        return [
            {"metric": {"path": "a|b", "job": "j"}, "values": [[at, "1"], [at, "3"]]},
            {"metric": {}, "values": [[at, "NaN"]]},
        ]

    def _answer(self, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def answering(handler: type[_Prometheus]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def url() -> Iterator[str]:
    with answering(_Prometheus) as url:
        yield url


def test_the_page_has_every_query_of_every_panel(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "panels.md"
    assert live.main(["--prometheus", url, "--write", str(file)]) == 0
    said = f"{file}: what {len(list(every_panel()))} panels find; every one that must have data has some\n"
    assert capsys.readouterr().out == said
    text = file.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| panel |")]
    assert len(rows) == sum(len(panel.queries) for _, panel in every_panel())
    assert "Prometheus 2.42.0, 7 targets up" in text and "2 values (`one`, `two`)" in text
    assert "`path=a\\|b`" in text and "▁█" in text, "the series with numbers is shown"
    assert "no data; normal if no path lost probes" in text


def test_a_panel_that_must_have_data_and_has_none_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A store that knows alerts alone: the panels that may be empty are no error, all others are."""

    class AlertsAlone(_Prometheus):
        knows = staticmethod(lambda query: "ALERTS" in query or query.startswith("count(up =="))

    with answering(AlertsAlone) as url:
        assert live.main(["--prometheus", url]) == 1
    written = capsys.readouterr()
    named = {
        line.removeprefix("vigia_dashboards.live: ").split(" has no data")[0]
        for line in written.err.splitlines()
    }
    expected = {f"{d.uid}: {p.title}" for d, p in every_panel() if not p.quiet}
    known = {
        f"{d.uid}: {p.title}"
        for d, p in every_panel()
        if any(AlertsAlone.knows(q.expression) for q in p.asked)
    }
    assert {"vigia-now: Alerts that fire"} <= known < expected
    assert named == expected - known
    assert "| Paths measured |" in written.out, "the page is written nevertheless"


def test_panels_that_have_data_a_little_later_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every query is asked once in vain, as of a site that has just started."""
    monkeypatch.setattr(live, "AGAIN", 0.01)
    asked: set[str] = set()

    def a_second_time(query: str) -> bool:
        before = query in asked
        asked.add(query)
        return before

    class Young(_Prometheus):
        knows = staticmethod(a_second_time)

    file = tmp_path / "panels.md"
    with answering(Young) as url:
        assert live.main(["--prometheus", url, "--write", str(file), "--wait", "600"]) == 0
    assert "| Paths measured |" in file.read_text()


@pytest.mark.parametrize("wait", ["-1", "nan", "1e9"])
def test_a_wait_that_is_none_is_refused(wait: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        live.main(["--wait", wait])
    assert end.value.code == 2 and "write 0 to 3600 seconds" in capsys.readouterr().err


def test_prometheus_away_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert live.main(["--prometheus", "http://127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert "is it running?" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("where", ["ftp://x", "127.0.0.1:9090", "http://", "http://x:99999", "http://x/?a=b"])
def test_an_address_that_is_none_is_named(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        live.main(["--prometheus", where])
    assert end.value.code == 2
    fix = "is not the URL of a Prometheus server; write for example http://127.0.0.1:9090"
    assert f"--prometheus {where}: {fix}" in capsys.readouterr().err


class _Strange(_Prometheus):
    """Answers ranges with what no Prometheus says."""

    answer: bytes = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"status": "success"}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": 7}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, 2]]}]}}',
        b'{"status": "error", "error": "two\\nlines \\u001b[31m"}',
    ],
)
def test_an_answer_that_is_none_is_one_line(
    answer: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """And the page of before stays."""
    file = tmp_path / "panels.md"
    file.write_text("before")
    with answering(type("Handler", (_Strange,), {"answer": answer})) as url:
        assert live.main(["--prometheus", url, "--write", str(file)]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "cannot write the page: Prometheus at http://127" in said
    assert "\x1b" not in said and file.read_text() == "before"


def test_a_variable_is_asked_for_by_its_label_and_metric() -> None:
    asked: list[str] = []

    class Asked(_Prometheus):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

    with answering(Asked) as url, Prometheus(url) as server:
        assert offered(server, Variable("dst", "To", "label_values(vigia_probe_sent_total, dst)")) == [
            "one",
            "two",
        ]
    parts = urlsplit(asked[0])
    assert (parts.path, parse_qs(parts.query)) == (
        "/api/v1/label/dst/values",
        {"match[]": ["vigia_probe_sent_total"]},
    )


def test_the_sample_is_the_series_with_the_most_numbers() -> None:
    nothing, one, two = [math.nan, math.inf], [1.0, math.nan], [1.0, 2.0]
    assert Found(Query("x"), []).sample is None
    assert Found(Query("x"), [({"a": "1"}, nothing), ({"a": "2"}, one)]).sample == ({"a": "2"}, one)
    assert Found(Query("x"), [({"a": "1"}, two), ({"a": "2"}, two)]).sample == ({"a": "1"}, two)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5e-6, "s", "1.50 µs"),
        (0.0, "s", "0 s"),
        (0.012, "percentunit", "1.20 %"),
        (2.5e8, "bps", "250 Mbit/s"),
        (2048.0, "Bps", "2.00 KiB/s"),
        (12.0, "pps", "12.0 packets/s"),
        (0.5, "ops", "0.500 operations/s"),
        (3.0, "cps", "3.00 events/s"),
        (3.0, "cpm", "3.00 a minute"),
        (-1234.0, "bytes", "-1.21 KiB"),
        (3.0, "short", "3"),
        (12345.0, "none", "12 345"),
        (2.5, "short", "2.50"),
        (math.nan, "s", "no number"),
        (math.inf, "short", "no number"),
        (1e12, "dateTimeFromNow", "2001-09-09T01:46:40+00:00"),
    ],
)
def test_quantities(value: float, unit: Unit, text: str) -> None:
    assert shown(value, unit) == text


def test_sparks() -> None:
    assert spark([0.0, 1.0, math.nan, 0.5]) == "▁█▅"
    assert spark([2.0, 2.0]) == "▁▁"
    assert spark([math.nan]) == "–"
    assert len(spark(list(range(61)))) <= live.MAX_SPARKS


def test_the_page_in_the_docs_has_every_panel_that_there_is() -> None:
    shown = {line.split(" | ")[0].removeprefix("| ") for line in DOCUMENT.read_text().splitlines()}
    missing = {panel.title for _, panel in every_panel()} - shown
    assert not missing, "write it again: make demo, then make panels"
