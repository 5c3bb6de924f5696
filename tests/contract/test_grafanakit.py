"""The tour of dashboards sees what is wrong: against a stand-in that breaks in known ways, for want of a Grafana.

The tour of a real one is in the end-to-end tests and needs GRAFANA_HOME or an image.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grafanakit
import pytest

from vigia_dashboards.pages import PAGES

SERVER = """#!{python}
import json, pathlib, re, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
ini = pathlib.Path(next(a for a in sys.argv if a.startswith("--config=")).split("=", 1)[1])
port = int(re.search(r"http_port = (\\d+)", ini.read_text())[1])
provisioning = pathlib.Path(re.search(r"provisioning = (.+)", ini.read_text())[1])
provider = next((provisioning / "dashboards").glob("*.yaml")).read_text()
folder = pathlib.Path(re.search(r"path: (.+)", provider)[1].strip())
print("level=info msg=up", next((provisioning / "datasources").glob("*.yaml")).read_text(), flush=True)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        body, status, kind = "{{}}", 200, "application/json"
        if path == "/api/health":
            body = json.dumps({{"database": "ok"}})
        elif path == "/api/ds/query":
            broken = "vigia-self" in self.path
            status, body = (400, json.dumps({{"error": "bad query"}})) if broken else (200, "{{}}")
        elif path.startswith("/d/"):
            uid, kind = path[3:], "text/html"
            document = json.loads((folder / f"{{uid}}.json").read_text())
            panels = [p for row in document["panels"] for p in row.get("panels") or [row] if p["type"] != "row"]
            if uid == "vigia-slo":
                panels = panels[1:]
            mark = "<i data-testid='data-testid Panel status error' aria-label='no data source'></i>"
            body = "".join(f"<section><h2>{{p['title']}}</h2></section>" for p in panels)
            body += mark if uid == "vigia-host" else ""
            links = {{"vigia-path": ["/d/vigia-none", "/d/vigia-path?var-src=%E2%80%93&from=1", "/d/vigia-slo?from=NaN"]}}
            for link in links.get(uid, ["/d/vigia-path?var-src=lb1&from=1", "/d/vigia-now/now"]):
                body += f"<div class='react-grid-item'><a href='{{link}}'>open</a></div>"
            body += f"<script>fetch('/api/ds/query?' + '{{uid}}')</script>"
            body += "<script>nothing.there()</script>" if uid == "vigia-openflow" else ""
            if uid == "vigia-studies":
                print("level=error msg=provisioning", flush=True)
        raw = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
    def log_message(self, *args):
        pass

ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_the_tour_finds_what_is_broken_and_takes_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "home/bin/grafana"
    program.parent.mkdir(parents=True)
    program.write_text(SERVER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("GRAFANA_HOME", str(tmp_path / "home"))
    assert grafanakit.missing() == ""
    folder = tmp_path / "run"
    folder.mkdir()
    with grafanakit.grafana(folder, "http://127.0.0.1:1234") as server:
        wrong = {"vigia-self", "vigia-slo", "vigia-host", "vigia-openflow", "vigia-studies", "vigia-path"}
        pages = [p for p in PAGES if p.uid in {*wrong, "vigia-fleet"}]
        monkeypatch.setattr(grafanakit, "PATIENCE", 30_000)
        seen = grafanakit.look(server, pages, tmp_path)
        errors = server.errors()
    problems = {uid: " ".join(s.problems) for uid, s in seen.items()}
    assert "bad query" in problems["vigia-self"]
    assert "is not there" in problems["vigia-slo"]
    assert "panel error: no data source" in problems["vigia-host"]
    assert "script:" in problems["vigia-openflow"]
    assert problems["vigia-path"].count("link to nowhere: /d/vigia-") == 3
    assert problems["vigia-fleet"] == problems["vigia-studies"] == ""
    assert errors == ["level=error msg=provisioning"]
    assert all(s.queries == 1 and s.picture.stat().st_size > 1000 for s in seen.values())
    assert "http://127.0.0.1:1234" in (folder / "console.log").read_text()


def test_a_home_without_grafana_is_an_error_not_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFANA_HOME", str(tmp_path))
    assert grafanakit.missing() == ""
    with pytest.raises(AssertionError, match="has neither bin/grafana nor"), grafanakit.grafana(tmp_path, ""):
        pass


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAFANA_HOME", raising=False)
    monkeypatch.setattr(grafanakit, "_image", lambda: "")
    assert "GRAFANA_HOME" in grafanakit.missing() and "registry" in grafanakit.missing()
    monkeypatch.setattr(grafanakit, "_image", lambda: "grafana/grafana:11.6.0")
    assert grafanakit.missing() == ""
