"""vigia explain: records in sentences, and where they come from."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from labkit import ROOT

from vigia.explain import record, sentences
from vigia.lab.model import Lab

GOOD: dict[str, Any] = {
    "src": "lb1",
    "dst": "lb2",
    "path": "vxlan",
    "tenant": "blue",
    "probe": "stamp-64",
    "time": "2026-03-01T10:00:00.123456789Z",
    "seconds": 0.4,
    "why": "good",
    "outcomes": {"seconds": 10, "settled": 200, "median_rtt_seconds": 0.0002, "max_rtt_seconds": 0.001},
    "hops": {
        "from": "10.8.1.2:40000",
        "to": "10.8.2.2:862",
        "dscp": 46,
        "hops": [
            {"hop": 1, "outcome": "exceeded", "address": "10.8.1.1", "rtt_seconds": 0.0001},
            {"hop": 2, "outcome": "answered", "address": "10.8.2.2", "rtt_seconds": 0.0002},
        ],
        "reached": True,
        "far_end": {
            "asked": 5,
            "answered": 5,
            "dscp": 46,
            "hops": 1,
            "return_dscp": 46,
            "rtt_seconds": 0.0002,
        },
        "packets": 7,
    },
    "path_mtu": {"bytes": 1500, "outcome": "found", "packets": 30},
    "host": {
        "load1": 0.5,
        "processors": 2,
        "cpu_pressure": 0.25,
        "steal": 0.01,
        "softnet_dropped": 1,
        "socket_dropped": 2,
        "send_refused": 3,
    },
    "host_after": {
        "load1": 0.5,
        "processors": 2,
        "cpu_pressure": 0.25,
        "steal": 0.01,
        "softnet_dropped": 1,
        "socket_dropped": 2,
        "send_refused": 3,
    },
}


def changed(base: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A record with other values; "__" stands between the names of nested fields."""
    made = deepcopy(dict(base))
    for name, value in changes.items():
        *way, last = name.split("__")
        at = made
        for key in way:
            at = at[key]
        at[last] = value
    return made


def bad(**changes: Any) -> dict[str, Any]:
    """A record of loss beside the good one."""
    return changed(GOOD, why="loss", time="2026-03-01T10:05:00Z", last_good=GOOD, **changes)


SILENT = {"hop": 2, "outcome": "silent"}
UNREACHED = {
    "hops__reached": False,
    "hops__far_end": {"asked": 5, "answered": 0},
}


def said(moment: Mapping[str, Any]) -> str:
    return " ".join(sentences.explain(record.Moment.model_validate(dict(moment))))


def test_it_says_whose_record_it_is_and_what_was_lost() -> None:
    text = said(bad(outcomes__lost={"forward": 30, "unknown": 2, "newer": 1}))
    assert text.startswith(
        "From lb1 to lb2 on vxlan (tenant blue, stamp-64), 2026-03-01 10:05:00 UTC: probes were lost. "
        "Of the 200 probes of the 10 s before, 33 were lost (30 on the way there, 1 newer, 2 nobody knows where); "
        "round trips took 200 µs (median), 1.00 ms at most."
    )
    assert "The last good record is from 5 min before." in text


