"""The client of the enforcers: contract, time limits, bounds, back-off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from isolation_agent.config import Loop
from isolation_agent.enforcers.client import (
    EnforcerClient,
    EnforcerError,
    LimitRequest,
    Refused,
    Removed,
    RemovedAll,
    Unreachable,
)
from isolation_agent.enforcers.fleet import Fleet
from isolation_agent.metrics import Metrics
from isolation_agent.model.node import NodeState
from vigia_service.tokens import Token
from vigia_testing import DEADLINE

from ..support.fake_enforcer import TOKEN, FakeEnforcer
from ..support.world import GUARANTEE, PORT, FakeClock

ID = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


@pytest.fixture
def enforcer(clock: FakeClock) -> Iterator[FakeEnforcer]:
    made = FakeEnforcer(clock)
    made.add(PORT, "red", guarantee=GUARANTEE)
    yield made
    made.stop()


@pytest.fixture
def client(enforcer: FakeEnforcer) -> Iterator[EnforcerClient]:
    with EnforcerClient("lb1", enforcer.url, Token(TOKEN), DEADLINE) as made:
        yield made


def request(**extra: Any) -> LimitRequest:
    return LimitRequest(
        **{"id": ID, "tenant": "red", "rate_bytes_per_second": GUARANTEE, "ttl_seconds": 30} | extra
    )


def test_state(client: EnforcerClient, enforcer: FakeEnforcer, clock: FakeClock) -> None:
    enforcer.flood(PORT, 1234.5)
    port = client.state().find(PORT)
    assert port is not None
    assert (port.tenant, port.guarantee, port.hook, port.attached) == ("red", GUARANTEE, "tcx", True)
    assert port.offered is not None
    assert port.offered.udp_bytes_per_second == 1234.5
    assert port.signals is not None
    assert port.signals.flood_detected_at == clock.now(), "nanoseconds are cut to microseconds"
    assert port.limit is None
    assert client.state().find("another") is None


def test_port_without_contract_and_attachment(client: EnforcerClient, enforcer: FakeEnforcer) -> None:
    enforcer.add("bare", "red", guarantee=None, ceiling=None, attached=False, offered=None)
    port = client.state().find("bare")
    assert port is not None
    assert (port.guarantee, port.guarantee_bytes_per_second, port.offered) == (0, None, None)


def test_set_extend_remove(client: EnforcerClient, clock: FakeClock) -> None:
    first = client.apply(PORT, request())
    assert (first.verified, first.limit.id, first.limit.expires_in_seconds) == (True, ID, 30.0)
    clock.advance(10)
    port = client.state().find(PORT)
    assert port is not None
    assert port.limit is not None
    assert port.limit.expires_in_seconds == pytest.approx(20)
    assert client.apply(PORT, request()).limit.expires_in_seconds == pytest.approx(30)
    assert client.remove(PORT, ID) == Removed(port=PORT, removed=True, verified=True)
    assert client.remove(PORT, ID).removed is False


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tenant": "blue"}, "tenant_mismatch"),
        ({"rate_bytes_per_second": GUARANTEE - 1}, "below_floor"),
    ],
)
def test_refusals_carry_code_and_status(client: EnforcerClient, change: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as e:
        client.apply(PORT, request(**change))
    assert (e.value.code, e.value.status) == (code, 409)


def test_names_cannot_leave_their_place_in_the_path(client: EnforcerClient, enforcer: FakeEnforcer) -> None:
    for name in ("../limits", "a/b", "a?id=x", "a#b", "ä", "a%2Fb"):
        with pytest.raises(Refused) as e:
            client.apply(name, request())
        assert e.value.code == "unknown_port"
        assert enforcer.calls[-1].port == name
        assert enforcer.calls[-1].operation == "apply"
    with pytest.raises(Refused):
        client.remove("a/b", "x&y")


def test_wrong_token(enforcer: FakeEnforcer) -> None:
    with (
        EnforcerClient("lb1", enforcer.url, Token("x" * 20), DEADLINE) as client,
        pytest.raises(Refused) as e,
    ):
        client.state()
    assert e.value.status == 401


def test_wrong_node_is_not_believed(enforcer: FakeEnforcer) -> None:
    with (
        EnforcerClient("lb2", enforcer.url, Token(TOKEN), DEADLINE) as client,
        pytest.raises(Unreachable, match="answers as node 'lb1' instead of 'lb2'; correct hosts"),
    ):
        client.state()


@pytest.mark.parametrize("fault", ["drop", "garbage", "huge"])
def test_useless_answers(client: EnforcerClient, enforcer: FakeEnforcer, fault: str) -> None:
    enforcer.break_next("state", fault)
    with pytest.raises(Unreachable):
        client.state()
    assert client.state().node == "lb1", "the next one is fine"


@pytest.mark.parametrize(
    "change",
    [
        {"node": 5},
        {"time": "now"},
        {"ports": {}},
        {"ports": [{"port": "p"}]},
        {"ports": [{"port": "p", "tenant": "t", "guarantee_bytes_per_second": -1}]},
        {"ports": [{"port": "p", "tenant": "t", "offered": {"udp_bytes_per_second": -5}}]},
        {"ports": [{"port": "p", "tenant": "t", "offered": {}}]},
        {"ports": [{"port": "p", "tenant": "t", "signals": {"flood_detected_at": "soon"}}]},
        {"ports": [{"port": "p", "tenant": "t", "limit": {"id": "x"}}]},
    ],
)
def test_answers_against_the_contract(
    client: EnforcerClient, enforcer: FakeEnforcer, change: dict[str, Any]
) -> None:
    answer = {"node": "lb1", "time": "2026-01-02T03:04:05Z", "ports": []} | change
    enforcer.break_next("state", lambda _port: (200, answer))
    with pytest.raises(Unreachable, match="the answer is not the contract's"):
        client.state()


def test_numbers_that_are_none_are_refused(client: EnforcerClient, enforcer: FakeEnforcer) -> None:
    port = {"port": "p", "tenant": "t", "offered": {"udp_bytes_per_second": float("nan")}}
    answer = {"node": "lb1", "time": "2026-01-02T03:04:05Z", "ports": [port]}
    enforcer.break_next("state", lambda _port: (200, answer))
    with pytest.raises(Unreachable):
        client.state()


def test_unknown_fields_are_ignored(client: EnforcerClient, enforcer: FakeEnforcer) -> None:
    port = {"port": "p", "tenant": "t", "colour": "blue"}
    answer = {"node": "lb1", "time": "2026-01-02T03:04:05Z", "ports": [port], "more": [1]}
    enforcer.break_next("state", lambda _port: (200, answer))
    assert client.state().find("p") is not None


@pytest.mark.parametrize(
    "answer", [(500, "x"), (500, {"error": "x"}), (404, {}), (302, {"error": {}}), (204, None), (200, None)]
)
def test_errors_without_the_contracts_shape_are_no_refusals(
    client: EnforcerClient, enforcer: FakeEnforcer, answer: tuple[int, Any]
) -> None:
    enforcer.break_next("apply", lambda _port: answer)
    with pytest.raises(Unreachable):
        client.apply(PORT, request())


def test_message_of_a_refusal_is_bounded(client: EnforcerClient, enforcer: FakeEnforcer) -> None:
    error = {"error": {"code": "c" * 9999, "message": "m" * 9999}}
    enforcer.break_next("apply", lambda _port: (409, error))
    with pytest.raises(Refused) as e:
        client.apply(PORT, request())
    assert len(str(e.value)) < 400


def test_nobody_listens(enforcer: FakeEnforcer, client: EnforcerClient) -> None:
    enforcer.leave()
    with pytest.raises(Unreachable, match="refused"):
        client.state()


def test_proxies_of_the_environment_are_not_used(
    enforcer: FakeEnforcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with EnforcerClient("lb1", enforcer.url, Token(TOKEN), DEADLINE) as client:
        assert client.state().node == "lb1"


class Drip:
    """A server that sends one byte of its answer now and then, or nothing at all."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._stop = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(self._head)
            while self._head and not self._stop.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return
            self._stop.wait()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"])
