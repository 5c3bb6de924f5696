"""vigia explain ACTION and ALERT: what happened, why, on what evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from vigia.explain import action, alert
from vigia.explain.action import Action
from vigia_prometheus.answers import Alert

from .test_explain import bad, changed, page, serving, vector

Vigia = Callable[..., Any]

ID = "ca83ade0-52ee-4135-ba52-d0837bee56cb"
DONE: dict[str, Any] = {
    "number": 12,
    "id": ID,
    "policy": "udp-flood",
    "policy_version": "2f7c912a2b4a",
    "level": "L2",
    "state": "reverted",
    "guard": None,
    "reason": "no flood for 5s after the limit was relaxed",
    "cause": "evidence",
    "node": "node1",
    "port": "node1-red-110",
    "tenant": "red",
    "limit": {"protocol": "udp", "rate_bytes_per_second": 25000000, "ttl_seconds": 30.0},
    "extensions": 8,
    "relapses": 1,
    "offered_bytes_per_second": None,
    "evidence_then": {
        "offered_bytes_per_second": 15771798.0,
        "flood_score": 100.0,
        "destination_ports": 1380.3,
        "reply_ratio": 0.0034,
    },
    "applied_at": "2026-11-23T09:11:32.708660Z",
    "expires_at": None,
    "ended_at": "2026-11-23T09:13:27.824642Z",
    "limit_after": {
        "protocol": "udp",
        "rate_bytes_per_second": 25000000,
        "policed_bytes": 105969822,
        "policed_packets": 73489,
    },
    "approvals": [],
    "reasons": [
        {
            "starts_at": "2026-11-23T09:11:31.137000Z",
            "status": "resolved",
            "labels": {"alertname": "VigiaUdpFlood"},
            "annotations": {"description": "Port node1-red-110 sends UDP to many ports."},
        }
    ],
    "reasons_total": 1,
    "timeline": [
        {"at": "2026-11-23T09:11:29.820191Z", "event": "kernel_detected", "detail": {"flood_score": 100.0}},
        {"at": "2026-11-23T09:11:31.137000Z", "event": "alert_started", "detail": {}},
        {
            "at": "2026-11-23T09:11:32.608826Z",
            "event": "decided",
            "detail": {"reason": "cap all but TCP of node1-red-110 at the guarantee"},
        },
        {
            "at": "2026-11-23T09:11:32.708660Z",
            "event": "limit_applied",
            "detail": {"limit": {"protocol": "udp", "rate_bytes_per_second": 5000000}},
        },
        {"at": "2026-11-23T09:11:32.708715Z", "event": "limit_verified", "detail": {}},
    ],
}


def said(**changes: Any) -> list[str]:
    return action.explain(Action.model_validate(changed(DONE, **changes)))


def test_an_action_that_is_over_is_told_from_its_evidence_to_its_end() -> None:
    assert said() == [
        "Action 12 limited red at port node1-red-110 on node1 from 2026-11-23 09:11:32 UTC to 09:13:27.",
        "Evidence: the kernel of node1 saw a flood at 09:11:29, score 100 of 100, 126 Mbit/s of UDP to 1 380 "
        "ports, 0.340 % of it answered.",
        "Alert VigiaUdpFlood began at 09:11:31 and has ended: Port node1-red-110 sends UDP to many ports.",
        "Policy udp-flood (version 2f7c912a2b4a) chose level L2 at 09:11:32: cap all but TCP of node1-red-110 "
        "at the guarantee.",
        "The limit of 40.0 Mbit/s was read back from the kernel at 09:11:32, 2.9 s after it began.",
        "It has dropped 101 MiB in 73 489 packets of what the port sent.",
        "The limit was renewed 8 times while the evidence stayed; the flood returned once.",
        "It ended at 09:13:27 (evidence): no flood for 5s after the limit was relaxed.",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"state": "active", "ended_at": None, "expires_at": "2026-11-23T09:12:02Z", "extensions": 0,
             "offered_bytes_per_second": 2e7},
            ["from 2026-11-23 09:11:32 UTC on. It is in force.", "The port sends 160 Mbit/s of UDP now.",
             "Without being renewed it expires at 09:12:02."],
        ),
        (
            {"state": "pending_approval", "ended_at": None, "applied_at": None, "timeline": []},
            ["Action 12 against red at port node1-red-110 on node1 waits for a person's approval."],
        ),
        (
            {"state": "suppressed", "applied_at": None, "guard": "kill_switch", "reason": "the kill switch is on",
             "timeline": []},
            ["was stopped by a guard.", "The guard kill_switch stopped it: the kill switch is on."],
        ),
        (
            {"approvals": [{"who": "vera@127.0.0.1", "at": "2026-11-23T09:11:32Z", "verdict": "approved",
                            "comment": "seen on the wire"}]},
            ["vera@127.0.0.1 approved it at 09:11:32: seen on the wire."],
        ),
        (
            {"applied_at": None, "timeline": [], "cause": "rejected", "reason": ""},
            ["It ended at 09:13:27 without a limit: rejected."],
        ),
        ({"state": "newer", "applied_at": None, "ended_at": None, "timeline": []}, ["on node1 newer."]),
        ({"reasons_total": 9}, ["6 more alerts asked for the same."]),
    ],
)  # fmt: skip
def test_other_actions(changes: dict[str, Any], expected: list[str]) -> None:
    text = "\n".join(said(**changes))
    for part in expected:
        assert part in text


def test_no_text_of_an_action_moves_the_cursor() -> None:
    evil = "\x1b[2J\u202e"
    text = "\n".join(
        said(
            tenant=evil,
            policy=evil,
            reason=evil,
            reasons=[{**DONE["reasons"][0], "labels": {"alertname": evil}, "annotations": {"summary": evil}}],
            timeline=[
                *DONE["timeline"],
                {"at": "2026-11-23T09:11:30Z", "event": "decided", "detail": {"reason": evil}},
            ],
        )
    )
    assert "\x1b" not in text and "\u202e" not in text and r"\x1b[2J" in text


# The command


@pytest.fixture
def token(tmp_path: Path) -> Path:
    made = tmp_path / "token"
    made.write_text("a token of the tests\n")
    return made


def agent(found: Mapping[str, Any] = DONE) -> dict[str, tuple[int, Any]]:
    summary = {k: found[k] for k in ("id", "number", "port", "level")}
    return {"/v1/actions": (200, {"actions": [summary]}), f"/v1/actions/{ID}": (200, found)}


@pytest.mark.parametrize("what", ["12", "#12", ID])
def test_an_action_is_found_by_number_and_by_id(vigia: Vigia, token: Path, what: str) -> None:
    with serving(agent()) as (url, asked):
        done = vigia("explain", what, "--agent", url, "--token-file", str(token))
    assert done.status == 0 and done.stdout.startswith("Action 12 limited red at port node1-red-110")
    assert all(line.startswith("  ") for line in done.stdout.splitlines()[1:])
    if what != ID:
        assert asked[0] == {"limit": ["1"], "before": ["13"]}


def test_an_action_as_json(vigia: Vigia, token: Path) -> None:
    with serving(agent()) as (url, _):
        done = vigia("explain", "12", "--agent", url, "--token-file", str(token), "--json")
    assert done.json == DONE


def test_an_action_that_nobody_knows(vigia: Vigia, token: Path) -> None:
    with serving({"/v1/actions": (200, {"actions": []})}) as (url, _):
        done = vigia("explain", "7", "--agent", url, "--token-file", str(token))
    assert done.status == 1 and "the isolation agent has no action 7" in done.stderr


def test_what_is_no_action_is_refused(vigia: Vigia, token: Path) -> None:
    with serving({f"/v1/actions/{ID}": (200, {"number": "x"})}) as (url, _):
        done = vigia("explain", ID, "--agent", url, "--token-file", str(token))
    assert done.status == 1 and "answers what is no action" in done.stderr


def test_an_agent_goes_with_its_token(vigia: Vigia) -> None:
    done = vigia("explain", "12", "--agent", "http://127.0.0.1:1")
    assert done.status == 2 and "--agent and --token-file go together" in done.stderr


def _alert(**labels: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": "VigiaUdpFlood", "severity": "critical", "isolate": "auto", **labels},
        "annotations": {"description": "It floods.", "action": "Look.", "runbook_url": "docs/runbooks/x.md"},
        "state": "firing",
        "activeAt": "2026-11-23T09:11:31.123456789Z",
        "value": "1",
    }


def rules(*found: Mapping[str, Any]) -> tuple[int, Any]:
    return 200, {"status": "success", "data": {"alerts": list(found)}}


def test_an_alert_is_explained_with_the_actions_that_it_asked_for(vigia: Vigia, token: Path) -> None:
    other = {**_alert(tenant="blue"), "state": "pending"}
    answers = {
        "/api/v1/query": vector({"tenant": "red"}),
        "/api/v1/alerts": rules(_alert(tenant="red"), other),
    }
    with serving(answers) as (server, _), serving(agent()) as (url, _):
        done = vigia(
            "explain", "VigiaUdpFlood", "--prometheus", server, "--agent", url, "--token-file", str(token)
        )
    assert done.status == 0, done.stderr
    first, second = done.stdout.split("\n\n")
    lines = first.splitlines()
    assert lines[0].startswith("VigiaUdpFlood fires since 2026-11-23 09:11:31 UTC, for ")
    assert lines[0].endswith(": severity critical, tenant red.")
    assert lines[1:] == ["  It floods.", "  What to do: Look.", "  Runbook: docs/runbooks/x.md"]
    assert second.startswith("Action 12 limited red")


def test_an_alert_of_a_path_goes_on_with_its_records(vigia: Vigia) -> None:
    labels = {"src": "lb1", "dst": "lb2", "path": "vxlan", "tenant": "blue"}
    answers = {"/api/v1/query": vector(labels), "/api/v1/alerts": rules(_alert(**labels))}
    with serving(page(bad())) as (url, _), serving(answers) as (server, _):
        done = vigia("explain", "VigiaUdpFlood", "--prometheus", server, "--url", url)
    assert done.status == 0, done.stderr
    assert done.stdout.index("VigiaUdpFlood fires") < done.stdout.index("From lb1 to lb2 on vxlan")


def test_an_agent_that_is_away_leaves_the_alert(vigia: Vigia, token: Path) -> None:
    answers = {"/api/v1/query": vector({"tenant": "red"}), "/api/v1/alerts": rules(_alert(tenant="red"))}
    with serving(answers) as (server, _):
        done = vigia(
            "explain", "VigiaUdpFlood", "--prometheus", server,
            "--agent", "http://127.0.0.1:1", "--token-file", str(token),
        )  # fmt: skip
    assert done.status == 0
    assert "VigiaUdpFlood fires" in done.stdout and "cannot ask for the actions of this alert" in done.stdout


def test_an_alert_as_json_has_its_text_and_the_actions(vigia: Vigia, token: Path) -> None:
    answers = {"/api/v1/query": vector({"tenant": "red"}), "/api/v1/alerts": rules(_alert(tenant="red"))}
    with serving(answers) as (server, _), serving(agent()) as (url, _):
        done = vigia(
            "explain", "VigiaUdpFlood", "--prometheus", server,
            "--agent", url, "--token-file", str(token), "--json",
        )  # fmt: skip
    assert done.status == 0, done.stderr
    assert done.json == {
        "alerts": [
            {
                "labels": _alert(tenant="red")["labels"],
                "annotations": _alert()["annotations"],
                "since": "2026-11-23T09:11:31.123456Z",
            }
        ],
        "actions": [DONE],
        "moments": [],
        "good": [],
    }


def test_an_alert_of_a_path_as_json_has_its_records_too(vigia: Vigia, token: Path) -> None:
    labels = {"src": "lb1", "dst": "lb2", "path": "vxlan", "tenant": "blue"}
    answers = {"/api/v1/query": vector(labels), "/api/v1/alerts": rules(_alert(**labels))}
    with serving(page(bad())) as (url, _), serving(answers) as (server, _):
        done = vigia(
            "explain", "VigiaUdpFlood", "--prometheus", server, "--url", url,
            "--agent", "http://127.0.0.1:1", "--token-file", str(token), "--json",
        )  # fmt: skip
    assert done.status == 0 and "cannot ask for the actions of this alert" in done.stderr
    assert done.json["alerts"][0]["annotations"]["action"] == "Look."
    assert done.json["actions"] is None and done.json["moments"] == [bad()]


def test_many_series_of_an_alert_are_counted() -> None:
    found = [Alert({"alertname": "A", "node": f"n{i}"}, {}, True, 1e9 + i) for i in range(25)]
    blocks = alert.explain(found, 1e9 + 7300.0)
    assert len(blocks) == alert.MOST + 1 and blocks[-1] == ["15 more series of the same alert fire."]
    assert blocks[0] == ["A fires since 2001-09-09 01:46:40 UTC, for 2.0 h: node n0."]


def test_no_text_of_an_alert_moves_the_cursor() -> None:
    evil = "\x1b[2J\u202e"
    (lines,) = alert.explain([Alert({"alertname": "A", "x": evil}, {"description": evil}, True, 1e9)], 1e9)
    assert "\x1b" not in "".join(lines) and "\u202e" not in "".join(lines)
    assert json.dumps(lines)
