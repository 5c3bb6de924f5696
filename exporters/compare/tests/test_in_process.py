"""The service and its pages without a process: what is shown when, and what a reload swaps."""

from __future__ import annotations

import errno
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient

from vigia_compare import service as services
from vigia_compare.blame import Blamed
from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation, Ledger
from vigia_compare.interference import Interference
from vigia_compare.service import Service
from vigia_compare.source import Memory, Source
from vigia_config import ConfigError, load
from vigia_prometheus import Unavailable
from vigia_service.errors import ServiceError

from .made import BASE, END, KNOWN, evaluation_of, known, readings

TOKEN = "reload-token-of-the-tests"


class World:
    """A service whose evaluations are made up, on a clock that stands still."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
        self.file = folder / "compare.yaml"
        token = folder / "reload.token"
        token.touch(mode=0o600)
        token.write_text(TOKEN)
        self.write(**fields)
        self.now = 1_800_000_000.0
        self.asked: list[Config] = []
        self.memories: list[Memory | None] = []
        self.ledgers: list[Ledger] = []
        self.failure: Exception | None = None
        self.news = False
        self.service = Service(self.file, load(self.file, Config), clock=lambda: self.now)
        self.client: FlaskClient = self.service.app().test_client()
        self.client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
        monkeypatch.setattr(services, "evaluate", self.evaluate)

    def write(self, **fields: Any) -> None:
        self.file.write_text(yaml.safe_dump({"every": "20s", "reload_token_file": "reload.token", **fields}))

    def evaluate(self, source: Source, config: Config, now: float, ledger: Ledger) -> Evaluation:
        self.asked.append(config)
        self.memories.append(source._memory)
        self.ledgers.append(ledger)
        if self.failure is not None:
            raise self.failure
        made = readings("rtt", {"gre": BASE, "vxlan": 2.0 * BASE, "<b>": 3.0 * BASE})
        of = known({"<b>": KNOWN["gre"]})
        ledger.book.take([made], of, fine=False)
        return replace(evaluation_of(made, of=of), at=now, news=self.news)

    def metric(self, name: str) -> float | None:
        label = {"result": name.partition(":")[2]} if ":" in name else {}
        return self.service.metrics.registry.get_sample_value(
            f"vigia_compare_{name.partition(':')[0]}", label
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_before_the_first_evaluation(world: World) -> None:
    ready = world.client.get("/-/ready")
    assert (ready.status_code, ready.text) == (503, "not ready: no evaluation so far\n")
    assert world.client.get("/-/healthy").status_code == 200
    comparisons = world.client.get("/v1/comparisons")
    assert (comparisons.status_code, comparisons.text) == (503, "no evaluation so far\n")
    assert "not yet: no evaluation so far" in world.client.get("/").text


def test_after_an_evaluation(world: World) -> None:
    world.service.turn()
    assert world.client.get("/-/ready").text == "ready\n"
    answer = world.client.get("/v1/comparisons")
    assert answer.content_type == "application/json"
    assert json.loads(answer.text)["comparisons"][0]["winner"] == "gre"
    page = world.client.get("/")
    assert page.content_type == "text/html; charset=utf-8"
    assert "&lt;b&gt;" in page.text and "<b>" not in page.text, "names are shown, not obeyed"
    assert (
        'vigia_compare_winner{machines="",metric="rtt",note="",path="gre"'
        in world.client.get("/metrics/verdicts").text
    )
    assert (world.metric("evaluations_total:ok"), world.metric("evaluations_total:error")) == (1.0, 0.0)
    assert (world.metric("prometheus_up"), world.metric("last_evaluation_timestamp_seconds")) == (
        1.0,
        world.now,
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("POST", "/", 405), ("POST", "/metrics", 405), ("GET", "/-/reload", 405), ("DELETE", "/v1/comparisons", 405)],
)  # fmt: skip
def test_pages_that_are_none(world: World, method: str, path: str, status: int) -> None:
    answer = world.client.open(path, method=method)
    assert answer.status_code == status
    assert answer.text.endswith("; see /\n") and answer.content_type.startswith("text/plain")
    assert ("Allow" in answer.headers) == (status == 405)


def test_a_failure_leaves_the_last_evaluation_until_it_is_old(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.service.turn()
    world.failure = Unavailable("Prometheus at http://x does not answer")
    for _ in range(3):
        world.service.turn()
    assert caplog.text.count("cannot evaluate") == 1, "the same failure is logged once"
    assert world.client.get("/v1/comparisons").status_code == 200
    assert (world.metric("prometheus_up"), world.metric("evaluations_total:error")) == (0.0, 3.0)
    world.now += 60.0
    world.service.turn()
    assert world.client.get("/v1/comparisons").status_code == 200, "three intervals old, not older"
    world.now += 0.1
    world.service.turn()
    answer = world.client.get("/v1/comparisons")
    assert (answer.status_code, answer.text) == (503, "Prometheus at http://x does not answer\n")
    assert world.client.get("/metrics/verdicts").text == ""
    assert world.client.get("/-/ready").status_code == 200, "Prometheus being away is no fault of ours"
    world.failure = None
    world.service.turn()
    assert world.client.get("/v1/comparisons").status_code == 200 and world.service.problem == ""


def test_a_mistake_of_ours_ends_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.failure = ZeroDivisionError("somewhere deep")
    world.service.turn()
    assert (
        "cannot evaluate: the program has made a mistake" in caplog.text and "somewhere deep" in caplog.text
    )
    assert world.client.get("/v1/comparisons").text == "an evaluation failed; see the log\n"
    assert world.metric("evaluations_total:error") == 1.0
    assert world.metric("prometheus_up") == 0.0, "never asked with success"
    world.failure = None
    world.service.turn()
    assert world.service.newest is not None


def test_a_loop_that_takes_no_turns_is_not_healthy(world: World) -> None:
    assert world.service.stuck() == ""
    world.service._beat = time.monotonic() - (20.0 + 30 * 10.0 + 30.0) - 1.0
    answer = world.client.get("/-/healthy")
    assert (answer.status_code, answer.text) == (503, "not healthy: the loop has stopped taking turns\n")


def test_a_reload_is_in_force_at_the_next_turn(world: World) -> None:
    world.service.turn()
    world.write(window="2m", period="1h", tenant="red", prometheus="http://127.0.0.1:9091")
    assert world.client.post("/-/reload").text == "reloaded\n"
    world.service.turn()
    before, after = world.asked
    assert (before.window, before.tenant) == (60.0, "_infra")
    assert (after.window, after.tenant, after.prometheus) == (120.0, "red", "http://127.0.0.1:9091")
    assert world.metric("window_seconds") == 120.0
    assert world.metric("config_last_reload_successful") == 1.0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"windw": "5s"}, 'unknown key "windw"'),
        ({"listen": "127.0.0.1:1"}, "listen cannot change from 127.0.0.1:9875 to 127.0.0.1:1 while the program runs; restart it"),
        ({"tls": {"ca_file": "/absent/ca", "cert_file": "/absent/c", "key_file": "/absent/k"}}, "tls cannot change from off to on while the program runs"),
    ],
)  # fmt: skip
def test_a_reload_that_fails_changes_nothing(world: World, fields: dict[str, Any], problem: str) -> None:
    before = world.service.config
    world.write(window="2m", period="1h", **fields)
    answer = world.client.post("/-/reload")
    assert answer.status_code == 500 and problem in answer.text
    assert world.service.config is before
    assert world.metric("config_last_reload_successful") == 0.0


def test_certificates_are_read_before_anything_is_swapped(world: World) -> None:
    tls = {"ca_file": "/absent/ca", "cert_file": "/absent/c", "key_file": "/absent/k"}
    config = Config.model_validate({"tls": tls})
    before = world.service.config
    with pytest.raises(ConfigError, match=r"tls\.ca_file: /absent/ca: cannot be read: No such file"):
        world.service.prepare(config)
    assert world.service.config is before
    with pytest.raises(ConfigError):
        Service(world.file, config)


def test_the_loop_ends_and_wakes_when_told_to(world: World) -> None:
    world.service.stop()
    world.service.run()
    assert world.asked == [], "stopped before the first turn"


def test_a_busy_address_leaves_nothing_running(world: World) -> None:
    with services.listen("127.0.0.1:0") as held:
        world.write(listen=f"127.0.0.1:{held.getsockname()[1]}")
        with pytest.raises(ServiceError, match="is in use"):
            services.run(world.file)
    assert world.asked == []


def test_what_is_known_is_kept_from_turn_to_turn_and_forgotten_at_a_reload(world: World) -> None:
    """Another server, or another tenant, says something else; a reload that fails changes nothing."""
    world.service.turn()
    world.service.turn()
    first, second = world.memories
    assert first is second
    world.write(windw="5s")
    assert world.client.post("/-/reload").status_code == 500
    world.service.turn()
    assert world.memories[-1] is first
    world.write(tenant="red")
    assert world.client.post("/-/reload").status_code == 200
    world.service.turn()
    assert world.memories[-1] is not first


def test_who_is_not_known_does_not_reload(world: World) -> None:
    successful = world.metric("config_last_reload_success_timestamp_seconds")
    known = world.client.environ_base.pop("HTTP_AUTHORIZATION")
    assert world.client.post("/-/reload").status_code == 401
    assert world.client.post("/-/reload", headers={"Authorization": "Bearer wrong"}).status_code == 401
    world.client.environ_base["HTTP_AUTHORIZATION"] = known
    assert world.client.post("/-/reload", headers={"Origin": "http://evil.example"}).status_code == 403
    assert world.metric("config_last_reload_success_timestamp_seconds") == successful
    assert world.client.post("/-/reload", headers={"Origin": "http://localhost"}).status_code == 200


def test_pages_may_do_nothing_but_be_read(world: World) -> None:
    world.service.turn()
    for path in ("/", "/v1/comparisons", "/metrics", "/metrics/verdicts", "/-/ready", "/nowhere"):
        headers = world.client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, path
        assert "script-src 'self';" in policy and "unsafe" not in policy, path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_evidence_goes_on_where_its_terms_stay(world: World) -> None:
    """Another server of the same data changes nothing; another tenant, window or margin begins anew."""
    world.service.turn()
    for fields, same in (
        ({"prometheus": "http://127.0.0.1:9091"}, True),
        ({"tenant": "red"}, False),
        ({"tenant": "red", "margins": {"rtt": 0.2}}, False),
        ({"tenant": "red", "margins": {"rtt": 0.2}, "every": "30s"}, True),
    ):
        world.write(**fields)
        assert world.client.post("/-/reload").status_code == 200
        world.service.turn()
        assert (world.ledgers[-1] is world.ledgers[-2]) == same, fields


def test_evidence_outlives_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state.json"

    def started() -> World:
        return World(tmp_path, monkeypatch, state=str(state))

    first = started()
    assert "is not there" not in first.client.get("/").text, "the first start loses nothing"
    first.service.turn()
    assert first.service.saved()
    kept = state.read_text()
    second = started()
    assert second.service._live.ledger.as_data() == json.loads(kept) == first.service._live.ledger.as_data()
    assert "is not there" not in second.client.get("/").text
    state.write_text(kept[:-10])
    third = started()
    assert "of no use" in third.client.get("/").text
    third.service.turn()
    assert third.service.saved()
    assert "of no use" in third.client.get("/v1/comparisons").json["evidence_lost"]
    assert json.loads(state.read_text()) == json.loads(kept), "it is counted again from what is recorded"


def test_it_is_ready_and_shows_verdicts_while_the_disk_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, state=str(tmp_path / "state.json"))
    writing, goes_on, replace_file = threading.Event(), threading.Event(), Path.replace

    def stalls(old: Path, new: Path) -> Path:
        writing.set()
        goes_on.wait(60.0)
        return replace_file(old, new)

    monkeypatch.setattr(Path, "replace", stalls)
    monkeypatch.setattr(services, "_SAVED_WITHIN", 0.05)
    try:
        world.service.turn()
        assert writing.wait(60.0)
        assert world.client.get("/-/ready").status_code == 200
        assert world.client.get("/v1/comparisons").status_code == 200
        answer = world.client.post("/v1/comparisons/reset")
        assert answer.status_code == 202 and "does not say so yet" in answer.text, "it waits for a while only"
        assert not world.service.saved() and not (tmp_path / "state.json").exists()
    finally:
        goes_on.set()
    monkeypatch.setattr(services, "_SAVED_WITHIN", 60.0)
    assert world.service.saved() and json.loads((tmp_path / "state.json").read_text())


def test_a_reset_that_the_disk_does_not_take_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, replace_file = tmp_path / "state.json", Path.replace
    world = World(tmp_path, monkeypatch, state=str(state))
    world.service.turn()
    assert world.service.saved()
    old = state.read_bytes()

    def full(new: Path, name: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    answer = world.client.post("/v1/comparisons/reset")
    assert answer.status_code == 202 and "evidence of 3 pairs begins anew, but the state file" in answer.text
    assert state.read_bytes() == old and not world.service.saved()
    monkeypatch.setattr(Path, "replace", replace_file)
    again = world.client.post("/v1/comparisons/reset")
    assert (again.status_code, again.text) == (200, "evidence of 0 pairs begins anew\n")
    assert state.read_bytes() != old


def test_who_stands_by_keeps_its_hands_off_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, state=str(tmp_path / "state.json"), replica="b")
    monkeypatch.setattr(services, "others", lambda *_: {"a": True})
    world.service.turn()
    assert world.asked == [] and not (tmp_path / "state.json").exists()


def test_an_operator_begins_anew_with_a_path_or_with_all(world: World) -> None:
    world.service.turn()
    reset = "/v1/comparisons/reset"
    assert world.client.post(reset, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert world.client.post(reset, headers={"Origin": "http://evil.example"}).status_code == 403
    assert world.client.post(f"{reset}?path=vxlan").text == "evidence of 2 pairs begins anew\n"
    absent = world.client.post(f"{reset}?path=nobody%1b")
    assert (absent.status_code, absent.text) == (404, "no pair has a path nobody\\x1b; see /v1/comparisons\n")
    assert world.client.post(reset).text == "evidence of 1 pairs begins anew\n"
    assert world.client.post(f"{reset}?pair=x").status_code == 400
    assert world.client.post(f"{reset}?path={'x' * 300}").status_code == 400
    assert world.client.get(reset).status_code == 405
    assert not world.service._live.ledger.book.findings(END, {}, 0.0)


def test_new_paths_are_looked_at_often(world: World) -> None:
    world.service.turn()
    assert world.service._pause() == 20.0
    world.news = True
    world.service.turn()
    assert world.service._pause() == 15.0


def test_between_two_turns_it_looks_who_hurts_whom(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is known anew is shown at once; a look that fails changes nothing and is no failed evaluation."""
    red = Blamed("n1", "blue", "red", "n1", ["p"], "loss", 1.0, 2.0, 0.8, 0.1, None, True, [])
    known: list[Interference] = []
    failure: list[Exception] = []

    def looked(found: Evaluation, source: Source, config: Config, now: float) -> Evaluation:
        assert (source._memory, now) == (world.memories[-1], world.now)
        if failure:
            raise failure[0]
        return replace(found, interference=list(known))

    monkeypatch.setattr(services, "renewed", looked)
    world.service.look()
    assert world.service.newest is None, "before the first turn there is nothing to bring up to date"
    world.service.turn()
    known.append(Interference("n1", "blue", "loss", 0, None, [], known=red))
    for trouble in (Unavailable("away"), ZeroDivisionError("deep")):
        failure[:] = [trouble]
        world.service.look()
        assert json.loads(world.client.get("/v1/comparisons").text)["interference"] == []
    failure.clear()
    world.service.look()
    (shown,) = json.loads(world.client.get("/v1/comparisons").text)["interference"]
    assert (shown["verdict"], shown["offender"]) == ("attributed", "red")
    assert 'offender="red"' in world.client.get("/metrics").text
    assert "blue on n1: hurt by red on n1" in world.client.get("/").text
    assert (world.metric("evaluations_total:ok"), world.metric("evaluations_total:error")) == (1.0, 0.0)