@pytest.mark.parametrize(
    ("changes", "expected", "absent"),
    [
        (
            {},
            "The path reaches the far end through 10.8.1.1: 2 hops. The far end answered 5 of 5 packets "
            "that went all the way. The DSCP arrives as it is sent, 46.",
            "breaks",
        ),
        (
            {**UNREACHED, "hops__hops": [GOOD["hops"]["hops"][0], SILENT]},
            "The path breaks after hop 1: 10.8.1.1 is the last to answer, and nothing comes from hop 2 on, "
            "where 10.8.2.2 was when it was good.",
            "The far end answered",
        ),
        (
            {**UNREACHED, "hops__hops": [{"hop": 1, "outcome": "silent"}]},
            "The path is silent from the first hop on, where 10.8.1.1 was when it was good.",
            "breaks",
        ),
        (
            {
                **UNREACHED,
                "hops__hops": [
                    {"hop": 1, "outcome": "unreachable", "address": "10.8.1.1", "says": "host unreachable"}
                ],
            },
            'The path ends at hop 1: 10.8.1.1 says "host unreachable".',
            "breaks",
        ),
        (
            {
                "hops__hops": [
                    {"hop": 1, "outcome": "exceeded", "address": "10.8.1.9", "unverified": True},
                    GOOD["hops"]["hops"][1],
                ]
            },
            "through 10.8.1.9 (not certain): 2 hops. Hop 1 is 10.8.1.9 (not certain); it was 10.8.1.1 when the "
            "path was good.",
            "breaks",
        ),
        (
            {"hops__hops": [GOOD["hops"]["hops"][1]]},
            "The way has 1 hop; it had 2 when it was good.",
            "breaks",
        ),
        (
            {"hops__far_end__dscp": 8, "hops__far_end__return_dscp": 0},
            "The DSCP is changed on the way there: 46 is sent and 8 arrives; 46 arrived when the path was good. "
            "Answers arrive here with DSCP 0, asked for with 46; 46 came back when the path was good.",
            "arrives as it is sent",
        ),
        (
            {"path_mtu__bytes": 1400},
            "The path MTU is 1400 bytes. It was 1500 bytes when the path was good.",
            "could not be found",
        ),
        (
            {"path_mtu": {"outcome": "unreachable", "error": "no probe was answered", "packets": 8}},
            "The path MTU could not be found (unreachable): no probe was answered. It was 1500 bytes when the "
            "path was good.",
            "The path MTU is",
        ),
        (
            {"host_after__socket_dropped": 12, "host__softnet_dropped": 8, "host_after__softnet_dropped": 8},
            "Dropped on this host in the 0.4 s of the record: 10 by full receive buffers of sockets. "
            "Dropped on this host since the last good record: 7 by processors' backlogs.",
            "nothing.",
        ),
        (
            {
                "host_after__queues": [
                    {"netns": "blue", "device": "eth0", "kind": "htb", "handle": "1:", "dropped": 9}
                ]
            },
            "of the record: 9 by htb 1: of eth0 in blue.",
            "could be read",
        ),
        (
            {"hops": {"hops": [], "error": "its protocol cannot trace hops"}},
            "The path was not traced: its protocol cannot trace hops.",
            "far end",
        ),
        ({"hops__error": "its socket was closed"}, "The trace ended early: its socket was closed.", "breaks"),
        (
            {"beneath": GOOD["hops"], "beneath_path": "direct"},
            "Beneath, path direct reaches the far end through 10.8.1.1: 2 hops.",
            "breaks",
        ),
        (
            {"host__error": "softnet: no such file"},
            "Not all of this host's state could be read: softnet: no such file.",
            "breaks",
        ),
    ],
)
def test_it_says_what_has_changed(changes: Mapping[str, Any], expected: str, absent: str) -> None:
    text = said(bad(**changes))
    assert expected in text
    assert absent not in text


def test_without_a_good_record_it_says_so() -> None:
    text = said(changed(GOOD, why="slow"))
    assert "round trips took longer than the objective allows" in text
    assert "There is no good record of this target to compare with." in text


def test_the_page_shows_what_the_command_prints() -> None:
    """docs/concepts/moments.md has the words of this record: a tunnel whose router beneath stopped forwarding."""
    tunnel = {"hop": 1, "outcome": "answered", "address": "192.168.1.2"}
    beneath = {"beneath": deepcopy(GOOD["hops"]), "beneath_path": "direct"}
    good = changed(
        {**GOOD, **beneath},
        path="linuxbridge-vxlan",
        hops__hops=[tunnel],
        path_mtu__bytes=1450,
        host_after__queues=[],
    )
    silent = {"reached": False, "far_end": {"asked": 5, "answered": 0}}
    broken = {**GOOD["hops"], **silent, "hops": [GOOD["hops"]["hops"][0], SILENT]}
    queue = {"netns": "lb1", "device": "eth0", "kind": "htb", "handle": "1:10", "dropped": 7}
    moment = changed(
        good,
        why="loss",
        time="2026-03-01T10:05:00Z",
        seconds=3.94,
        last_good=good,
        outcomes__lost={"forward": 30, "unknown": 1},
        hops={**GOOD["hops"], **silent, "hops": [{"hop": 1, "outcome": "silent"}]},
        beneath=broken,
        path_mtu={"outcome": "unreachable", "error": "no probe of the smallest size was answered"},
        host__queues=[queue],
        host_after__queues=[queue],
    )
    lines = sentences.explain(record.Moment.model_validate(moment))
    page = (ROOT / "docs/concepts/moments.md").read_text()
    shown = page.split("```console\n$ vigia explain linuxbridge-vxlan\n")[1].split("```")[0]
    assert shown == "\n  ".join(lines) + "\n"