def test_slow_answers_end(head: bytes) -> None:
    drip = Drip(head)
    try:
        with EnforcerClient("lb1", drip.url, Token(TOKEN), 0.3) as client, pytest.raises(Unreachable):
            client.state()
    finally:
        drip.close()


# All of them together


def fleet(clock: FakeClock, *enforcers: FakeEnforcer, metrics: Metrics | None = None) -> Fleet:
    clients = {e.node: EnforcerClient(e.node, e.url, Token(TOKEN), DEADLINE) for e in enforcers}
    return Fleet(clients, Loop(), clock, metrics or Metrics())


def test_nodes_are_read_at_the_same_time(clock: FakeClock) -> None:
    barrier = threading.Barrier(3, timeout=30)
    made = [FakeEnforcer(clock, f"n{i}") for i in range(3)]

    def meet(_port: str) -> None:
        barrier.wait()

    all_of_them = fleet(clock, *made)
    try:
        for e in made:
            e.break_next("state", meet)
        views = all_of_them.look(["n0", "n1", "n2"])
        assert all(v.state is not None for v in views.values()), "one after the other they would never meet"
    finally:
        all_of_them.close()
        for e in made:
            e.stop()


def test_back_off_grows_and_is_bounded(enforcer: FakeEnforcer, clock: FakeClock) -> None:
    nodes = fleet(clock, enforcer)
    enforcer.break_next("state", "drop", left=None)
    waits: list[float] = []
    last = clock.monotonic()
    for _ in range(2000):
        before = enforcer.count("state")
        view = nodes.look_at("lb1")
        assert view.state is None
        assert view.error
        assert view.asked is (enforcer.count("state") > before)
        if view.asked:
            waits.append(round(clock.monotonic() - last, 2))
            last = clock.monotonic()
        clock.advance(0.05)
    nodes.close()
    assert waits[1:7] == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0, 15.0], abs=0.1)
    assert max(waits) <= 15.1


