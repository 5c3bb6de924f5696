"""What a site is like at a moment, how often it is asked, and what happened in an hour."""

from __future__ import annotations

import json
import math
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from vigia_compare import looks, site, timeline
from vigia_compare.looks import Looks, NotKnown, TooMany
from vigia_compare.site import STATE, alarms, mesh, state
from vigia_dashboards.expressions import check
from vigia_prometheus import Sample, Series, Unavailable

AT = 1_800_000_000.0


def sample(value: float, **labels: str) -> Sample:
    return Sample(labels, AT, value)


class Answers:
    """Answers by question; what is not there is nothing."""

    def __init__(self, **named: Sequence[Sample]) -> None:
        questions = {**site.ALARMS, **site.STATE}
        self.by = {questions[k.replace("_paths", " paths")]: list(v) for k, v in named.items()}
        self.asked: list[str] = []

    def __call__(self, expression: str) -> list[Sample]:
        self.asked.append(expression)
        return self.by.get(expression, [])


FLOOD = sample(91.0, node="n1", port="p1", tenant="red")
LIMIT = sample(5e6, node="n1", port="p1", tenant="red", direction="from_tenant", protocol="udp")
HARM = {"node": "n1", "tenant": "blue", "offender": "red"}
ALERT = {"alertname": "VigiaUdpFlood", "severity": "critical", "tenant": "red", "node": "n1"}


@pytest.mark.parametrize(
    "expression", [*site.ALARMS.values(), *site.STATE.values(), *timeline.QUESTIONS.values()]
)
def test_every_question_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    check(expression)


def test_questions_whose_answers_grow_with_trouble_are_bounded() -> None:
    questions = {**site.ALARMS, **site.STATE}
    for name in ("alerts", "since", "floods", "limits", "harms", "lossy paths", "slow paths"):
        assert questions[name].startswith(("topk(", "bottomk(")), name


def test_a_quiet_site() -> None:
    found = alarms(Answers(), AT)
    assert (found.alerts, found.floods, found.limits, found.harms) == ([], [], [], [])
    assert (found.waiting, found.kill_switch, found.silent, found.down) == (0, False, 0, 0)


def test_what_is_wrong_is_named_the_worst_first() -> None:
    other = {"alertname": "VigiaHostBusy", "severity": "warning", "node": "n2"}
    found = alarms(
        Answers(
            alerts=[sample(1.0, **other), sample(3.0, **ALERT)],
            since=[sample(AT - 60.0, **ALERT)],
            floods=[sample(70.0, node="n2", port="p2", tenant="red"), FLOOD],
            limits=[LIMIT],
            harms=[sample(1.0, verdict="likely", **HARM)],
            begin=[sample(AT - 50.0, **HARM)],
            end=[sample(AT - 5.0, **HARM)],
            share=[sample(0.8, **HARM)],
            waiting=[sample(2.0)],
            kill_switch=[sample(1.0)],
            down=[sample(math.nan)],
        ),
        AT,
    )
    assert [(a.name, a.series, a.since) for a in found.alerts] == [
        ("VigiaUdpFlood", 3, AT - 60.0),
        ("VigiaHostBusy", 1, 0.0),
    ]
    assert [f.score for f in found.floods] == [91.0, 70.0]
    assert (found.limits[0].protocol, found.limits[0].rate) == ("udp", 5e6)
    (harm,) = found.harms
    assert (harm.offender, harm.verdict, harm.begin, harm.end, harm.share) == (
        "red",
        "likely",
        AT - 50.0,
        AT - 5.0,
        0.8,
    )
    assert (found.waiting, found.kill_switch, found.down) == (2, True, 0)


def _tenant(name: str, value: float, **labels: str) -> Sample:
    return sample(value, tenant=name, **labels)


