"""The page of what panels find: values as people read them, and a page that has every panel."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from vigia_dashboards import live
from vigia_dashboards.live import every_panel, quantity, spark

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/panels.md"


class _Prometheus(BaseHTTPRequestHandler):
    """Answers every query with two series, or with none."""

    knows: Callable[[str], bool] = staticmethod(lambda query: "vigia_compare_loss" not in query)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
        data: object
        if parts.path.endswith("/buildinfo"):
            data = {"version": "2.42.0"}
        elif "/label/" in parts.path:
            data = ["one", "two"]
        elif "$" in asked["query"]:
            self._answer({"status": "error", "error": "a macro was left"})
            return
        elif not self.knows(asked["query"]):
            data = {"result": []}
        else:
            at = asked.get("time", asked.get("end", "0"))
            data = {
                "result": [
                    {
                        "metric": {"path": "a|b", "job": "j"},
                        "value": [at, "7"],
                        "values": [[at, "1"], [at, "3"]],
                    },
                    {"metric": {}, "value": [at, "7"], "values": [[at, "NaN"]]},
                ]
            }
        self._answer({"status": "success", "data": data})

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


def test_the_page_has_every_query_of_every_panel(url: str, tmp_path: Path) -> None:
    file = tmp_path / "panels.md"
    assert live.main(["--prometheus", url, "--write", str(file)]) == 0
    text = file.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| panel |")]
    assert len(rows) == sum(len(panel.queries) for _, panel in every_panel())
    assert "Prometheus 2.42.0, 7 targets up" in text and "2 values (`one`, `two`)" in text
    assert "`path=a\\|b`" in text and "▁█" in text, "the series with numbers is shown"
    assert "no data; normal if no path lost probes" in text


def test_a_panel_that_must_have_data_and_has_none_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A store that knows alerts alone: the panels that may be empty are no error, all others are."""

    class AlertsAlone(_Prometheus):
        knows = staticmethod(lambda query: "ALERTS" in query or query.startswith("count(up"))

    with answering(AlertsAlone) as url:
        assert live.main(["--prometheus", url]) == 1
    written = capsys.readouterr()
    named = {
        line.removeprefix("vigia_dashboards.live: ").split(" has no data")[0]
        for line in written.err.splitlines()
    }
    expected = {f"{d.uid}: {p.title}" for d, p in every_panel() if not p.quiet}
    assert "vigia-fleet: Alerts firing" in expected and named == expected - {"vigia-fleet: Alerts firing"}
    assert "| Paths measured |" in written.out, "the page is written nevertheless"


def test_prometheus_away_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for where, problem in (("http://127.0.0.1:1", "is Prometheus running?"), ("ftp://x", "is not a URL")):
        assert live.main(["--prometheus", where]) == 1
        said = capsys.readouterr().err
        assert problem in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1.5e-6, "s", "1.5 µs"),
        (0.0, "s", "0 ns"),
        (0.012, "percentunit", "1.2 %"),
        (2.5e8, "bps", "250 Mbit/s"),
        (12.0, "pps", "12 packets/s"),
        (-1234.0, "bytes", "-1.234 kB"),
        (3.0, "short", "3"),
        (math.nan, "s", "no number"),
        (1e12, "dateTimeFromNow", "2001-09-09T01:46:40+00:00"),
    ],
)
def test_quantities(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_sparks() -> None:
    assert spark([0.0, 1.0, math.nan, 0.5]) == "▁█▅"
    assert spark([2.0, 2.0]) == "▁▁"
    assert spark([math.nan]) == "–"
    assert len(spark(list(range(61)))) <= live.MAX_SPARKS


def test_the_page_in_the_docs_has_every_panel_that_there_is() -> None:
    shown = {line.split(" | ")[0].removeprefix("| ") for line in DOCUMENT.read_text().splitlines()}
    missing = {panel.title for _, panel in every_panel()} - shown
    assert not missing, "write it again: make demo, then make panels"