def test_the_loop_looks_while_it_rests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "LOOK", 0.01)
    looks: list[float] = []

    def look() -> None:
        looks.append(world.now)
        if len(looks) == 3:
            world.service.stop()

    monkeypatch.setattr(world.service, "look", look)
    world.service.run()
    assert len(world.asked) == 1 and len(looks) == 3, "one turn, and looks until it was stopped"


def test_pages_ask_the_server_in_force(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen of another server is forgotten with it; a page waits less long than an evaluation may."""
    asked: list[tuple[str, float]] = []

    class Away:
        def __init__(self, url: str, timeout: float, **_: object) -> None:
            asked.append((url, timeout))

        def __enter__(self) -> Away:
            raise Unavailable(f"{asked[-1][0]} is away")

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(services, "Prometheus", Away)
    for _ in range(3):
        assert "http://127.0.0.1:9090 is away" in world.client.get("/").text
    world.write(prometheus="http://127.0.0.1:9091", timeout="2s")
    assert world.client.post("/-/reload").status_code == 200
    assert "http://127.0.0.1:9091 is away" in world.client.get("/tenants").text
    assert asked == [("http://127.0.0.1:9090", 4.0), ("http://127.0.0.1:9091", 2.0)]


def test_the_console_of_the_configuration_is_linked(world: World) -> None:
    assert 'href="http://localhost:9874/"' in world.client.get("/").text
    world.write(console="https://console.test")
    assert world.client.post("/-/reload").status_code == 200
    assert 'href="https://console.test/"' in world.client.get("/").text