def test_success_ends_the_back_off(enforcer: FakeEnforcer, clock: FakeClock) -> None:
    metrics = Metrics()
    nodes = fleet(clock, enforcer, metrics=metrics)
    enforcer.break_next("state", "drop", left=3)
    for _ in range(40):
        nodes.look_at("lb1")
        clock.advance(0.5)
    assert isinstance(nodes.look_at("lb1").state, NodeState)
    assert metrics.registry.get_sample_value("vigia_agent_enforcer_up", {"node": "lb1"}) == 1
    labels = {"operation": "state", "outcome": "unreachable"}
    assert metrics.registry.get_sample_value("vigia_agent_enforcer_requests_total", labels) == 3
    nodes.close()


def test_refusal_is_an_answer(enforcer: FakeEnforcer, clock: FakeClock) -> None:
    metrics = Metrics()
    nodes = fleet(clock, enforcer, metrics=metrics)
    enforcer.refuse("apply", 409, "not_attached")
    with pytest.raises(Refused):
        nodes.apply("lb1", PORT, request())
    assert nodes.look_at("lb1").asked, "no back-off"
    labels = {"operation": "apply", "outcome": "refused"}
    assert metrics.registry.get_sample_value("vigia_agent_enforcer_requests_total", labels) == 1
    nodes.close()


def test_unknown_node(enforcer: FakeEnforcer, clock: FakeClock) -> None:
    nodes = fleet(clock, enforcer)
    assert "lb1" in nodes
    assert "lb9" not in nodes
    assert "add it to hosts" in nodes.look(["lb9"])["lb9"].error
    for ask in (lambda: nodes.apply("lb9", PORT, request()), lambda: nodes.remove("lb9", PORT, ID)):
        with pytest.raises(EnforcerError, match="no enforcer is configured for node lb9"):
            ask()
    nodes.close()


class Silent:
    """An enforcer that never answers; eight are awaited at the same time, for two seconds."""

    def __init__(
        self, clock: FakeClock, asked: list[str], node: str, first: threading.Event | None = None
    ) -> None:
        """No time passes before ``first`` is set."""
        self._clock, self._asked, self._node, self._first = clock, asked, node, first

    def state(self) -> NodeState:
        assert self._first is None or self._first.wait(DEADLINE)
        with LOCK:
            self._asked.append(self._node)
            self._clock.advance(2.0 / 8)
        raise Unreachable("timed out")

    def remove_all(self, _term: int | None = None) -> RemovedAll:
        self.state()
        raise AssertionError

    def close(self) -> None:
        pass


LOCK = threading.Lock()


class First(EnforcerClient):
    """One that answers; its thread may get no processor between its turn and its question, which is told."""

    def __init__(self, enforcer: FakeEnforcer) -> None:
        super().__init__(enforcer.node, enforcer.url, Token(TOKEN), DEADLINE)
        self.asked = threading.Event()

    def state(self) -> NodeState:
        self.asked.set()
        return super().state()

    def remove_all(self, term: int | None = None) -> RemovedAll:
        self.asked.set()
        return super().remove_all(term)


