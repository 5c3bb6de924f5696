"""One of several replicas evaluates: who leads, when another takes over, what those show that stand by."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from vigia_compare import service as services
from vigia_compare.config import Config
from vigia_compare.evaluation import Evaluation
from vigia_compare.service import Service
from vigia_compare.standby import Standby, others
from vigia_config import ConfigError, load
from vigia_prometheus import Unavailable
from vigia_prometheus.answers import Sample
from vigia_service.server.wsgi import CERTIFICATE

TAKEOVER = 60.0


class Site:
    """Replicas whose scrapes are all fresh, on one clock."""

    def __init__(self, *names: str) -> None:
        self.now = 1000.0
        self.replicas = {n: Standby(n, monotonic=lambda: self.now) for n in names}
        self.unseen: set[str] = set()
        """Replicas that Prometheus cannot scrape."""

    def look(self, name: str) -> bool:
        known = {n: r.leads for n, r in self.replicas.items() if n != name and n not in self.unseen}
        return self.replicas[name].look(known, TAKEOVER)

    def run(self, seconds: float, *names: str) -> list[set[str]]:
        """Let replicas look every ten seconds; returns who led after each."""
        seen = []
        for _ in range(round(seconds / 10)):
            self.now += 10
            for name in names or tuple(self.replicas):
                self.look(name)
            seen.append({n for n in names or self.replicas if self.replicas[n].leads})
        return seen


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("c", "b", "a")], ids="-".join)
def test_of_those_that_start_together_one_leads_and_never_two(names: tuple[str, ...]) -> None:
    seen = Site(*names).run(600)
    assert all(len(leaders) <= 1 for leaders in seen)
    assert seen[-1] == {"a"}
    assert set() in seen[:5], "none before a whole takeover"


def test_the_next_one_takes_over_and_the_one_that_returns_stands_by() -> None:
    site = Site("a", "b", "c")
    site.run(600)
    gone = site.replicas.pop("a")
    seen = site.run(600)
    assert seen[0] == set() and seen[-1] == {"b"} and {"c"} not in seen
    assert {"b"} in seen[:9], "after one takeover: nobody of a smaller name is there"
    gone.resign("it was killed")
    site.replicas["a"] = gone
    assert all(leaders == {"b"} for leaders in site.run(600))
    assert site.replicas["a"].leader == "b"


def test_of_two_leaders_that_did_not_see_each_other_the_larger_name_yields() -> None:
    site = Site("a", "b")
    site.unseen = {"a", "b"}
    assert site.run(600)[-1] == {"a", "b"}
    site.unseen = set()
    site.look("b")
    site.look("a")
    assert (site.replicas["a"].leads, site.replicas["b"].leads) == (True, False)


def test_without_a_name_it_always_leads() -> None:
    alone = Standby(None)
    alone.resign("nothing")
    assert alone.leads and alone.look({"a": True}, TAKEOVER)


class Known:
    """Answers of Prometheus."""

    def __init__(self, **replicas: float) -> None:
        self.replicas = replicas
        self.asked: list[str] = []

    def instant(self, expression: str) -> list[Sample]:
        self.asked.append(expression)
        return [Sample({"replica": n}, 0.0, v) for n, v in self.replicas.items()]


def test_what_is_asked_of_prometheus() -> None:
    known = Known(a=1.0, c=0.0)
    assert others(known, "b") == {"a": True, "c": False}  # type: ignore[arg-type]
    assert known.asked == ['max by (replica) (vigia_compare_leader{replica!="b"})']


class Program:
    """The service, whose Prometheus says of other replicas what a test wants."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, bool] | Unavailable = {}
        file = folder / "compare.yaml"
        file.write_text(yaml.safe_dump({"replica": "b", "every": "10s", "takeover": "500ms"}))
        self.now = 1_800_000_000.0
        self.service = Service(file, load(file, Config), clock=lambda: self.now)
        self.client = self.service.app().test_client()
        monkeypatch.setattr(services, "others", self._others)
        monkeypatch.setattr(services, "evaluate", lambda *_: Evaluation(at=self.now))

    def _others(self, *_: object) -> dict[str, bool]:
        if isinstance(self.known, Unavailable):
            raise self.known
        return self.known

    def value(self, name: str, **labels: str) -> float | None:
        return self.service.metrics.registry.get_sample_value(f"vigia_compare_{name}", labels)

    def lead(self) -> None:
        self.known = {}
        while not self.value("leader", replica="b"):
            self.service.turn()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch)


def test_who_stands_by_shows_no_verdict_is_ready_and_says_who_leads(program: Program) -> None:
    program.known = {"a": True}
    program.service.turn()
    assert (program.value("leader", replica="b"), program.value("prometheus_up")) == (0, 1)
    assert program.value("evaluations_total", result="ok") == 0
    assert program.client.get("/-/ready").status_code == 200
    answer = program.client.get("/v1/comparisons")
    assert (answer.status_code, answer.text) == (503, "stands by: replica a leads\n")
    program.lead()
    assert program.value("evaluations_total", result="ok") == 1
    assert program.client.get("/v1/comparisons").status_code == 200
    program.known = {"a": True}
    program.service.turn()
    assert program.value("leader", replica="b") == 0
    assert program.client.get("/v1/comparisons").status_code == 503


def test_a_leader_without_prometheus_withdraws_its_verdicts_and_its_claim(program: Program) -> None:
    program.lead()
    program.known = Unavailable("Prometheus does not answer")
    program.service.turn()
    assert program.value("leader", replica="b") == 1, "one failure changes nothing"
    program.now += 31.0
    program.service.turn()
    assert program.value("leader", replica="b") == 0
    assert program.client.get("/v1/comparisons").status_code == 503


def test_a_name_that_cannot_be_asked_for_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "compare.yaml"
    for text, problem in (
        ("replica: 'a\"} or vector(1) #'", "replica"),
        ("takeover: 100ms", "takeover"),
    ):
        file.write_text(text + "\n")
        with pytest.raises(ConfigError, match=problem):
            load(file, Config)


def test_a_reload_does_not_change_the_name(program: Program) -> None:
    file = program.service.reloader._path
    file.write_text(yaml.safe_dump({"replica": "c"}))
    program.client.environ_base[CERTIFICATE] = {"subject": ()}
    assert "replica cannot change from b to c" in program.client.post("/-/reload").text
