"""The pages of every service, its own metrics, reload, and logs."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from vigia_catalog import part_metrics
from vigia_config import Strict, load
from vigia_service import logs
from vigia_service.errors import ServiceError
from vigia_service.metrics import SelfMetrics, revision
from vigia_service.ops import HEALTH, Ops, blueprint
from vigia_service.reload import Reloader
from vigia_service.server.wsgi import CERTIFICATE
from vigia_testing import eventually

TOKEN = "reload-token-of-the-tests"


def service() -> SelfMetrics:
    return SelfMetrics("compare", "vigia-internal", "vigia_service")


class State:
    """What the pages show."""

    def __init__(self) -> None:
        self.dead = self.unready = ""
        self.refusal: ServiceError | None = None
        self.reloads = 0
        self.metrics = service()

    def reload(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.reloads += 1


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def client(state: State, tmp_path: Path) -> FlaskClient:
    file = tmp_path / "reload.token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    app = Flask("vigia_service", static_folder=None)
    ops = Ops(state.metrics.registry, lambda: state.dead, lambda: state.unready, state.reload, lambda: file)
    app.register_blueprint(blueprint(ops))
    made = app.test_client()
    made.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    return made


def test_health_pages(client: FlaskClient, state: State) -> None:
    assert [client.get(p).text for p in HEALTH] == ["healthy\n", "ready\n"]
    state.dead, state.unready = "the loop is stuck", "no disk"
    dead, unready = (client.get(p) for p in HEALTH)
    assert (dead.status_code, dead.text) == (503, "not healthy: the loop is stuck\n")
    assert (unready.status_code, unready.text) == (503, "not ready: no disk\n")


def test_reload_page(client: FlaskClient, state: State) -> None:
    assert client.get("/-/reload").status_code == 405
    assert state.reloads == 0
    answer = client.post("/-/reload")
    assert (answer.status_code, answer.text, state.reloads) == (200, "reloaded\n", 1)
    state.refusal = ServiceError("c.yaml:1: listen: is missing; add it")
    answer = client.post("/-/reload")
    assert (answer.status_code, answer.text) == (500, "c.yaml:1: listen: is missing; add it\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:81"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_who_may_reload(client: FlaskClient, state: State, headers: dict[str, str], status: int) -> None:
    answer = client.post("/-/reload", headers=headers)
    assert answer.status_code == status
    assert state.reloads == (status == 200)
    assert TOKEN not in answer.text


def test_a_token_that_is_gone_lets_nobody_in(client: FlaskClient, state: State, tmp_path: Path) -> None:
    (tmp_path / "reload.token").unlink()
    answer = client.post("/-/reload")
    assert (answer.status_code, answer.text) == (500, "cannot read reload_token_file\n")
    assert state.reloads == 0


def test_without_a_token_only_a_certificate_will_do(state: State) -> None:
    app = Flask("vigia_service", static_folder=None)
    app.register_blueprint(blueprint(Ops(state.metrics.registry, lambda: "", lambda: "", state.reload)))
    client = app.test_client()
    assert client.post("/-/reload").status_code == 403
    assert "send SIGHUP" in client.post("/-/reload").text
    client.environ_base[CERTIFICATE] = {"subject": ((("commonName", "isolation-agent"),),)}
    assert client.post("/-/reload").status_code == 200
    assert client.post("/-/reload", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_service_may_have_its_own_reload_page(state: State) -> None:
    app = Flask("vigia_service", static_folder=None)
    app.register_blueprint(blueprint(Ops(state.metrics.registry, lambda: "", lambda: "")))
    assert app.test_client().post("/-/reload").status_code == 404


def test_metrics_page(client: FlaskClient, state: State) -> None:
    state.metrics.reloaded(True)
    plain = client.get("/metrics")
    assert plain.content_type.startswith("text/plain")
    assert "vigia_compare_config_last_reload_successful 1.0" in plain.text
    assert "process_cpu_seconds_total" in plain.text and "python_info" in plain.text
    openmetrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.content_type.startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


# Metrics


def sample(metrics: SelfMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name)


def test_self_metrics_are_the_catalogues() -> None:
    metrics = service()
    declared = {m.name for m in part_metrics("compare")}
    families = {f.name for f in metrics.registry.collect() if f.name.startswith("vigia_")}
    assert families <= declared and len(families) == 3
    (build,) = next(f for f in metrics.registry.collect() if f.name == "vigia_compare_build_info").samples
    assert build.value == 1.0
    assert build.labels["version"] == "0.1.0" and build.labels["runtime"].startswith("python3")
    with pytest.raises(LookupError):
        metrics.make.gauge("vigia_nothing")


def test_reloads_are_counted() -> None:
    metrics = service()
    ok = "vigia_compare_config_last_reload_successful"
    at = "vigia_compare_config_last_reload_success_timestamp_seconds"
    metrics.reloaded(False)
    assert (sample(metrics, ok), sample(metrics, at)) == (0.0, 0.0)
    metrics.reloaded(True)
    first = sample(metrics, at)
    assert sample(metrics, ok) == 1.0 and first
    metrics.reloaded(False)
    assert (sample(metrics, ok), sample(metrics, at)) == (0.0, first), "when it last succeeded"


def test_revision_is_stamped_or_asked_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    expected = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    revision.cache_clear()
    assert revision("vigia_service") == expected
    package = tmp_path / "stamped_sample"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert revision("stamped_sample") == "unknown", "no checkout and no stamp"
    revision.cache_clear()
    (package / "_revision.txt").write_text("abc1234\n")
    assert revision("stamped_sample") == "abc1234"


# Reload


class Config(Strict):
    listen: str = "127.0.0.1:1"
    colour: str = "blue"
    file: Path | None = None


class Reloading:
    """A program with a configuration, one fixed field, and a file that must open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write()
        self.config = load(path, Config)
        self.content = b""
        self.outcomes: list[bool] = []
        self.reloader = Reloader(
            path,
            lambda p: load(p, Config),
            current=lambda: self.config,
            fixed=self.fixed,
            prepare=self.prepare,
            reloaded=self.outcomes.append,
        )

    def write(self, **fields: str) -> None:
        self.path.write_text(json.dumps({"colour": "blue", **fields}))

    @staticmethod
    def fixed(config: Config) -> Mapping[str, object]:
        return {"listen": config.listen}

    def prepare(self, config: Config) -> object:
        try:
            content = config.file.read_bytes() if config.file else b""
        except OSError as e:
            raise ServiceError(f"file: {config.file}: {e.strerror}") from e

        def commit() -> None:
            self.config, self.content = config, content

        return commit


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    made = Reloading(tmp_path / "c.yaml")
    made.reloader.start()
    yield made
    made.reloader.stop()


