"""The stack: its files, its plan, its supervisor, starting and stopping."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import yaml
from portkit import free_port

from vigia.errors import VigiaError
from vigia.host import processes, source
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.stack import control, files, places, plan, supervisor, up
from vigia.stack.places import MARKER, Places, Programs
from vigia.stack.plan import Service
from vigia_testing import DEADLINE, eventually

PROGRAMS = Programs(
    "probe", "exporter", "enforcer", "agent", "compare", "prometheus", "alertmanager", "node_exporter"
)

SERVER = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({code}); self.end_headers(); self.wfile.write(b"warming up")
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", {port}), H).serve_forever()
"""


@pytest.fixture
def where(tmp_path: Path) -> Places:
    found = Places(Layout("st1", root=tmp_path / "run"), data_root=tmp_path / "data")
    found.logs.mkdir(parents=True)
    return found


@pytest.fixture
def stopped(where: Places) -> Iterator[None]:
    """Whatever a test started is stopped."""
    yield
    control.down(where)


def server(name: str, code: int = 200, port: int | None = None) -> Service:
    port = port or free_port()
    argv = (sys.executable, "-c", SERVER.format(code=code, port=port))
    return Service(name, argv, f"127.0.0.1:{port}", "/-/ready")


def started(where: Places, *services: Service) -> dict[str, int]:
    """Start a supervisor of services and return their processes once all of them run."""
    plan.write(where.plan, list(services))
    control.start(where)
    eventually(lambda: all(pids(where).get(s.name) for s in services), "every service to run")
    return {name: pid for name, pid in pids(where).items() if pid}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give services longer to answer than three seconds, which a busy machine may not keep to."""

    @contextmanager
    def client() -> Iterator[httpx.Client]:
        with httpx.Client(timeout=DEADLINE, trust_env=False) as made:
            yield made

    monkeypatch.setattr(control, "_client", client)


def pids(where: Places) -> dict[str, int | None]:
    try:
        return {n: s["pid"] for n, s in json.loads(where.status.read_text())["services"].items()}
    except (OSError, ValueError):
        return {}


def test_a_service_that_ends_is_started_again(where: Places, stopped: None) -> None:
    first = started(where, server("a"), server("b"))
    os.kill(first["a"], signal.SIGKILL)
    eventually(lambda: pids(where)["a"] not in (None, first["a"]), "a to be started again")
    assert pids(where)["b"] == first["b"]
    found = {c.name: c for c in control.conditions(where)}
    assert (found["a"].restarts, found["b"].restarts) == (1, 0)
    assert "a ended with -9; starting it again in 0.5 s" in (where.logs / "a.log").read_text()
    eventually(lambda: not any(c.problem for c in control.conditions(where)), "both to answer")


def test_a_service_that_answers_no_more_is_killed_and_started_again(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOOKS", 12)
    monkeypatch.setattr(supervisor, "LOOKS_AT_START", 1000)
    services = [server("a"), server("b", code=503)]
    watched = supervisor.Supervisor(services, where.logs, where.status, look=0.5)
    answers, answered = supervisor._answers, set()

    async def noted(address: str, seconds: float) -> bool | None:
        found = await answers(address, seconds)
        if found:
            answered.add(address)
        return found

    monkeypatch.setattr(supervisor, "_answers", noted)

    async def hang() -> dict[str, int | None]:
        running = asyncio.create_task(watched.run())
        await _until(lambda: answered == {s.address for s in services})
        first = pids(where)
        assert first["a"]
        os.kill(first["a"], signal.SIGSTOP)
        await _until(lambda: pids(where)["a"] not in (None, first["a"]))
        watched.stop()
        await running
        return first

    first = asyncio.run(hang())
    said = (where.logs / "a.log").read_text()
    assert "a has not answered for 6 s; killing it" in said
    assert not (where.logs / "b.log").exists() or "killing" not in (where.logs / "b.log").read_text()
    assert pids(where)["b"] in (None, first["b"])


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def refused(service: Service) -> bool:
    host, _, port = service.address.rpartition(":")
    with socket.socket() as s:
        return s.connect_ex((host, int(port))) != 0


def test_a_service_that_takes_its_time_to_listen_is_left_alone(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once it listens it has the whole time to answer."""
    monkeypatch.setattr(supervisor, "LOOKS", 24)
    monkeypatch.setattr(supervisor, "LOOKS_AT_START", 240)
    port = free_port()
    slow = f"import time; time.sleep(7){SERVER.format(code=200, port=port)}"
    service = Service("slow", (sys.executable, "-c", slow), f"127.0.0.1:{port}", "/-/ready")
    watched = supervisor.Supervisor([service], where.logs, where.status, look=0.25)

    async def wait() -> None:
        running = asyncio.create_task(watched.run())
        await _until(lambda: not refused(service))
        assert await supervisor._answers(service.address, DEADLINE)
        watched.stop()
        await running

    asyncio.run(wait())
    assert "killing" not in (where.logs / "slow.log").read_text()
    assert json.loads(where.status.read_text())["services"]["slow"]["restarts"] == 0


