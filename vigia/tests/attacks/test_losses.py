"""What is taken for the right thing to be said of a loss, and where causes are planted."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from vigia.attacks import losses
from vigia.attacks.losses import LossTrial, PinnedLoss, faults, judge, lab_named, lost_before, share
from vigia.attacks.planting import CAUSES, Cause
from vigia.console import Steps
from vigia.errors import VigiaError
from vigia.lab.model import Lab
from vigia.stack.places import Places

POLICED = ("near", "vigia_isolation_policed_packets_total", "")
THERE = PinnedLoss("node1", "node2", 100.0, "pinned", POLICED)
BACK = replace(THERE, src="node2", dst="node1")
GOOD = LossTrial("policer", "either", [THERE, BACK], 50.0, 1.0)
NOWHERE = PinnedLoss("node1", "node2", 100.0, "not on these hosts", None)


@pytest.fixture(scope="module")
def lab() -> Lab:
    return lab_named("losses")


def said(**changed: Any) -> dict[str, Any]:
    """One path of GET /v1/comparisons, as vigia-compare tells it."""
    best = {"node": "node1", "name": "vigia_port_drops_total", "detail": "rate_limit"}
    other = {"node": "node2", "name": "vigia_qdisc_drops_total", "detail": "eth0"}
    return {
        "src": "node1",
        "dst": "node2",
        "path": CAUSES["policer"].path,
        "tenant": CAUSES["policer"].tenant,
        "lost": 50.0,
        "verdict": "pinned",
        "counters": [best, other],
    } | changed


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (GOOD, []),
        (replace(GOOD, said=[THERE]), []),
        (replace(GOOD, said=[]), ["nothing is said of the losses"]),
        (
            replace(GOOD, said=[THERE, replace(BACK, verdict="insufficient evidence", counter=None)]),
            ["insufficient evidence"],
        ),
        (
            replace(GOOD, said=[replace(THERE, counter=("far", *POLICED[1:]))]),
            ["pinned: far vigia_isolation_policed_packets_total"],
        ),
        (
            replace(GOOD, said=[replace(THERE, counter=("far", "vigia_qdisc_drops_total", "eth0"))]),
            ["pinned: far vigia_qdisc_drops_total eth0"],
        ),
        (replace(GOOD, said=[NOWHERE]), ["not on these hosts"]),
        (replace(GOOD, cause="wire", said=[NOWHERE]), []),
        (replace(GOOD, cause="wire", said=[replace(NOWHERE, verdict="no counter")]), ["no counter"]),
        (
            replace(GOOD, cause="wire", said=[THERE]),
            ["pinned: near vigia_isolation_policed_packets_total"],
        ),
    ],
)
def test_what_is_right_is_said_of_every_direction(trial: LossTrial, words: list[str]) -> None:
    assert faults(trial) == words


def test_directions_that_lost_are_judged_by_the_first_counter(lab: Lab) -> None:
    cause = CAUSES["policer"]
    back = said(src="node2", dst="node1", verdict="insufficient evidence")
    found = judge([said(), back], cause, {}, lab)
    assert [replace(one, weighed=()) for one in found] == [
        PinnedLoss("node1", "node2", 50.0, "pinned", ("near", "vigia_port_drops_total", "rate_limit")),
        PinnedLoss("node2", "node1", 50.0, "insufficient evidence", None),
    ]
    assert [one.weighed for one in found] == [said()["counters"], back["counters"]], "for who looks into it"


def test_a_counter_of_the_whole_site_is_at_no_end(lab: Lab) -> None:
    everywhere = [{"node": "", "name": "node_softnet_dropped_total", "detail": ""}]
    (found,) = judge([said(counters=everywhere)], CAUSES["policer"], {}, lab)
    assert (
        found.counter == ("", "node_softnet_dropped_total", "")
        and found.counter not in CAUSES["policer"].seen
    )


@pytest.mark.parametrize(
    "other",
    [said(lost=7.0), said(tenant="red"), said(path="ovs-vxlan")],
    ids=["few probes", "another tenant", "another path"],
)
def test_what_is_said_of_other_losses_does_not_count(other: Mapping[str, Any], lab: Lab) -> None:
    assert judge([other], CAUSES["policer"], {}, lab) == []


def test_what_was_lost_before_does_not_count(lab: Lab) -> None:
    cause = CAUSES["policer"]
    before = lost_before([said(lost=45.0), said(tenant="red", lost=9.0)], cause)
    assert before == {("node1", "node2"): 45.0}
    assert judge([said()], cause, before, lab) == []
    (found,) = judge([said(lost=60.0)], cause, before, lab)
    assert found.lost == 15.0


def test_every_cause_has_a_path_of_its_own_in_the_lab(lab: Lab) -> None:
    keys = [(c.path, c.tenant) for c in CAUSES.values()]
    assert len(set(keys)) == len(keys)
    targets = {(t.path, t.tenant) for node in lab.nodes for t in lab.targets(node)}
    assert set(keys) <= targets


def test_no_two_causes_of_a_tenant_count_at_the_same_place() -> None:
    """vigia-compare adds up the ports of a tenant: what one path loses would count for the other."""
    for a in CAUSES.values():
        for b in CAUSES.values():
            if a.name < b.name and a.tenant == b.tenant:
                assert not a.seen & b.seen, f"{a.name} and {b.name}"


def test_the_causes_of_the_requirement_are_planted() -> None:
    required = {
        "policer",
        "queue",
        "reflector-socket",
        "prober-socket",
        "drop-by-bridge",
        "mtu",
        "table-miss",
    }
    assert required <= set(CAUSES)
    assert {n for n, c in CAUSES.items() if not c.seen} == {"wire", "drop-in-guest"}


def test_the_share_is_of_all_trials() -> None:
    bad = replace(GOOD, said=[])
    assert share([GOOD, GOOD, bad]) == pytest.approx(2 / 3) and share([]) == 0.0
    assert not losses._below([GOOD] * 9 + [bad])
    assert losses._below([GOOD] * 8 + [bad]), "of this cause"
    wire = replace(GOOD, cause="wire", said=[NOWHERE])
    assert losses._below([wire] * 90 + [bad]), "one cause that is never told is hidden by no others"


def test_the_summary_says_what_was_said_otherwise() -> None:
    bad = replace(GOOD, said=[replace(THERE, verdict="no counter", counter=None)], load=3.0)
    wire = replace(GOOD, cause="wire", said=[NOWHERE], expected="not on these hosts")
    lines = losses._summary([wire, GOOD, bad, GOOD]).splitlines()
    assert lines[1].split() == ["policer", "3", "2", "either", "no", "counter", "1.0", "to", "3.0"]
    assert lines[2].split()[:3] == ["wire", "1", "1"] and len(lines) == 3


def test_progress_tells_what_was_lost_and_what_was_said() -> None:
    told = losses._told(GOOD)
    assert "100 and 100 probes lost" in told and "right: pinned: near vigia_isolation_policed" in told
    assert "no probes lost, nothing is said" in losses._told(replace(GOOD, said=[]))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> list[Any]:
    """What vigia-compare answers, one after another; the last again and again, and sleeping takes no time."""
    answers: list[Any] = []
    clock = [1000.0]

    def get(url: str, **_: Any) -> httpx.Response:
        assert url == "http://127.93.0.250:9875/v1/comparisons"
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(503) if answer is None else httpx.Response(200, json=answer)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(losses.httpx, "get", get)
    monkeypatch.setattr(losses.time, "sleep", sleep)
    monkeypatch.setattr(losses.time, "time", lambda: clock[0])
    return answers


@pytest.fixture
def where(tmp_path: Path, lab: Lab) -> Places:
    found = Places(replace(lab.layout, root=tmp_path))
    found.status.parent.mkdir(parents=True)
    services = {f"vigia-probe@{n.name}": {"pid": 100 + i} for i, n in enumerate(lab.nodes)}
    found.status.write_text(json.dumps({"services": services}))
    return found


def planted(scenes: list[Any]) -> Cause:
    def plant(scene: Any) -> Any:
        scenes.append(scene)
        return nullcontext()

    return replace(CAUSES["policer"], plant=plant)


def test_a_trial_waits_until_the_minute_of_the_cause_is_evaluated(
    service: list[Any], where: Places, lab: Lab
) -> None:
    early = {"end": 1095.0, "losses": [said(lost=30.0)]}
    service += [{"end": 990.0, "losses": [said(lost=20.0)]}, None, httpx.ConnectError("busy"), early]
    service += [{"end": 1106.0, "losses": [said(lost=50.0)]}]
    scenes: list[Any] = []
    trial = losses.trial(lab, where, planted(scenes), 20.0)
    (scene,) = scenes
    assert (scene.probes, scene.path, scene.tenant) == (
        {"node1": 100, "node2": 101},
        "linuxbridge-vxlan",
        "blue",
    )
    assert [s.lost for s in trial.said] == [30.0] and faults(trial) == []
    assert trial.after == 6.0, "three looks in vain, 2 s apart"


def test_a_minute_that_is_never_evaluated_ends_the_run(service: list[Any], where: Places, lab: Lab) -> None:
    service += [{"end": 990.0, "losses": []}, {"end": None, "losses": []}]
    with pytest.raises(VigiaError, match="has not evaluated the minute 240 s after policer"):
        losses.trial(lab, where, planted([]), 20.0)


def test_what_was_lost_before_is_known_before_a_cause_is_planted(
    service: list[Any], where: Places, lab: Lab
) -> None:
    """An answer that fails is not one without losses: what another run lost would count as this one's."""
    service += [httpx.ConnectError("busy"), None, {"end": 990.0, "losses": [said(lost=300.0)]}]
    service += [{"end": 1110.0, "losses": [said(lost=300.0)]}]
    assert losses.trial(lab, where, planted([]), 20.0).said == []
    service[:] = [None]
    scenes: list[Any] = []
    with pytest.raises(VigiaError, match="vigia-compare has not answered for 240 s; see its log"):
        losses.trial(lab, where, planted(scenes), 20.0)
    assert scenes == []