def test_what_a_node_sends_cannot_move_the_cursor() -> None:
    text = said(bad(hops__error="\x1b[2Jgone", hops__hops=[]))
    assert "\x1b" not in text
    assert r"\x1b[2Jgone" in text


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"[]", "no object"),
        (b"{", "not JSON"),
        (b"{}", "node: Field required"),
        (b'{"node": "a", "moments": [{}], "good": []}', "moments.0.src: Field required"),
        (
            json.dumps({"node": "a" * 600, "moments": [], "good": []}).encode(),
            "node: String should have at most 512",
        ),
    ],
)
def test_a_page_that_is_none_is_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        record.page(raw)


# --- the command ---


@contextmanager
def serving(answers: Mapping[str, tuple[int, Any]]) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """A server with an answer for each path; also returns what it was asked."""
    asked: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length).decode()
            url = urlsplit(self.path)
            asked.append(parse_qs(url.query) | parse_qs(body))
            status, content = answers.get(url.path, (404, {}))
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def page(*moments: Mapping[str, Any], good: tuple[Mapping[str, Any], ...] = ()) -> dict[str, tuple[int, Any]]:
    return {"/v1/moments": (200, {"node": "lb1", "moments": list(moments), "good": list(good)})}


def vector(*labels: Mapping[str, str]) -> tuple[int, Any]:
    result = [{"metric": dict(one), "value": [1700000000, "1"]} for one in labels]
    return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_it_asks_for_a_path_and_prints_the_newest_of_each_target(vigia: Callable[..., Any]) -> None:
    older = changed(bad(), time="2026-03-01T09:00:00Z")
    other = changed(bad(), tenant="red", time="2026-03-01T10:06:00Z")
    with serving(page(bad(), older, other)) as (url, asked):
        done = vigia("explain", "vxlan", "--url", url, "--dst", "lb2")
    assert asked == [{"path": ["vxlan"], "dst": ["lb2"], "limit": ["100"]}]
    assert done.status == 0
    blocks = done.stdout.split("\n\n")
    assert [b.splitlines()[0][:50] for b in blocks] == [
        "From lb1 to lb2 on vxlan (tenant red, stamp-64), 2",
        "From lb1 to lb2 on vxlan (tenant blue, stamp-64), ",
    ]
    assert "2026-03-01 10:05:00" in blocks[1]
    assert all(line.startswith("  ") for b in blocks for line in b.splitlines()[1:])


def test_more_records_of_a_target_and_json_as_the_node_sent_it(vigia: Callable[..., Any]) -> None:
    older = changed(bad(), time="2026-03-01T09:00:00Z", later_field=7)
    with serving(page(bad(), older, good=(GOOD,))) as (url, _):
        done = vigia("explain", "vxlan", "--url", url, "--last", "2", "--json")
    assert json.loads(done.stdout) == {"moments": [bad(), older], "good": [GOOD]}


@pytest.mark.parametrize(
    ("good", "said"),
    [
        ((GOOD,), None),
        ((changed(GOOD, time="2026-03-01T10:05:00Z"),), None),
        ((changed(GOOD, time="2026-03-03T10:05:00Z", tenant="red"),), None),
        ((changed(GOOD, time="2026-03-01T10:06:30Z"),), "the newest good record is from 90 s later."),
        ((GOOD, changed(GOOD, time="2026-03-03T10:05:00Z")), "the newest good record is from 48.0 h later."),
    ],
)
def test_it_says_whether_a_target_was_good_after_its_bad_moment(
    vigia: Callable[..., Any], good: tuple[Mapping[str, Any], ...], said: str | None
) -> None:
    """Bad moments are kept for a week: one that is over must not pass for what is."""
    with serving(page(bad(), good=good)) as (url, _):
        done = vigia("explain", "vxlan", "--url", url)
    assert done.status == 0
    lines = [line.strip() for line in done.stdout.splitlines() if "It was good after that" in line]
    assert lines == ([f"It was good after that: {said}"] if said else [])


def test_without_a_bad_moment_it_prints_the_good_one(vigia: Callable[..., Any]) -> None:
    with serving(page(good=(GOOD,))) as (url, _):
        done = vigia("explain", "vxlan", "--url", url)
    assert done.stdout.startswith(
        "No bad moment of vxlan is remembered. The last good records:\nFrom lb1 to lb2"
    )


def test_a_path_that_nobody_knows_is_an_error(vigia: Callable[..., Any]) -> None:
    with serving(page()) as (url, _):
        done = vigia("explain", "vxlan", "--url", url)
    assert done.status == 1
    assert done.stderr.startswith("vigia: none of 1 probes has a record of vxlan")