def test_a_service_is_looked_at_soon_after_it_began_to_listen(where: Places) -> None:
    """What hangs then has no longer than what hangs later."""
    service = server("a")
    watched = supervisor.Supervisor([service], where.logs, where.status, look=3600.0)
    answers, said = supervisor._answers, []

    async def noted(address: str, seconds: float) -> bool | None:
        said.append(await answers(address, seconds))
        return said[-1]

    async def wait() -> None:
        running = asyncio.create_task(watched.run())
        await _until(lambda: True in said)
        watched.stop()
        await running

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "_answers", noted)
        asyncio.run(wait())


SILENT = """
import socket, time
s = socket.create_server(("127.0.0.1", {port})); time.sleep(3600)
"""


def test_a_service_that_has_not_answered_yet_has_longer_and_says_where_it_hangs(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOOKS", 1)
    monkeypatch.setattr(supervisor, "LOOKS_AT_START", 20)
    monkeypatch.setattr(supervisor, "ABORT_GRACE", DEADLINE)  # saying where it hangs takes its time
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    answers = supervisor._answers

    async def once_it_listens(address: str, seconds: float) -> bool | None:
        await _until(lambda: not refused(silent))
        return await answers(address, seconds)

    monkeypatch.setattr(supervisor, "_answers", once_it_listens)
    port = free_port()
    silent = Service("m", (sys.executable, "-c", SILENT.format(port=port)), f"127.0.0.1:{port}", "/-/ready")
    watched = supervisor.Supervisor([silent], where.logs, where.status, look=0.5)

    async def wait() -> None:
        running = asyncio.create_task(watched.run())
        await _until(lambda: control._reported(where).get("m", {}).get("restarts", 0) > 0)
        watched.stop()
        await running

    asyncio.run(wait())
    said = (where.logs / "m.log").read_text()
    assert "m has not answered for 10 s; killing it" in said
    assert "Fatal Python error: Aborted" in said and 'File "<string>", line 3 in <module>' in said
    assert "m ended with -6; starting it again" in said


def test_a_disk_that_is_full_ends_neither_the_supervisor_nor_its_services(
    where: Places, stopped: None
) -> None:
    mount = where.logs.with_name("small")
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "vigia-test", str(mount)], check=True)
    try:
        where.logs.rmdir()
        where.logs.symlink_to(mount)
        first = started(where, server("a"), server("b"))
        with suppress(OSError), (mount / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(512))
        os.kill(first["a"], signal.SIGKILL)
        eventually(lambda: pids(where)["a"] not in (None, first["a"]), "a to be started again")
        assert pids(where)["b"] == first["b"]
    finally:
        control.down(where)
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def test_a_service_that_cannot_run_is_tried_again_more_and_more_slowly(where: Places, stopped: None) -> None:
    plan.write(where.plan, [Service("broken", ("/nonexistent",), "127.0.0.1:1", "/"), server("fine")])
    control.start(where)
    log = where.logs / "broken.log"
    eventually(lambda: log.exists() and "in 2 s" in log.read_text(), "three attempts")
    assert (
        log.read_text().index("in 0.5 s") < log.read_text().index("in 1 s") < log.read_text().index("in 2 s")
    )
    eventually(lambda: pids(where).get("fine"), "the other service to run")


