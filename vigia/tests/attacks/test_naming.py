"""Who is taken for named, and where attacks for it are played."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from vigia.attacks import naming
from vigia.attacks.naming import ENTRIES, NamingTrial, faults, judge, lab_named
from vigia.demo.transfer import Interval
from vigia.errors import VigiaError
from vigia.stack.places import Places

BEGUN = 1_800_000_000.0
GOOD = NamingTrial(
    "one-port", "linuxbridge", True, 9.0, 0.6, 1.1, 17.0, 0.8, "bandwidth", ["heedless"], [], 1.0
)


def said(tenant: str = "blue", offender: str | None = "red", **changed: Any) -> dict[str, Any]:
    known = {"begin": BEGUN, "end": BEGUN + 10.0, "share": 0.8} if offender else None
    return {"tenant": tenant, "offender": offender, "verdict": "attributed", "known": known} | changed


def test_the_attacker_is_named_for_harm_since_the_attack() -> None:
    one = said()
    assert judge([said("green", None), one], BEGUN) == (one, set())


def test_an_attack_that_goes_on_an_earlier_one_counts() -> None:
    one = said(known={"begin": BEGUN - 60.0, "end": BEGUN + 5.0, "share": 0.8})
    innocent = said("red", "blue", known=one["known"])
    assert judge([one, innocent], BEGUN) == (one, {"blue as who hurt red"})


@pytest.mark.parametrize(
    "other",
    [
        said(known={"begin": BEGUN - 90.0, "end": BEGUN - 60.0}),
        said(verdict="likely"),
        said(verdict="own traffic", offender=None),
        said("_infra"),
    ],
    ids=["an earlier attack", "only likely", "nobody", "another victim"],
)
def test_what_is_said_of_other_things_does_not_count(other: dict[str, Any]) -> None:
    assert judge([other], BEGUN) == (None, set())


def test_innocents_that_are_named_are_told_with_their_victims() -> None:
    _, innocent = judge([said(), said("red", "blue"), said("blue", "green")], BEGUN)
    assert innocent == {"blue as who hurt red", "green as who hurt blue"}
    assert judge([said("blue", "green", verdict="likely")], BEGUN)[1] == set()


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (GOOD, []),
        (replace(GOOD, after=31.0), ["named after 31 s"]),
        (replace(GOOD, after=None), ["the attacker is not named"]),
        (replace(GOOD, after=None, kept=0.95), []),
        (replace(GOOD, after=None, offered=0.9), []),
        (replace(GOOD, after=None, offered=0.9, of_bought=0.8), ["the attacker is not named"]),
        (replace(GOOD, innocent=["green as who hurt blue"]), ["green as who hurt blue is named"]),
    ],
)
def test_a_trial_must_name_who_harmed_in_time_and_nobody_else(trial: NamingTrial, words: list[str]) -> None:
    assert faults(trial) == words


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Addresses of services of the stack; until a test says so, nobody listens there."""
    found = {"address": "127.0.0.1:9"}
    monkeypatch.setattr(naming.places, "stack_address", lambda *_: found["address"])
    return found