def test_what_is_no_path_is_told_from_a_path_without_records(vigia: Callable[..., Any]) -> None:
    measured = {"/api/v1/label/path/values": (200, {"status": "success", "data": ["gre", "vxlan"]})}
    with serving(page()) as (url, _), serving(measured) as (server, _):
        wrong = vigia("explain", "vlxan", "--url", url, "--prometheus", server)
        quiet = vigia("explain", "vxlan", "--url", url, "--prometheus", server)
    assert wrong.status == quiet.status == 1
    assert wrong.stderr == (
        "vigia: vlxan is no path that is measured; write one of gre, vxlan, the name of a firing alert, "
        "or the number of an action\n"
    )
    assert quiet.stderr.startswith("vigia: none of 1 probes has a record of vxlan; they are made when")


def test_sentences_fit_a_terminal(vigia: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vigia_text.terminal.width", lambda _: 60)
    with serving(page(bad(), good=(GOOD,))) as (url, _):
        done = vigia("explain", "vxlan", "--url", url)
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("    ") for line in lines), "what goes on is told from what begins"


def test_a_probe_that_does_not_answer_leaves_the_others(vigia: Callable[..., Any]) -> None:
    with serving(page(bad())) as (url, _):
        done = vigia("explain", "vxlan", "--url", url, "--url", "http://127.0.0.1:1")
    assert done.status == 0
    assert done.stderr.startswith("vigia: cannot ask a probe: http://127.0.0.1:1 does not answer")
    assert "From lb1" in done.stdout


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, {}), "answers with HTTP status 500"),
        ((200, b"<html>"), "does not serve records of vigia-probe"),
        ((200, {"node": "a", "moments": 3, "good": []}), "moments: Input should be"),
    ],
)
def test_what_is_no_probe_is_named(vigia: Callable[..., Any], answer: tuple[int, Any], problem: str) -> None:
    with serving({"/v1/moments": answer}) as (url, _):
        done = vigia("explain", "vxlan", "--url", url)
    assert done.status == 1
    assert done.stderr.startswith("vigia: no probe answers: ")
    assert problem in done.stderr


def test_an_alert_is_looked_up_and_its_paths_are_explained(vigia: Callable[..., Any]) -> None:
    firing = {"src": "lb1", "dst": "lb2", "path": "vxlan", "tenant": "blue", "severity": "warning"}
    with (
        serving(page(bad(), changed(bad(), tenant="red"))) as (url, _),
        serving({"/api/v1/query": vector(firing)}) as (server, queries),
    ):
        done = vigia("explain", "VigiaPathLoss", "--prometheus", server, "--url", url)
    assert queries[0]["query"] == ['ALERTS{alertname="VigiaPathLoss", alertstate="firing"}']
    assert done.stdout.count("From lb1") == 1
    assert "tenant blue" in done.stdout


def test_an_alert_that_does_not_fire_is_an_error(vigia: Callable[..., Any]) -> None:
    with serving({"/api/v1/query": vector()}) as (server, _):
        done = vigia("explain", "VigiaPathLoss", "--prometheus", server, "--url", "http://127.0.0.1:1")
    assert done.status == 1
    assert "knows no firing alert VigiaPathLoss; write the name of one that fires" in done.stderr


def test_prometheus_names_the_probes(vigia: Callable[..., Any]) -> None:
    with serving(page(bad())) as (url, _):
        with serving({"/api/v1/query": vector({"instance": url.removeprefix("http://")})}) as (server, _):
            done = vigia("explain", "vxlan", "--prometheus", server)
        assert "From lb1" in done.stdout
        with serving({"/api/v1/query": vector()}) as (server, _):
            done = vigia("explain", "vxlan", "--prometheus", server)
    assert "scrapes no vigia-probe" in done.stderr


@pytest.mark.parametrize("option", ["--url", "--prometheus"])
def test_what_is_no_url_is_refused(vigia: Callable[..., Any], option: str) -> None:
    done = vigia("explain", "vxlan", option, "file:///etc/passwd")
    assert done.status == 2
    assert f'{option} "file:///etc/passwd" is not the URL of' in done.stderr


def test_the_probes_of_the_lab_are_asked(
    vigia: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, demo: Lab
) -> None:
    monkeypatch.setattr("vigia.lab.state.running", lambda _: SimpleNamespace(lab=demo))
    asked: list[str] = []
    monkeypatch.setattr("vigia.explain.nodes._get", lambda _, url, __: asked.append(url) or b"{}")
    assert vigia("explain", "direct").status == 1
    assert asked == [f"http://{n.agent}:9871" for n in demo.nodes]


def test_without_a_lab_it_says_which_is_missing(vigia: Callable[..., Any]) -> None:
    done = vigia("explain", "vxlan", "--lab", "never")
    assert (done.status, done.stderr) == (1, "vigia: lab never is not up; bring it up: vigia lab up\n")