def test_down_ends_everything_and_removes_every_file(where: Places) -> None:
    running = started(where, server("a"), server("b"))
    where.data.mkdir(parents=True)
    assert control.is_up(where)
    assert control.down(where) == 3
    assert not any(processes.alive(pid) for pid in running.values())
    assert not control.is_up(where)
    assert not where.directory.exists() and not where.data.exists() and not where.data_root.exists()
    assert control.down(where) == 0


def test_nothing_survives_a_killed_supervisor(where: Places, stopped: None) -> None:
    running = started(where, server("a"), server("b"))
    boss = json.loads(where.status.read_text())["supervisor"]
    os.kill(boss, signal.SIGKILL)
    eventually(lambda: not any(processes.alive(pid) for pid in running.values()), "the children to end")
    assert control.members(where) == []


def test_down_finds_what_ignores_its_parents_death(where: Places) -> None:
    stubborn = (
        sys.executable,
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)",
    )
    running = started(where, Service("stubborn", stubborn, "127.0.0.1:1", "/"))
    eventually(lambda: "ready" in (where.logs / "stubborn.log").read_text(), "the service to ignore SIGTERM")
    os.kill(json.loads(where.status.read_text())["supervisor"], signal.SIGKILL)
    control.down(where)
    assert not processes.alive(running["stubborn"])


def test_down_leaves_the_same_stack_of_a_container_alone(where: Places) -> None:
    """It has the same paths, and means others by them."""
    mark = {**os.environ, places.MARKER: str(where.directory)}
    inside = subprocess.Popen(["unshare", "--mount", "sleep", "60"], env=mark)
    try:
        eventually(lambda: processes.arguments(inside.pid)[:1] == ["sleep"], "it to be in there")
        assert control.members(where) == []
        control.down(where)
        assert processes.alive(inside.pid)
    finally:
        inside.kill()
        inside.wait()


def test_down_leaves_other_stacks_alone(where: Places, tmp_path: Path, stopped: None) -> None:
    other = Places(Layout("st2", root=tmp_path / "run"), data_root=tmp_path / "data")
    other.logs.mkdir(parents=True)
    try:
        theirs = started(other, server("a"))
        started(where, server("a"))
        control.down(where)
        assert processes.alive(theirs["a"]) and control.is_up(other)
    finally:
        control.down(other)


def test_a_service_that_is_slow_to_answer_is_no_reason_to_remove_the_stack(
    where: Places, stopped: None
) -> None:
    first = started(where, server("a"), server("b"))
    eventually(lambda: not any(c.problem for c in control.conditions(where)), "both to answer")
    os.kill(first["a"], signal.SIGSTOP)
    try:
        eventually(lambda: any(c.problem for c in control.conditions(where)), "a to answer no more")
        later = threading.Timer(1.0, os.kill, (first["a"], signal.SIGCONT))
        later.start()
        assert up._failing(where) == ""
        later.join()
    finally:
        os.kill(first["a"], signal.SIGCONT)
    assert pids(where) == first, "nothing was started again"


def test_a_service_that_goes_on_failing_is_named(
    where: Places, stopped: None, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "RECOVERS", 0.5)
    started(where, server("a"), server("slow", code=503))
    eventually(lambda: not control.conditions(where)[0].problem, "the first to answer")
    eventually(lambda: "503" in control.conditions(where)[1].problem, "the second to answer")
    assert up._failing(where) == "slow: answers 503: warming up"


def test_waiting_names_each_service_as_it_works(where: Places, stopped: None) -> None:
    services = [server("a"), server("b")]
    started(where, *services)
    assert sorted(control.wait_ready(where, services, DEADLINE)) == ["a", "b"]


