"""vigia top: what it prints, from whom it takes it, and that names on it do nothing."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, Group
from rich.text import Text

from vigia import console
from vigia.errors import VigiaError
from vigia.lab.model import Lab
from vigia.top import screen
from vigia.top.site import SiteMoment

Vigia = Callable[..., Any]

EVIL = "\x1b[2J[bold]x[/bold]\u202e"


def tenant(name: str, *state: str, **more: Any) -> dict[str, Any]:
    return {"tenant": name, "state": list(state), "bought": 5e6, "sent": 1e6, "loss": 0.0, **more}


def path(name: str, state: str = "slow", **more: Any) -> dict[str, Any]:
    ends = {"src": "n1", "dst": "n2", "tenant": "red", "probe": "stamp-64"}
    return {"path": name, "state": state, "loss": 0.0, "p99": 0.002, "times_usual": 3.0, **ends, **more}


SITE: dict[str, Any] = {
    "version": 1,
    "at": 1_800_000_000.0,
    "alerts": [
        {"name": "VigiaUdpFlood", "severity": "critical"},
        {"name": "VigiaPathLoss", "severity": "warning"},
    ],
    "floods": [{"tenant": "red", "score": 91.0}],
    "limits": [],
    "waiting": 1,
    "kill_switch": False,
    "silent": 2,
    "down": 0,
    "tenants": [
        tenant("red", "floods", "limited", drops={"rate_limit": 40.0, "other": 2.0}),
        tenant("blue", drops={"rate_limit": 0.0}),
        tenant("_infra", bought=None, loss=None),
    ],
    "paths": [path("gre", "loses probes", loss=0.02), path("vxlan"), path("usual", "")],
}


@contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/v1/site"
            self.send_response(status if found else 404)
            self.send_header("Content-Length", str(len(body) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def served(site: Mapping[str, Any]) -> Any:
    return serving(200, json.dumps(site).encode())


def drawn(site: Mapping[str, Any], lines: int | None = None, width: int = 200, **options: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, **options).print(screen.draw(SiteMoment.model_validate(dict(site)), lines))
    return out.getvalue()


def test_the_worst_goes_first_with_words(vigia: Vigia) -> None:
    with served(SITE) as url:
        done = vigia("top", "--url", url, "--once")
    assert done.status == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "08:00:00 UTC 1 flood 2 alerts 1 action waiting for approval 2 silent targets",
        "TENANT STATE BOUGHT SENDS RECEIVES LOST RTT p99 DROPPED",
        "red floods, limited 40.0 Mbit/s 8.00 Mbit/s – 0 % – 42",
        "blue well 40.0 Mbit/s 8.00 Mbit/s – 0 % – first",
        "_infra well – 8.00 Mbit/s – – – 0",
        "PATH FROM TO TENANT PROBE STATE LOST RTT p99 OF USUAL",
        "gre n1 n2 red stamp-64 loses probes 2.00 % 2.00 ms 3x",
        "vxlan n1 n2 red stamp-64 slow 0 % 2.00 ms 3x",
    ]
    assert "\x1b" not in done.stdout, "nobody watches"


def test_where_nobody_watches_it_prints_once_without_being_told(vigia: Vigia) -> None:
    with served(SITE) as url:
        done = vigia("top", "--url", url, "--every", "10m")
    assert done.status == 0 and done.stdout.startswith("08:00:00 UTC")


def test_a_quiet_site() -> None:
    text = drawn({"at": 1_800_000_000.0, "tenants": [tenant("blue")], "paths": [path("a", "")]})
    assert "no flood, no limit, no alert" in text and "no path is worse than usual" in text


def test_json_is_what_was_sent(vigia: Vigia) -> None:
    with served(SITE | {"later_field": [1]}) as url:
        done = vigia("top", "--url", url, "--json")
    assert done.json == SITE | {"later_field": [1]}


def test_rows_fit_the_terminal_and_the_rest_is_counted() -> None:
    many = SITE | {
        "tenants": [tenant(f"t{i}") for i in range(50)],
        "paths": [path(f"p{i}") for i in range(50)],
        "more_tenants": 7,
    }
    text = drawn(many, 24)
    assert len(text.splitlines()) <= 24
    assert "and 48 more tenants" in text and "and 41 more paths" in text
    assert "t49" in drawn(many) and "p49" in drawn(many)


LAB: dict[str, Any] = {
    "at": 1_800_000_000.0,
    "tenants": [
        tenant("_infra", "loses probes", bought=None, sent=622_500.0, received=585_000.0, loss=0.0199, p99=0.371),
        tenant("red", "floods", "limited", "above guarantee", bought=3e7, received=1e6, p99=0.0515),
    ],
    "paths": [
        path("linuxbridge-vxlan", "loses probes", src="node1", dst="node2", tenant="_infra",
             probe="stamp-64-ipv6", loss=0.00361, p99=0.0426, times_usual=17.0),
        path("ovs-openflow-set-priority", src="node2", dst="node1", probe="tcp-connect", p99=0.000513),
    ],
}  # fmt: skip


def test_on_80_columns_what_decides_is_whole() -> None:
    """No number is cut: 51.6… may be 51.6 µs or 51.6 ms."""
    text = drawn(LAB, width=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    for whole in ("1.99 %", "371 ms", "51.5 ms", "4.98 Mbit/s", "0.361 %", "42.6 ms", "513 µs"):
        assert whole in text
    for name in ("_infra", "node1", "node2", "floods, limited, above guarantee", "loses probes", "slow"):
        assert name in text
    assert "DROPPED" not in text and "OF USUAL" not in text, "what is least missed goes first"


def test_columns_move_together_before_one_goes() -> None:
    one = {"at": 1.0, "tenants": [tenant("blue")], "paths": [path("vxlan")]}
    header = "PATH   FROM  TO  TENANT  PROBE     STATE  LOST  RTT p99  OF USUAL"
    assert header in drawn(one, width=len(header))
    closer = "PATH  FROM TO TENANT PROBE    STATE LOST RTT p99 OF USUAL"
    assert closer in drawn(one, width=len(closer))
    assert "OF USUAL" not in drawn(one, width=len(closer) - 1)
    assert "PROBE" in drawn(one, width=len(closer) - 1), "one after the other"


@pytest.mark.parametrize("columns", [60, 72, 80, 100])
def test_long_names_are_cut_and_no_number(columns: int) -> None:
    long = "3f2a7c1e-5b1d-4c55-9d0e-0a1b2c3d4e5f"
    site = LAB | {
        "tenants": [tenant(long, "floods", p99=0.0515)],
        "paths": [path(long, p99=0.0426, tenant=long)],
    }
    lines = drawn(site, width=columns).splitlines()
    assert max(map(len, lines)) <= columns and "51.5 ms" in lines[2] and "42.6 ms" in lines[4]
    assert lines[2].startswith("3f2a7") and lines[4].startswith("3f2a7")


@pytest.mark.parametrize("lines", [1, 5, 8, 24, 200])
def test_a_small_terminal_has_the_worst(lines: int) -> None:
    text = drawn(SITE, lines)
    assert "red" in text and "gre" in text


def test_colours_go_with_words_and_away_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = drawn(SITE, force_terminal=True, color_system="standard")
    assert "\x1b[1;31mfloods, limited" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn(SITE, force_terminal=True)
    assert "floods, limited" in plain and "\x1b[1;31m" not in plain and ";31m" not in plain


def test_names_do_nothing() -> None:
    text = drawn(SITE | {"tenants": [tenant(EVIL, EVIL)], "paths": [path(EVIL, EVIL)]})
    assert "\x1b" not in text and "\u202e" not in text
    assert "[bold]x[/bold]" in text, "names are no markup"


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"<html>", "does not serve a site of vigia-compare"),
        (200, b'{"at": "x"}', "does not serve a site of vigia-compare: at: "),
        (200, json.dumps({"at": 1.0, "tenants": [{"tenant": "x" * 600}]}).encode(), "tenants.0.tenant: "),
        (200, b"[" * 100_000, "does not serve a site of vigia-compare"),
        (200, b" " * (5 << 20), "cannot read the answer"),
        (404, b"", "answers with HTTP status 404; is it vigia-compare?"),
        (503, b"Prometheus \x1b[2Jdoes not answer\n", "does not know: Prometheus"),
    ],
)
def test_what_is_no_site_is_refused(vigia: Vigia, status: int, body: bytes, problem: str) -> None:
    with serving(status, body) as url:
        done = vigia("top", "--url", url, "--once")
    assert done.status == 1 and done.stdout == ""
    assert problem in done.stderr and done.stderr.startswith("vigia: ") and "\x1b" not in done.stderr


def test_nobody_answers(vigia: Vigia) -> None:
    done = vigia("top", "--url", "http://127.0.0.1:1", "--once")
    assert done.status == 1 and "vigia-compare at http://127.0.0.1:1 does not answer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--url", "ftp://x"), '--url "ftp://x" is not the URL of vigia-compare'),
        (("--every", "1ms"), '"1ms" is out of range; write 1s to 10m'),
        (("--every", "often"), '"often" is not a duration; write for example 5s or 1m'),
    ],
)
def test_bad_options(vigia: Vigia, arguments: tuple[str, ...], problem: str) -> None:
    done = vigia("top", *arguments)
    assert done.status == 2 and problem in done.stderr


def test_the_stack_of_the_lab_is_asked(vigia: Vigia, monkeypatch: pytest.MonkeyPatch, demo: Lab) -> None:
    monkeypatch.setattr("vigia.lab.state.running", lambda _: SimpleNamespace(lab=demo))
    asked: list[str] = []

    def look(_: object, url: str) -> Any:
        asked.append(url)
        return SiteMoment.model_validate(SITE), json.dumps(SITE).encode()

    monkeypatch.setattr("vigia.top.site.look", look)
    assert vigia("top", "--once").status == 0
    assert asked == [f"http://{demo.topology.stack_address}:9875"]
    assert vigia("top", "--lab", "never").status == 0


# Watching


class Ticks:
    """Time that passes at once, and ends as Ctrl-C does."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.asked: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


def test_watching_looks_again_until_it_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = Ticks(3)
    monkeypatch.setattr(console.time, "sleep", ticks.sleep)
    rooms: list[int] = []

    def draw(lines: int) -> Text:
        rooms.append(lines)
        if len(rooms) == 3:
            raise VigiaError("away \x1b[2J")
        return Text(f"look {len(rooms)}")

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("COLUMNS", "80")
    console.watch(draw, 2.0)
    assert ticks.asked == [2.0] * 4 and rooms == [19] * 4
    out = capsys.readouterr().out
    assert "look 1" in out and "look 4" in out
    after = out[out.index("away") :]
    assert "look 2" in after, "what was seen last stays below what is wrong"
    assert r"\x1b[2J" in after


def test_a_first_look_that_fails_is_an_error() -> None:
    def draw(_: int) -> Group:
        raise VigiaError("away")

    with pytest.raises(VigiaError, match="away"):
        console.watch(draw, 1.0)