@pytest.mark.parametrize(
    "fault", [VigiaError("on fire"), ProcessLookupError("on fire"), httpx.ConnectError("on fire")]
)
def test_causes_are_planted_in_turn_and_what_was_run_is_shown(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    def trial(_lab: Lab, _where: Any, cause: Cause, _seconds: float) -> LossTrial:
        order.append(cause.name)
        if len(order) == 4:
            raise fault
        good = [NOWHERE] if not cause.seen else [replace(THERE, counter=sorted(cause.seen)[0])]
        return LossTrial(cause.name, "", good, 1.0, 0.5)

    monkeypatch.setattr(losses, "_running", lambda *_: nullcontext(None))
    monkeypatch.setattr(losses.time, "sleep", lambda _: None)
    monkeypatch.setattr(losses, "trial", trial)
    assert losses.main(["--runs", "2", "--only", "queue,wire", "--json"]) == 1
    assert order == ["queue", "wire", "queue", "wire"]
    shown = capsys.readouterr()
    assert [t["cause"] for t in json.loads(shown.out)] == ["queue", "wire", "queue"]
    assert "cannot plant all causes: on fire" in shown.err
    assert "4 causes, about" in shown.err and "(2 of 4, 0 min left)" in shown.err
    order.clear()
    assert losses.main(["--runs", "1", "--only", "queue,wire"]) == 0
    assert capsys.readouterr().out.splitlines()[-2].split()[:3] == ["queue", "1", "1"]


def test_the_lab_is_removed_however_the_run_ends(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    done: list[str] = []
    steps = Steps(io.StringIO())
    monkeypatch.setattr(losses, "remove", lambda of: done.append(f"removed {of.name}"))
    monkeypatch.setattr(losses.lab_up, "bring_up", lambda *_: done.append("lab"))
    monkeypatch.setattr(losses.stack_up, "bring_up", lambda *_: done.append("stack"))
    with pytest.raises(VigiaError, match="stop"), losses._running(lab, steps):
        assert done == ["removed losses", "lab", "stack"], "what another run left is removed first"
        raise VigiaError("stop")
    assert done[-1] == "removed losses"
    done.clear()
    monkeypatch.setattr(losses.stack_up, "bring_up", lambda *_: done.append(str(1 / 0)))
    with pytest.raises(ZeroDivisionError), losses._running(lab, steps):
        pass
    assert done == ["removed losses", "lab", "removed losses"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runs", "0"], "argument --runs: 0 is out of range; write 1 or more"),
        (["--only", "netem"], 'argument --only: "netem" is not known; write one of policer, meter'),
        (["--seconds", "55"], "argument --seconds: 55 is out of range; write 5 to 50"),
        (["--seconds", "nan"], "argument --seconds: nan is out of range; write 5 to 50"),
        (["--apart", "-1"], "argument --apart: -1 is out of range; write 0 to 3600"),
    ],
)
def test_a_wrong_option_names_the_right_ones(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        losses.main(options)
    assert ended.value.code == 2 and words in capsys.readouterr().err.replace("\n", " ")
