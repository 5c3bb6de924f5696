"""The program as it runs: pages, reload, Prometheus away."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from portkit import free_port

from vigia_catalog import part_metrics
from vigia_compare import cli
from vigia_compare.config import Config
from vigia_compare.service import Service
from vigia_testing import DEADLINE, eventually

PROGRAM = Path(sys.executable).with_name("vigia-compare")
CLIENT = httpx.Client(trust_env=False, timeout=60, verify=False, headers={"Connection": "close"})  # noqa: S501 - plain HTTP


def _free() -> str:
    return f"127.0.0.1:{free_port()}"


class Running:
    """The program in a process of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        program: Sequence[str | Path] = (PROGRAM,),
        begun: str = "/-/ready",
        **config: Any,
    ) -> None:
        """Start it, and wait until it answers a page."""
        self.begun = begun
        self.file = folder / "compare.yaml"
        self.listen = _free()
        token = folder / "reload.token"
        token.touch(mode=0o600)
        token.write_text("reload-token-of-the-tests")
        self.config = {
            "listen": self.listen,
            "every": "1s",
            "reload_token_file": str(token),
            "window": "60s",
            "period": "2h",
            **config,
        }
        self.write()
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*program, "--config", self.file, "run"], stderr=log)
        eventually(self.ready, "the program to be ready")

    def write(self, **more: Any) -> None:
        self.file.write_text(yaml.safe_dump({**self.config, **more}))

    def get(self, path: str) -> httpx.Response:
        return CLIENT.get(f"http://{self.listen}{path}")

    def post(self, path: str) -> httpx.Response:
        known = {"Authorization": "Bearer reload-token-of-the-tests"}
        return CLIENT.post(f"http://{self.listen}{path}", headers=known)

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get(self.begun).status_code == 200
        except httpx.TransportError:
            return False

    def metric(self, line: str) -> str | None:
        match = re.search(rf"^{re.escape(line)} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return match[1] if match else None


@pytest.fixture(scope="module")
def running(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    one = Running(tmp_path_factory.mktemp("service"), prometheus=world.url, timeout="60s")
    yield one
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(timeout=60) == 0, one.log.read_text()


def test_metrics_say_what_the_catalogue_declares(running: Running) -> None:
    eventually(lambda: running.metric("vigia_compare_prometheus_up") == "1.0", "an evaluation")
    declared = {m.name: m for m in part_metrics("compare")}
    text = running.get("/metrics").text + running.get("/metrics/verdicts").text
    names = set()
    for line in text.splitlines():
        match = re.match(r"(vigia_[a-z0-9_]+)(?:\{(.*)\})? ", line)
        if match:
            names.add(match[1])
            assert set(re.findall(r'([a-z_]+)="', match[2] or "")) == set(declared[match[1]].labels), line
    learned = {"vigia_compare_level_change_ratio", "vigia_compare_level_change_timestamp_seconds"}
    assert set(declared) - learned == names, "the world of these tests has something for every other metric"
    winner = 'machines="",metric="rtt",note="",path="ovs-gre",placement="remote",probe="stamp-64",tie="false"'
    assert f"vigia_compare_winner{{{winner}}} 1.0" in text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_pages(running: Running) -> None:
    assert running.get("/-/healthy").text == "healthy\n"
    assert "ovs-gre is better" not in running.get("/").text and "winners" in running.get("/").text
    data = running.get("/v1/comparisons").json()
    assert {c["metric"] for c in data["comparisons"]} >= {"rtt", "loss"}
    assert running.get("/nowhere").status_code == 404
    assert running.post("/metrics").status_code == 405


def test_healthcheck_is_an_exit_code(running: Running) -> None:
    def ask(url: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, "healthcheck", "--url", url], capture_output=True, text=True, check=False
        )

    # It waits for an answer for a few seconds only.
    eventually(lambda: ask(f"http://{running.listen}/-/ready").returncode == 0, "an answer in time")
    refused = ask("http://127.0.0.1:1/-/ready")
    assert refused.returncode == 1 and "is the program running?" in refused.stderr


def test_reload_swaps_only_what_is_whole(running: Running) -> None:
    def reload() -> httpx.Response:
        return running.post("/-/reload")

    running.write(window="2m")
    assert reload().status_code == 200
    assert running.metric("vigia_compare_window_seconds") == "120.0"
    running.write(window="3h")
    refused = reload()
    assert refused.status_code == 500
    assert "period: 7200s is shorter than 5 windows of 10800s" in refused.text
    assert running.metric("vigia_compare_window_seconds") == "120.0"
    assert running.metric("vigia_compare_config_last_reload_successful") == "0.0"
    running.write(listen="127.0.0.1:1")
    assert (
        f"listen cannot change from {running.listen} to 127.0.0.1:1 while the program runs" in reload().text
    )
    running.write()
    before = running.metric('vigia_compare_evaluations_total{result="ok"}')
    os.kill(running.process.pid, signal.SIGHUP)
    eventually(lambda: running.metric("vigia_compare_window_seconds") == "60.0", "the reload")
    after = running.metric('vigia_compare_evaluations_total{result="ok"}')
    assert before is not None and after is not None and float(after) >= float(before), (
        "a reload resets no counter"
    )


def test_the_command_line_says_what_the_service_says(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Now, and of a moment before: from the series that Prometheus has scraped of the service."""
    eventually(lambda: running.metric("vigia_compare_prometheus_up") == "1.0", "an evaluation")
    address = _free()
    targets = [{"targets": [running.listen]}]
    jobs = [
        {"job_name": "vigia-compare", "static_configs": targets},
        {"job_name": "verdicts", "metrics_path": "/metrics/verdicts", "static_configs": targets},
    ]
    scraping = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(scraping))
    words = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *words, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    asked = ("report", "--prometheus", f"http://{address}", "--json")
    then = (*asked, "--metric", "rtt", "--at")

    def known(*words: str) -> Any:
        """What the command line says; nothing while Prometheus has no verdict, as of a scrape that failed."""
        assert process.poll() is None, (tmp_path / "log").read_text()
        capsys.readouterr()
        found = cli.main(words) == 0
        said = capsys.readouterr().out
        return json.loads(said) if found else None

    def of_before() -> float | None:
        """A moment that has verdicts, whose scrapes have ended: they take a second."""
        moment = round(time.time() - 5.0, 3)
        return moment if known(*then, f"{moment:.3f}") else None

    try:
        scraped = eventually(of_before, "Prometheus to have scraped the service")
        both: dict[str, Any] = {}

        def agree() -> bool:
            """Its pages are scraped one after the other, and between them it may look again."""
            ours = known(*asked)
            if ours is None:
                return False
            both.update(ours=ours, theirs=running.get("/v1/comparisons").json())
            return spoken(ours) == spoken(both["theirs"]) and ratios(ours) == near(ratios(both["theirs"]))

        eventually(agree, "the command line to say what the service says")
        ours, theirs = both["ours"], both["theirs"]
        assert {p["said"] for c in ours["comparisons"] for p in c["pairs"]} >= {
            "ovs-gre is better than ovs-vxlan"
        }
        assert ratios(ours) and ratios(ours) == near(ratios(theirs))
        (rtt,) = known(*then, f"{scraped:.3f}")["comparisons"]
        assert (rtt["metric"], rtt["winner"]) == ("rtt", "ovs-gre")
        assert cli.main([*asked, "--at", "1d"]) == 1
        assert "has no verdict of vigia-compare at " in capsys.readouterr().err
    finally:
        process.terminate()
        process.wait(timeout=60)


def ratios(data: Any) -> list[float]:
    """The lower bound, the estimate and the upper bound of each speed-up."""
    return [r for s in data["speedups"] for r in s["ratio"]]


def near(values: list[float]) -> Any:
    return pytest.approx(values, rel=1e-9)


def spoken(data: Any) -> list[tuple[Any, ...]]:
    """What is said of every cell and pair; a pair that is told as a ratio as well is a speed-up in series."""
    out: list[tuple[Any, ...]] = []
    for c in data["comparisons"]:
        key = (c["metric"], c["placement"], c["machines"], c["probe"])
        out.append(
            (*key, c["winner"], c["equivalent"], c["said"], c["ranking"], [p["path"] for p in c["paths"]])
        )
        for p in sorted(c["pairs"], key=lambda p: (p["kind"], p["a"], p["b"])):
            if p["kind"] != "element" or p["ratio"] is None:
                names = ("a", "b", "kind", "verdict", "windows", "hosts", "ahead", "said", "words")
                since = (p["since"] or 0.0, p["evidence_since"])
                out.append((*key, *(p[n] for n in names), *since, pytest.approx(p["e_value"], rel=1e-9)))
    return out


def test_prometheus_may_be_away_and_come_back(world: Any, tmp_path: Path) -> None:
    one = Running(tmp_path, prometheus="http://127.0.0.1:1")
    try:
        assert one.metric("vigia_compare_prometheus_up") == "0.0"
        assert one.get("/v1/comparisons").status_code == 503
        assert "does not answer" in one.get("/").text
        assert one.get("/-/healthy").status_code == 200
        one.write(prometheus=world.url)
        os.kill(one.process.pid, signal.SIGHUP)
        eventually(lambda: one.metric("vigia_compare_prometheus_up") == "1.0", "Prometheus to be found")
        said = [line for line in one.log.read_text().splitlines() if "does not answer" in line]
        assert len([line for line in said if "127.0.0.1:1 " in line]) == 1, "the same failure is logged once"
    finally:
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(timeout=60)


def test_old_news_is_withdrawn(world: Any, tmp_path: Path) -> None:
    now = [world.end]
    config = Config(prometheus=world.url, every="10s", window="60s", period="2h", timeout="60s")  # type: ignore[arg-type]
    service = Service(tmp_path / "none.yaml", config, clock=lambda: now[0])
    service.turn()
    assert list(service.metrics.verdicts.collect())
    service.prepare(config.model_copy(update={"prometheus": "http://127.0.0.1:1"}))()
    service.turn()
    assert list(service.metrics.verdicts.collect()), "one failure changes nothing"
    now[0] += 31.0
    service.turn()
    assert not list(service.metrics.verdicts.collect())
    assert service.newest is None and "does not answer" in service.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("windw: 5s", 'unknown key "windw"; known here: '),
        ("listen: nowhere", 'listen: "nowhere": is not an address; write HOST:PORT'),
        ("metrics: [ping]", "is not a metric; known: rtt, rtt_p99, jitter, loss"),
        ("prometheus: http://user:pw@host", "is not the URL of a Prometheus server"),
        ("window: 10ms\nperiod: 1h", "window: 0.01s is not a whole number of minutes"),
        ("period: 40h", "cuts period 144000s into more than 2000 windows"),
        ("attribution_window: 15s", "attribution_window: 15s is not a whole number of minutes"),
        (
            "attribution_period: 39m",
            "attribution_period: 2340s is shorter than 40 windows of 60s; write at least 40m",
        ),
        ("every: 10ms", "every: is shorter than 500ms; write for example 10s"),
        ("minimum_windows: 12", 'unknown key "minimum_windows"'),
        ("margins: {ping: 0.1}", "margins.ping: is not a metric; write one of rtt, rtt_p99"),
        ("margins: {rtt: 1.5}", "margins.rtt"),
        ("state: state.json", "state: "),
    ],
)
def test_bad_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text + "\n")
    assert cli.main(["--config", str(file), "check-config"]) == 1
    err = capsys.readouterr().err
    assert problem in err and len(err.splitlines()) == 1


PATIENT = """
import sys
from vigia_compare import cli, looks, service
looks.PATIENCE = service.PATIENCE = 60.0
sys.exit(cli.main(sys.argv[1:]))
"""
"""The program with pages that wait longer than a busy machine takes for a scrape."""


def test_visitors_who_wait_for_a_slow_prometheus_keep_no_scrape_from_the_series(tmp_path: Path) -> None:
    with socket.socket() as silent, ThreadPoolExecutor(60) as visitors:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)  # accepted by the kernel, and never answered
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        patient = (sys.executable, "-c", PATIENT)
        one = Running(tmp_path, program=patient, begun="/-/healthy", prometheus=url, timeout="60s")
        try:
            pages = [visitors.submit(one.get, "/mesh") for _ in range(60)]
            for path in ("/metrics", "/metrics/verdicts", "/-/healthy"):
                assert one.get(path).status_code == 200
            waiting = sum(not p.done() for p in pages)
            assert waiting > 20, "of whom twelve are at work: the others were not waited for"
            silent.close()
            said = [p.result() for p in pages]
        finally:
            silent.close()
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(timeout=60) == 0, one.log.read_text()
    assert {p.status_code for p in said} == {200}, "the page is there, and says why it is empty"
    assert all("Prometheus" in p.text for p in said)


def test_the_shipped_configuration_is_whole_and_a_busy_port_is_named(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[3] / "deploy/compare/compare.yaml"
    done = subprocess.run(
        [PROGRAM, "check-config", "--config", shipped, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        file = tmp_path / "busy.yaml"
        file.write_text(f"listen: 127.0.0.1:{holder.getsockname()[1]}\n")
        busy = subprocess.run(
            [PROGRAM, "--config", file], capture_output=True, text=True, check=False, timeout=60
        )
    assert busy.returncode == 1
    assert ": is in use; stop the process that holds it" in busy.stderr and len(busy.stderr.splitlines()) == 1


def test_list_metrics_in_three_formats(capsys: pytest.CaptureFixture[str]) -> None:
    for form, start in (("text", "vigia_compare_build_info{"), ("json", "[\n"), ("markdown", "| metric |")):
        assert cli.main([f"--list-metrics={form}"]) == 0
        assert capsys.readouterr().out.startswith(start)


HANGS = """
import sys, threading
from pathlib import Path
from vigia_compare import service
from vigia_service import logs, watchdog
logs.setup()
watchdog._LOOKS = 40
service.Watchdog = lambda hung: watchdog.Watchdog(hung, patience=4)
stuck = service.Service.stuck
def stuck_soon(self):
    self._beat -= 3600.0 * self.hangs.is_set()
    return stuck(self)
service.Service.stuck = stuck_soon
service.Service.hangs = threading.Event()
def turn(self):
    self.hangs.set()
    threading.Event().wait()
service.Service.turn = turn
sys.exit(service.run(Path(sys.argv[1])))
"""


def test_a_loop_that_hangs_ends_the_program(tmp_path: Path) -> None:
    file = tmp_path / "compare.yaml"
    file.write_text(yaml.safe_dump({"listen": _free(), "prometheus": "http://127.0.0.1:1"}))
    done = subprocess.run(
        [sys.executable, "-c", HANGS, file], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 1, done.stderr
    assert 'err="the loop has stopped taking turns"' in done.stderr
    assert "Timeout (" in done.stderr and "in turn" in done.stderr, "where the loop stood"