def test_what_is_whole_is_swapped_in(reloading: Reloading, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content")
    reloading.write(colour="red", file=str(tmp_path / "f"))
    reloading.reloader.reload()
    assert (reloading.config.colour, reloading.content) == ("red", b"content")
    assert reloading.outcomes == [True]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"color": "red"}, 'unknown key "color"'),
        ({"colour": "red", "file": "/absent"}, "file: /absent: No such file or directory"),
        (
            {"colour": "red", "listen": "127.0.0.1:2"},
            "listen cannot change from 127.0.0.1:1 to 127.0.0.1:2 while the program runs; restart it",
        ),
    ],
)
def test_what_is_not_whole_changes_nothing(
    reloading: Reloading, fields: dict[str, str], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = reloading.config
    reloading.write(**fields)
    with pytest.raises(ServiceError, match=problem.replace("(", r"\(")):
        reloading.reloader.reload()
    assert reloading.config is before
    assert reloading.outcomes == [False]
    assert "cannot reload, the old configuration stays in force" in caplog.text
    reloading.write(colour="green")
    reloading.reloader.reload()
    assert (reloading.config.colour, reloading.outcomes) == ("green", [False, True])


def test_requests_are_served_one_after_the_other(reloading: Reloading) -> None:
    reloading.write(colour="red")
    for _ in range(5):
        reloading.reloader.request()
    eventually(lambda: len(reloading.outcomes) == 5, "five reloads")
    assert reloading.config.colour == "red"
    reloading.path.unlink()
    reloading.reloader.request()
    eventually(lambda: reloading.outcomes[5:] == [False], "a refusal, which ends nothing")
    reloading.write(colour="blue")
    reloading.reloader.request()
    eventually(lambda: reloading.config.colour == "blue", "a reload after that")


def test_a_mistake_of_the_program_ends_no_reloading(
    reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    def mistake(_config: Config) -> object:
        raise ZeroDivisionError

    proper, reloading.reloader._prepare = reloading.reloader._prepare, mistake  # type: ignore[assignment]
    reloading.reloader.request()
    eventually(lambda: reloading.outcomes == [False], "the failure")
    assert "cannot reload: the program has made a mistake" in caplog.text
    reloading.reloader._prepare = proper
    reloading.reloader.request()
    eventually(lambda: reloading.outcomes == [False, True], "the next one")


def test_reloads_at_once_do_not_mix(reloading: Reloading) -> None:
    threads = [threading.Thread(target=reloading.reloader.reload) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reloading.outcomes == [True] * 8


# Logs


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield io.StringIO()
    root.handlers = before
    root.setLevel(level)


def test_logfmt(log: io.StringIO) -> None:
    logs.setup("logfmt", "info", log)
    extra = {"path": "/a b", "ok": True, "count": 3, "none": "", "bad": 'x" y=\n"z'}
    logging.getLogger("sample").warning("cannot do %s", "it", extra=extra)
    line = log.getvalue()
    assert line.count("\n") == 1, "no value can end a line"
    assert ' level=WARN source=sample msg="cannot do it" path="/a b" ok=true count=3 none="" ' in line
    assert line.startswith("time=") and line.split()[0].endswith("Z")
    assert r'bad="x\" y=\n\"z"' in line


def test_json(log: io.StringIO) -> None:
    logs.setup("json", "info", log)
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("sample").exception("cannot", extra={"what": Path("/x")})
    record = json.loads(log.getvalue())
    assert (record["level"], record["msg"], record["what"]) == ("ERROR", "cannot", "/x")
    assert "ValueError: inner" in record["err"]


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warn", 2), ("error", 1)])
def test_levels(log: io.StringIO, level: str, shown: int) -> None:
    logs.setup("logfmt", level, log)
    logger = logging.getLogger("sample")
    for write in (logger.debug, logger.info, logger.warning, logger.error):
        write("x")
    assert len(log.getvalue().splitlines()) == shown
    logging.getLogger("httpx").info("GET http://host/?token=secret")
    assert "secret" not in log.getvalue()


def test_logs_go_to_standard_error() -> None:
    code = "from vigia_service import logs; import logging; logs.setup(); logging.info('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "" and "msg=x" in done.stderr