def test_waiting_says_what_does_not_work_and_why(where: Places, stopped: None, patient: None) -> None:
    services = [server("a"), server("slow", code=503)]
    started(where, *services)
    known = ["", "answers 503: warming up"]
    eventually(lambda: [c.problem for c in control.conditions(where)] == known, "both to answer")
    with pytest.raises(
        VigiaError,
        match=r"slow does not become ready within 0\.5 s: answers 503: warming up; "
        r"process \d+: state [RSD], processor time \d+\.\d\d s, restarts 0; its log ends: ",
    ):
        list(control.wait_ready(where, services, 0.5))
    problems = {c.name: c.problem for c in control.conditions(where)}
    assert problems == {"a": "", "slow": "answers 503: warming up"}


class Looks:
    """Patience that is over after so many looks, however long they take."""

    def __init__(self, looks: float) -> None:
        self._left = looks

    def over(self) -> bool:
        self._left -= 1
        return self._left <= 0


def test_a_long_wait_says_what_is_waited_for(
    where: Places, stopped: None, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = [server("a"), server("slow", code=503)]
    started(where, *services)
    known = ["", "answers 503: warming up"]
    eventually(lambda: [c.problem for c in control.conditions(where)] == known, "both to answer")
    monkeypatch.setattr(control, "Patience", Looks)
    monkeypatch.setattr(control, "SLOW", 3)
    said: list[str] = []
    with pytest.raises(VigiaError, match="slow does not become ready"):
        list(control.wait_ready(where, services, 9, said.append))
    assert len(said) == 2, "after each three of seven rounds, the first of which asks both"
    assert said[-1].startswith("slow: answers 503: warming up; process "), said


def test_waiting_ends_early_for_a_service_that_goes_on_ending(
    where: Places, stopped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ENDS", 2)
    argv = (sys.executable, "-c", "raise SystemExit('no such file')")
    broken = Service("broken", argv, f"127.0.0.1:{free_port()}", "/-/ready")
    started(where, broken)
    with pytest.raises(
        VigiaError, match=r"broken goes on ending: no answer: .*, restarts \d+; its log ends: .*no such file"
    ):
        list(control.wait_ready(where, [broken], 1e6))


def test_waiting_says_that_a_service_has_no_process(where: Places, stopped: None) -> None:
    started(where, server("a"))
    gone = Service("gone", ("/bin/false",), "127.0.0.1:1", "/")  # which the supervisor does not know
    with pytest.raises(VigiaError, match=r"gone does not .*; it has no process, restarts 0; its log ends: "):
        list(control.wait_ready(where, [gone], 0.1))


def test_waiting_notices_that_the_supervisor_ended(where: Places) -> None:
    services = [server("a", code=503)]
    started(where, *services)
    control.down(where)
    where.logs.mkdir(parents=True)
    (where.logs / "supervisor.log").write_text("boom\n")
    with pytest.raises(VigiaError, match="the supervisor ended: boom"):
        list(control.wait_ready(where, services, DEADLINE))


def test_a_large_log_is_emptied_while_it_is_written(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_LOG", 1000)
    monkeypatch.setattr(supervisor, "LOG_CHECK", 0.05)
    talk = "import sys, time\nwhile True:\n    print('x' * 99, flush=True); time.sleep(0.001)"
    service = Service("t", (sys.executable, "-c", talk), "", "/")
    boss = supervisor.Supervisor([service], where.logs, where.status)
    sizes: list[int] = []

    async def watch() -> None:
        deadline = time.monotonic() + DEADLINE
        while not any(later < earlier for earlier, later in pairwise(sizes)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            log = where.logs / "t.log"
            sizes.append(log.stat().st_size if log.exists() else 0)
        boss.stop()

    async def both() -> None:
        await asyncio.gather(boss.run(), watch())

    asyncio.run(both())
    assert any(later < earlier for earlier, later in pairwise(sizes)), f"the log only grew: {sizes[-5:]}"


def test_a_busy_address_is_named_with_the_cure(pairs: Lab) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(
            VigiaError, match=rf"127.0.0.1:{port} is in use, and x needs it; stop what holds it .*{port}"
        ):
            control._check_free(server("x", port=port))
    control._check_free(server("x", port=port))


def test_without_a_stack_status_says_how_to_start_it(where: Places) -> None:
    with pytest.raises(VigiaError, match="stack of lab st1 is not up; start it: vigia stack up"):
        control.conditions(where)


def test_the_plan_has_every_service_once(pairs: Lab, where: Places) -> None:
    services = plan.make(pairs, where, PROGRAMS)
    names = [s.name for s in services]
    assert len(set(names)) == len(names) == 5 + 3 * len(pairs.nodes)
    addresses = [s.address for s in services]
    assert len(set(addresses)) == len(addresses)
    probe = next(s for s in services if s.name == "vigia-probe@lb1")
    assert probe.argv == (
        "probe",
        f"--config={pairs.layout.node('lb1') / 'probe.yaml'}",
        "--web.listen-address=127.77.0.1:9871",
        f"--web.reload-token-file={where.api_token}",
    )
    assert probe.ready_url == "http://127.77.0.1:9871/-/ready"
    plan.write(where.plan, services)
    assert plan.read(where.plan) == services


@pytest.fixture
def written(pairs: Lab, where: Places) -> Places:
    ours = replace(pairs, layout=where.layout)
    where.layout.token_file.parent.mkdir(parents=True, exist_ok=True)
    where.layout.token_file.touch(mode=0o600)
    where.layout.token_file.write_text("a-token-of-the-lab-0123456789\n")
    files.write(ours, where)
    return where


def test_prometheus_finds_every_agent(pairs: Lab, written: Places) -> None:
    config = yaml.safe_load((written.directory / "prometheus.yml").read_text())
    for job in config["scrape_configs"]:
        (target_file,) = job["file_sd_configs"][0]["files"]
        groups = json.loads((written.directory / target_file).read_text())
        assert groups and all(g["targets"] for g in groups)
        if job["job_name"].removesuffix("-fast") in ("vigia-probe", "vigia-exporter", "vigia-enforcer"):
            assert [g["labels"]["node"] for g in groups] == [n.name for n in pairs.nodes]
    shipped = {p.name for p in (places.source_root() / "alert-rules").glob("*.rules.yml")}
    assert {p.name for p in (written.directory / "rules").iterdir()} == shipped


def test_alertmanager_posts_to_this_stack(pairs: Lab, written: Places) -> None:
    other = replace(pairs, layout=written.layout)
    text = (written.directory / "alertmanager.yml").read_text()
    (webhook,) = [r for r in yaml.safe_load(text)["receivers"] if "webhook_configs" in r]
    (config,) = webhook["webhook_configs"]
    assert config["url"] == f"http://{places.stack_address(other, 9874)}/v1/webhook/alertmanager"
    token = config["http_config"]["authorization"]["credentials_file"]
    assert (written.directory / token).read_text().strip()


def test_secrets_are_fresh_and_private(pairs: Lab, written: Places) -> None:
    before = written.api_token.read_text()
    assert before != written.webhook_token.read_text()
    files.write(replace(pairs, layout=written.layout), written)
    assert written.api_token.read_text() != before
    for token in (written.api_token, written.webhook_token):
        assert token.stat().st_mode & 0o077 == 0 and len(token.read_text().strip()) >= 32


def test_missing_programs_are_named_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(source, "source_root", lambda: tmp_path)
    with pytest.raises(VigiaError, match=r"bin/vigia-probe is missing; build it: make build"):
        places.find_programs()
    (tmp_path / "bin").mkdir()
    for name in ("probe", "exporter", "enforcer"):
        (tmp_path / "bin" / f"vigia-{name}").touch()
    monkeypatch.setattr(places.commands, "find", lambda program: None)
    with pytest.raises(
        VigiaError, match="prometheus is not installed; install it: apt-get install prometheus"
    ):
        places.find_programs()


def test_members_are_found_by_their_mark(where: Places) -> None:
    with subprocess.Popen(["sleep", "600"], env={**os.environ, MARKER: str(where.directory)}) as child:
        try:
            eventually(lambda: control.members(where) == [child.pid], "the process to be found")
        finally:
            child.kill()