def test_tenants_are_the_worst_off_first_and_the_operator_buys_nothing() -> None:
    answers = Answers(
        bought=[_tenant("red", 1e6, direction="from_tenant"), _tenant("red", 2e6, direction="to_tenant")],
        rate=[
            _tenant("red", 3e6, direction="from_tenant"),
            _tenant("blue", 9e6, direction="from_tenant"),
            _tenant("_infra", 5.0, direction="from_tenant"),
        ],
        loss=[_tenant("blue", 0.2), _tenant("red", 0.0)],
        p99=[_tenant("blue", 0.01)],
        drops=[_tenant("red", 7.0, reason="rate_limit")],
        harms=[sample(1.0, verdict="attributed", **HARM), sample(1.0, verdict="likely", **HARM)],
        floods=[FLOOD],
        limits=[LIMIT],
    )
    found = state(answers, alarms(answers, AT))
    blue, red, infra = found.tenants
    assert (blue.tenant, blue.words) == ("blue", ["hurt by red", "hurt by red (likely)", "loses probes"])
    assert (red.tenant, red.words) == ("red", ["floods", "limited", "above guarantee"])
    assert (red.bought, red.bought_to_receive, red.sent, red.drops) == (1e6, 2e6, 3e6, {"rate_limit": 7.0})
    assert (infra.operator, infra.above, infra.words) == (True, False, [])


def test_a_tenant_without_a_contract_is_not_above_it() -> None:
    answers = Answers(rate=[_tenant("green", 1e9, direction="from_tenant")])
    (green,) = state(answers, alarms(answers, AT)).tenants
    assert math.isnan(green.bought) and not green.above and green.words == []


DROPS = """
rule_files: []
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {{series: 'vigia_port_drops_total{{port="p", tenant="red", reason="rate_limit"}}', values: '_x8 0 0 900 1800x20'}}
      - {{series: 'vigia_port_drops_total{{port="p", tenant="red", reason="mtu"}}', values: '7x31'}}
      - {{series: 'vigia_port_drops_total{{port="q", tenant="blue", reason="other"}}', values: '0x31'}}
    promql_expr_test:
{cases}
"""
"""rate_limit drops from a little before 2m on: a new series begins with zeros. The others say nothing new."""


@pytest.mark.parametrize(
    ("after", "found"), [("1m45s", None), ("2m", 0), ("2m15s", 0), ("2m30s", 900), ("9m30s", None)]
)
def test_the_first_drops_of_a_reason_are_seen_before_they_are_counted(
    after: str, found: int | None, tmp_path: Path
) -> None:
    expected = [] if found is None else [{"labels": '{tenant="red", reason="rate_limit"}', "value": found}]
    case = {"expr": STATE["drops"], "eval_time": after, "exp_samples": expected}
    file = tmp_path / "drops.test.yml"
    file.write_text(DROPS.format(cases=f"      - {json.dumps(case)}"))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_many_tenants_are_bounded_and_the_rest_is_counted() -> None:
    answers = Answers(rate=[_tenant(f"t{i}", float(i), direction="from_tenant") for i in range(500)])
    found = state(answers, alarms(answers, AT))
    assert len(found.tenants) == site.MOST and found.more_tenants == 300
    assert found.tenants[0].tenant == "t499", "what sends most is kept where nothing is wrong"


def test_paths_are_ordered_by_loss_and_by_their_usual_delay() -> None:
    def path(name: str, value: float) -> Sample:
        return sample(value, src="a", dst="b", path=name, tenant="_infra", probe="stamp-64")

    answers = Answers(
        lossy_paths=[path("lossy", 0.02), path("hardly", 0.0001)],
        slow_paths=[path("slow", 3.0), path("lossy", 1.0), path("usual", 1.1)],
        delays=[path("slow", 0.004), path("lossy", 0.001)],
    )
    found = state(answers, alarms(answers, AT)).paths
    assert [(p.path, p.words) for p in found] == [
        ("lossy", "loses probes"),
        ("slow", "slow"),
        ("usual", ""),
        ("hardly", ""),
    ]
    assert (found[1].p99, found[1].times_usual) == (0.004, 3.0) and math.isnan(found[3].p99)