class Service(BaseHTTPRequestHandler):
    """Answers as it was told to, and remembers what it was asked."""

    status, answer = 200, b"{}"
    asked: list[tuple[str, str, bytes]]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((f"{self.command} {self.path}", self.headers.get("Authorization", ""), body))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service(away: dict[str, str]) -> Iterator[type[Service]]:
    made = type("Made", (Service,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        away["address"] = f"127.0.0.1:{server.server_address[1]}"
        yield made
        server.shutdown()


def test_a_service_that_is_away_or_busy_says_nothing(away: dict[str, str], service: type[Service]) -> None:
    lab = lab_named("named")
    service.answer = json.dumps({"interference": [said()]}).encode()
    assert naming._said(lab) == [said()]
    service.status = 503
    assert naming._said(lab) == []
    away["address"] = "127.0.0.1:9"
    assert naming._said(lab) == []


def test_the_kill_switch_is_set_with_the_token_or_the_run_ends(
    service: type[Service], tmp_path: Path
) -> None:
    lab = lab_named("named")
    where = Places(replace(lab.layout, root=tmp_path))
    where.api_token.parent.mkdir(parents=True)
    where.api_token.write_text("secret\n")
    naming._kill_switch(lab, where)
    ((line, token, body),) = service.asked
    assert (line, token) == ("PUT /v1/killswitch", "Bearer secret")
    assert json.loads(body)["on"] is True
    service.status, service.answer = 403, b"no"
    with pytest.raises(VigiaError, match="the kill switch cannot be set: 403 no"):
        naming._kill_switch(lab, where)


def test_without_isolation_enforcers_have_no_fast_loop_and_all_else(tmp_path: Path) -> None:
    file = tmp_path / "enforcer.yaml"
    file.write_text("links: [{device: eth0}]\nfast_loop: {listen: 1}\ncontracts: []\n")
    naming._without_fast_loop(file)
    assert yaml.safe_load(file.read_text()) == {"links": [{"device": "eth0"}], "contracts": []}


def test_an_attacker_knows_the_victim_beside_its_own_guest() -> None:
    lab = lab_named("named")
    ends = naming._ends(lab, "ovs-vxlan", "red", "node1", "node2")
    assert ends.mac == lab.endpoint("node1", "red", "ovs-vxlan").mac
    assert ends.peer_mac == lab.endpoint("node2", "red", "ovs-vxlan").mac != ends.other_mac
    assert ends.victim_mac == lab.endpoint("node2", "blue", "ovs-vxlan").mac
    assert ends.victim_network == lab.endpoint("node2", "blue", "ovs-vxlan").key
    assert (ends.node, ends.peer_node) == tuple(str(n.tunnel.ip) for n in lab.nodes)


def test_the_summary_counts_by_switch_and_isolation() -> None:
    other = replace(GOOD, isolation=False, after=None, innocent=["green as who hurt blue"])
    rows = [line.split() for line in naming._summary([GOOD, replace(GOOD, after=19.0), other]).splitlines()]
    assert rows[1] == ["on", "linuxbridge", "2", "2", "19", "s", "0"]
    assert rows[2] == ["off", "linuxbridge", "1", "0", "–", "1"] and len(rows) == 3


def test_the_lab_has_three_tenants_on_both_switches() -> None:
    lab = lab_named("named")
    bought = {t.name: t.guarantee * 8 // 10**6 for t in lab.tenants()}
    assert bought == naming.BOUGHT and sum(bought.values()) < 190, "what the link gives out"
    for node in lab.nodes:
        ports = {(e.tenant, e.path, e.machine) for e in node.endpoints if e.tenant != "_infra"}
        paths = ("linuxbridge-vxlan", "ovs-vxlan")
        assert ports == {(t, p, m) for t in bought for p in paths for m in (1, 2)}


def test_every_attack_of_one_guest_is_played() -> None:
    assert {"one-port", "many-ports", "spoofed-mac", "forged-replies", "pulses-2000ms"} <= set(ENTRIES)
    assert not {"two-senders", "two-tenants", "from-the-victims-node"} & set(ENTRIES)


def test_what_the_victim_kept_is_of_what_it_had() -> None:
    rates = [10.0] * 10 + [100.0] * 20 + [40.0] * 40 + [100.0] * 10
    given = [Interval(BEGUN - 6.0 + i / 5, BEGUN - 5.8 + i / 5, r, 0) for i, r in enumerate(rates)]
    assert naming._carried(given, BEGUN) == pytest.approx((85.0, 40.0))
    with pytest.raises(VigiaError, match="before and during"):
        naming._carried(given[:20], BEGUN)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runs", "0"], "argument --runs: 0 is out of range; write 1 or more"),
        (["--only", "two-senders"], 'argument --only: "two-senders" is not known; write one of one-port'),
        (
            ["--switches", "ovs"],
            'argument --switches: "ovs" is not known; write one of linuxbridge, openvswitch',
        ),
        (["--isolation", "no"], 'argument --isolation: "no" is not known; write one of on, off'),
    ],
)
def test_a_wrong_option_names_the_right_ones(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        naming.main(options)
    assert ended.value.code == 2 and words in capsys.readouterr().err.replace("\n", " ")