def test_many_dead_nodes_take_a_few_timeouts_of_each_look(clock: FakeClock, enforcer: FakeEnforcer) -> None:
    """The others are read in each, the lease is kept meanwhile, and in the end each dead one is asked again."""
    asked: list[str] = []
    alive = First(enforcer)
    dead = {f"a{i:03d}": Silent(clock, asked, f"a{i:03d}", alive.asked) for i in range(400)}
    loop = Loop()
    nodes = Fleet({**dead, "lb1": alive}, loop, clock, Metrics())
    beats: list[float] = []
    nodes.lead(lambda _node: 1, lambda: True, lambda: beats.append(clock.monotonic()))
    try:
        assert nodes.look(["lb1"])["lb1"].state is not None
        looks = 0
        while len(set(asked)) < len(dead):
            before, looks = clock.monotonic(), looks + 1
            clock.advance(1.0)  # an answer that is as old as the last one is none
            alive.asked.clear()
            views = nodes.look(nodes.nodes)
            assert set(views) == set(nodes.nodes)
            assert views["lb1"].state is not None
            assert clock.monotonic() - before <= 1.0 + 5 * loop.enforcer_timeout
            assert looks < 100
        assert len(beats) >= looks * len(nodes.nodes)
        asked.clear()
        clock.advance(loop.backoff_max)
        nodes.look(nodes.nodes)
        assert 8 <= len(asked) < 16, "a few of those that did not answer: a timeout's worth"
        while len(set(asked)) < len(dead):
            looks += 1
            clock.advance(loop.backoff_max)
            nodes.look(nodes.nodes)
            assert looks < 200
        assert max(asked.count(n) for n in dead) <= 2, "by turns"
    finally:
        nodes.close()


def test_nodes_that_answer_again_are_all_read_at_once(clock: FakeClock) -> None:
    """After a cut of the agent's own network every node has failed; no limit may lapse for want of its turn."""
    made = [FakeEnforcer(clock, f"n{i}") for i in range(30)]
    nodes = fleet(clock, *made)
    try:
        for e in made:
            e.break_next("state", "drop")
        assert not any(v.state for v in nodes.look(nodes.nodes).values())
        clock.advance(Loop().backoff_max)
        assert all(v.state for v in nodes.look(nodes.nodes).values())
    finally:
        nodes.close()
        for e in made:
            e.stop()


def test_the_kill_switch_reaches_who_answers_whatever_others_do(
    clock: FakeClock, enforcer: FakeEnforcer
) -> None:
    asked: list[str] = []
    alive = First(enforcer)
    dead = {f"a{i:03d}": Silent(clock, asked, f"a{i:03d}", alive.asked) for i in range(400)}
    loop = Loop()
    nodes = Fleet({**dead, "lb1": alive}, loop, clock, Metrics())
    try:
        nodes.look(["lb1"])
        alive.asked.clear()
        left, turns = set(nodes.nodes), 0
        while turns < 3:
            before, turns = clock.monotonic(), turns + 1
            answers = nodes.remove_all(left)
            assert clock.monotonic() - before <= 6 * loop.enforcer_timeout
            assert set(answers) == left
            left -= {n for n, answer in answers.items() if isinstance(answer, int)}
            assert "lb1" not in left
        assert enforcer.count("remove_all") == 1
    finally:
        nodes.close()


def test_who_is_not_asked_in_time_says_so(clock: FakeClock) -> None:
    asked: list[str] = []
    dead = {f"a{i:03d}": Silent(clock, asked, "") for i in range(200)}
    nodes = Fleet(dead, Loop(), clock, Metrics())
    views = nodes.look(nodes.nodes)
    late = [v for v in views.values() if not v.asked]
    assert len(late) == len(views) - len(asked) > 0
    assert {v.error for v in late} == {"not asked in this turn: others have taken its time"}
    nodes.close()


def test_dead_node_does_not_hold_up_the_others(clock: FakeClock, enforcer: FakeEnforcer) -> None:
    silent = Drip(b"")
    clients = {
        "lb1": EnforcerClient("lb1", enforcer.url, Token(TOKEN), DEADLINE),
        "lb2": EnforcerClient("lb2", silent.url, Token(TOKEN), 0.3),
    }
    metrics = Metrics()
    nodes = Fleet(clients, Loop(), clock, metrics)

    def asked() -> float | None:
        labels = {"operation": "state", "outcome": "unreachable"}
        return metrics.registry.get_sample_value("vigia_agent_enforcer_requests_total", labels)

    try:
        views = nodes.look(["lb1", "lb2"])
        assert views["lb1"].state is not None
        assert views["lb2"].state is None
        assert nodes.look_at("lb2").asked is False, "not asked again until its back-off is over"
        assert asked() == 1
        clock.advance(Loop().backoff)
        assert nodes.look_at("lb2").asked is True
        assert asked() == 2
    finally:
        nodes.close()
        silent.close()