def test_the_mesh_keeps_the_nodes_with_the_worst_pairs() -> None:
    names = [f"n{i:03}" for i in range(130)]
    lost = [sample(0.5 if (a, b) == ("n129", "n128") else 0.0, src=a, dst=b) for a in names for b in names]
    found = mesh(lambda e: lost if "loss" in e else [], AT)
    assert len(found.nodes) == site.MOST_NODES and found.more_nodes == 30
    assert {"n129", "n128"} <= set(found.nodes)
    assert len(found.pairs) == site.MOST_NODES**2
    assert found.pairs["n129", "n128"][0] == 0.5


@pytest.mark.parametrize("path", ['ovs"} or up{job="x', "a\\", "ü", "b\nc"])
def test_a_path_cannot_leave_its_quotes(path: str) -> None:
    asked: list[str] = []
    mesh(lambda e: asked.append(e) or [], AT, path)  # type: ignore[func-returns-value]
    for expression in asked:
        (matcher,) = promql_parser.parse(expression).expr.matchers.matchers
        assert (matcher.name, matcher.value) == ("path", path)


# The timeline


def series(labels: Mapping[str, str], *points: tuple[float, float]) -> Series:
    return Series(labels, [(AT + at, v) for at, v in points])


def ranged(**by: Sequence[Series]) -> Callable[..., list[Series]]:
    return lambda expression, *_: next(
        (list(by[k]) for k, q in timeline.QUESTIONS.items() if q == expression and k in by), []
    )


def test_events_have_a_beginning_and_an_end() -> None:
    flood = {"node": "n1", "port": "p1", "tenant": "red"}
    found = timeline.timeline(
        ranged(
            flood=[series(flood, (-600, 80), (-585, 95), (-540, 70), (-90, 71))],
            limit=[series(flood, (-15, 5e6), (0, 2.5e6))],
            alert=[series({"alertname": "VigiaHostBusy", "severity": "warning", "node": "n2"}, (-30, 1))],
        ),
        AT + 7.0,
    )
    assert (found.at, found.start) == (AT, AT - 3600.0)
    assert [(e.kind, e.begin - AT, e.end - AT, e.lasts, e.what) for e in found.events] == [
        ("limit", -15, 0, True, "red is limited to 20.0 Mbit/s to 40.0 Mbit/s at port p1 on n1"),
        ("alert", -30, -30, False, "VigiaHostBusy: node n2"),
        ("flood", -90, -90, False, "red floods from port p1 on n1, score 71 of 100"),
        ("flood", -600, -540, False, "red floods from port p1 on n1, score 95 of 100"),
    ]


def test_a_harm_is_told_once_however_long_it_is_remembered() -> None:
    at = [-300.0 + 15.0 * i for i in range(20)]
    begin = series(HARM, *((t, AT - 310.0) for t in at), (0.0, AT - 20.0))
    end = series(HARM, *((t, AT - max(280.0, -t)) for t in at), (0.0, AT - 5.0))
    found = timeline.timeline(ranged(begin=[begin], end=[end]), AT)
    assert [(e.what, e.begin - AT, e.end - AT, e.lasts) for e in found.events] == [
        ("blue is hurt by red on n1", -20.0, -5.0, True),
        ("blue is hurt by red on n1", -310.0, -280.0, False),
    ]


def test_many_events_are_bounded() -> None:
    found = timeline.timeline(
        ranged(alert=[series({"alertname": f"A{i}"}, (-float(15 * (i % 200)), 1)) for i in range(450)]), AT
    )
    assert (len(found.events), found.more) == (timeline.MOST_EVENTS, 250)
    assert min(e.begin for e in found.events) >= AT - 15 * 100, "the newest are kept"


# Looks


class Server:
    """A Prometheus that counts who asks."""

    url = "http://p"

    def __init__(self) -> None:
        self.opened = 0
        self.instants: list[float | None] = []
        self.failure: Exception | None = None
        self.found: dict[str, list[Sample]] = {}
        self.before: Callable[[], Any] = lambda: None

    def __enter__(self) -> Server:
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def instant(self, expression: str, at: float | None = None) -> list[Sample]:
        self.before()
        self.instants.append(at)
        if self.failure is not None:
            raise self.failure
        return self.found.get(expression, [])

    def range(self, *_: object) -> list[Series]:
        return []


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def seen(server: Server, clock: Clock) -> Looks:
    return Looks(lambda: server, lambda: AT + clock.now, clock)  # type: ignore[arg-type, return-value]


def test_however_many_viewers_it_is_asked_once(seen: Looks, server: Server, clock: Clock) -> None:
    for _ in range(50):
        seen.alarms()
        seen.state()
    assert server.opened == 2
    clock.now += looks.ALARMS_HOLD + 0.1
    seen.alarms()
    seen.state()
    assert server.opened == 3, "what is wrong is looked at more often than all else"
    clock.now += looks.HOLD
    seen.state()
    assert server.opened == 5


def test_a_flood_is_not_said_beside_tenants_of_before(seen: Looks, server: Server, clock: Clock) -> None:
    assert seen.state().tenants == []
    opened = server.opened
    server.found = {site.ALARMS["floods"]: [FLOOD], site.STATE["rate"]: [sample(1e6, tenant="red")]}
    clock.now += looks.ALARMS_HOLD + 0.1
    (red,) = seen.state().tenants
    assert red.words == ["floods"] and server.opened == opened + 2
    clock.now += looks.ALARMS_HOLD + 0.1
    assert seen.state().tenants == [red] and server.opened == opened + 3, "as long as that stays, it is held"


def test_viewers_at_once_wait_for_one_look(seen: Looks, server: Server) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert go.wait(30.0)

    server.before = slow
    threads = [threading.Thread(target=seen.alarms) for _ in range(8)]
    threads[0].start()
    assert begun.wait(30.0)
    for t in threads[1:]:
        t.start()
    go.set()
    for t in threads:
        t.join()
    assert server.opened == 1


def test_a_failure_is_remembered_as_well(seen: Looks, server: Server, clock: Clock) -> None:
    server.failure = Unavailable("away")
    for _ in range(20):
        with pytest.raises(NotKnown, match="away"):
            seen.mesh()
    assert server.opened == 1 and len(server.instants) == 1
    server.failure = None
    clock.now += looks.HOLD + 0.1
    assert seen.mesh().nodes == []


def test_a_slow_server_does_not_hold_every_page(
    seen: Looks, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "PATIENCE", 0.05)
    begun, go = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert go.wait(30.0)

    server.before = slow
    first = threading.Thread(target=lambda: pytest.raises(NotKnown, seen.alarms))
    first.start()
    assert begun.wait(30.0)
    with pytest.raises(NotKnown, match="answers slowly"):
        seen.alarms()
    go.set()
    first.join()
    server.before = lambda: None
    assert server.opened == 1


def test_the_past_is_looked_at_so_often_and_no_more(seen: Looks, server: Server, clock: Clock) -> None:
    base = AT // looks.PAST_STEP * looks.PAST_STEP
    seen.alarms(base + 1.0)
    seen.alarms(base + 2.0)
    assert server.opened == 1 and set(server.instants) == {base}, "neighbours share an answer"
    for i in range(1, looks.MOST_PAST):
        seen.alarms(base + 60.0 * i)
    with pytest.raises(TooMany, match="wait a minute"):
        seen.alarms(base - 600.0)
    seen.alarms()
    clock.now += looks.PAST_PERIOD
    seen.alarms(base - 600.0)
    assert len(seen._kept) <= looks.MOST_KEPT


def test_another_server_is_asked_anew(seen: Looks, server: Server) -> None:
    seen.alarms()
    seen.forget()
    seen.alarms()
    assert server.opened == 2
