"""The command line that every service has: options, commands, exit codes, one-line errors, a fast start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from vigia_catalog import part_metrics
from vigia_config import ConfigError
from vigia_service import cli
from vigia_service.cli import Checked, Group, Options, Program, command_line, common
from vigia_service.errors import ServiceError
from vigia_service.exits import Exit
from vigia_service.ops import Ops, blueprint

from ..server.serving import serving
from .test_ops import service

Out = pytest.CaptureFixture[str]

NAME = "vigia-sample"
READY = "http://127.0.0.1:1/-/ready"


class Calls:
    """A program that remembers how it was called."""

    def __init__(self) -> None:
        self.ran: list[Path] = []
        self.listen = "127.0.0.1:1"
        self.problem: Exception | None = None
        self.code = 0
        program = Program(
            name=NAME,
            version="1.2.3",
            summary="Do a thing for a test.",
            run=self.run,
            check=self.check,
            part="compare",
            ready_url=READY,
            listener=lambda _: (self.listen, None),
        )
        self.group = command_line(program)

        @self.group.command()
        @common
        @click.pass_obj
        def show(options: Options) -> None:
            """Show the options. And then some more words, which help does not list."""
            click.echo(f"{options.config} {options.log_level} {options.log_format}")

    def run(self, path: Path) -> int:
        if self.problem is not None:
            raise self.problem
        self.ran.append(path)
        return self.code

    def check(self, path: Path) -> Checked:
        self.run(path)
        return Checked("2 things", {"things": 2})

    def __call__(self, *arguments: str) -> int:
        return cli.main(self.group, NAME, arguments)


@pytest.fixture
def program() -> Calls:
    return Calls()


def one_line(capsys: Out) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"{NAME}: ")
    return line.removeprefix(f"{NAME}: ")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_shows_commands_whole_and_exit_codes(program: Calls, capsys: Out, flag: str) -> None:
    assert program(flag) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert "Do a thing for a test. Without a command: run the service." in words
    assert "Read and validate the configuration, then exit." in words
    assert "Show the options." in words and "some more words" not in words
    assert "..." not in text.partition("Commands:")[2]
    for code in Exit:
        assert f"{code.value} {code.meaning}" in words
    for name in program.group.commands:
        assert program(name, flag) == 0
        assert "Exit codes" not in capsys.readouterr().out


def test_version(program: Calls, capsys: Out) -> None:
    assert program("--version") == 0
    assert capsys.readouterr().out == "vigia-sample, version 1.2.3\n"


@pytest.mark.parametrize(
    "arguments", [("--config", "c.yaml"), ("run", "--config", "c.yaml"), ("--config", "c.yaml", "run")]
)
def test_run(program: Calls, arguments: tuple[str, ...]) -> None:
    program.code = 7
    assert program(*arguments) == 7
    assert program.ran == [Path("c.yaml")]


def test_options_stand_before_or_after_the_command(program: Calls, capsys: Out) -> None:
    options = ("--config", "c", "--log.level", "debug", "--log.format", "json")
    for arguments in (("show", *options), (*options, "show"), (*options[:2], "show", *options[2:])):
        assert program(*arguments) == 0
        assert capsys.readouterr().out == "c debug json\n"
    assert program("--log.level", "warn", "show", "--log.level", "error") == 0
    assert capsys.readouterr().out == "None error logfmt\n", "the last one counts"


def test_check_config(program: Calls, capsys: Out) -> None:
    assert program("check-config", "--config", "c") == 0
    assert capsys.readouterr().out == "c: OK, 2 things\n"
    assert program("check-config", "--config", "c", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"config": "c", "ok": True, "things": 2}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--config FILE is missing"),
        (("run",), "--config FILE is missing"),
        (("check-config",), "--config FILE is missing"),
        (("nonsense",), "No such command 'nonsense'"),
        (("helthcheck",), "No such command 'helthcheck'; did you mean healthcheck?"),
        (("--nonsense",), "No such option"),
        (("--log.level", "loud", "show"), "'loud' is not one of 'debug', 'info', 'warn', 'error'"),
        (("--log.format", "xml", "show"), "'xml' is not one of 'logfmt', 'json'"),
        (("--list-metrics", "xml"), "'xml' is not one of 'text', 'json', 'markdown'"),
        (("show", "extra"), "unexpected extra argument (extra)"),
        (("healthcheck", "--url", "nonsense"), f"--url nonsense: is not a URL; write for example {READY}"),
        (("healthcheck", "--url", "file:///etc/passwd"), "--url file:///etc/passwd: is not a URL"),
        (("healthcheck", "--url", "http://x:99999/"), "is not a URL"),
    ],
)
def test_usage_errors(program: Calls, capsys: Out, arguments: tuple[str, ...], says: str) -> None:
    assert program(*arguments) == Exit.USAGE
    line = one_line(capsys)
    assert says in line and line.endswith(f"; see {NAME} --help")


@pytest.mark.parametrize("kind", [ServiceError, ConfigError, click.ClickException])
def test_failures_are_lines_without_a_traceback(program: Calls, capsys: Out, kind: type[Exception]) -> None:
    program.problem = kind("first\nsecond")
    assert program("--config", "c") == Exit.FAILED
    assert capsys.readouterr().err == f"{NAME}: first\n{NAME}: second\n"


def test_mistakes_of_the_program_are_not_hidden(program: Calls) -> None:
    program.problem = RuntimeError("a mistake")
    with pytest.raises(RuntimeError):
        program("--config", "c")


def test_an_interrupt_is_a_failure(program: Calls) -> None:
    program.problem = click.Abort()
    assert program("--config", "c") == Exit.FAILED


def test_metrics_in_three_formats(program: Calls, capsys: Out) -> None:
    declared = [m.name for m in part_metrics("compare")]
    assert program("--list-metrics") == 0
    text = capsys.readouterr().out
    heads = [line for line in text.splitlines() if not line.startswith(" ")]
    assert [head.partition("{")[0] for head in heads] == declared
    assert (
        '    verdict: pinned, "not on these hosts", "insufficient evidence", "no counter"'
        in text.splitlines()
    )
    assert program("--list-metrics", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in found] == declared
    assert all(
        set(m) - {"values"} == {"name", "type", "unit", "labels", "help", "part", "pages"} for m in found
    )
    assert program("--list-metrics", "markdown") == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| metric | type | unit | labels | help |"
    assert [re.match(r"\| `(\w+)` \|", row)[1] for row in table[2:]] == declared  # type: ignore[index]


def test_a_program_without_metrics_and_pages_has_no_such_options(capsys: Out) -> None:
    group = command_line(Program(NAME, "1", "Do.", run=lambda _: 0, check=lambda _: Checked("")))
    assert set(group.commands) == {"run", "check-config"}
    assert cli.main(group, NAME, ["--list-metrics"]) == 2
    capsys.readouterr()
    assert cli.main(group, NAME, ["check-config", "--config", "c"]) == 0
    assert capsys.readouterr().out == "c: OK\n"


# Health checks


def test_healthcheck_asks_a_running_instance(program: Calls, capsys: Out) -> None:
    problem = [""]
    ops = Ops(service().registry, alive=lambda: "", ready=lambda: problem[0])
    from flask import Flask  # noqa: PLC0415

    app = Flask("vigia_service", static_folder=None)
    app.register_blueprint(blueprint(ops))
    with serving(app=app) as running:
        host, port = running.address
        program.listen = f"{host}:{port}"
        url = f"http://{host}:{port}/-/ready"
        for arguments in (("healthcheck", "--url", url), ("healthcheck", "--config", "c")):
            assert program(*arguments) == 0
            assert capsys.readouterr().out == f"{url}: ready\n"
        assert program("healthcheck", "--url", url, "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"url": url, "ready": True, "answer": "ready"}
        problem[0] = "the disk is full"
        assert program("healthcheck", "--url", url) == Exit.FAILED
        assert one_line(capsys) == f"{url} answers 503: not ready: the disk is full"
        assert program("healthcheck", "--url", url, "--json") == Exit.FAILED
        assert json.loads(capsys.readouterr().out)["ready"] is False
    assert program("healthcheck", "--url", url) == Exit.FAILED
    assert f"cannot ask {url}: " in (line := one_line(capsys)) and "is the program running?" in line


def test_healthcheck_by_a_unix_socket(program: Calls, capsys: Out, tmp_path: Path) -> None:
    from flask import Flask  # noqa: PLC0415

    app = Flask("vigia_service", static_folder=None)
    app.register_blueprint(blueprint(Ops(service().registry, alive=lambda: "", ready=lambda: "")))
    program.listen = f"unix:{tmp_path}/s"
    with serving(app=app, where=program.listen):
        assert program("healthcheck", "--config", "c") == 0
        assert capsys.readouterr().out == f"unix://{tmp_path}/s: ready\n"
    assert program("healthcheck", "--config", "c") == Exit.FAILED
    assert "cannot ask unix://" in one_line(capsys)


# A fast start


def test_the_frame_loads_nothing_heavy() -> None:
    code = (
        "import sys; from vigia_service import cli\n"
        "p = cli.Program('x', '1', 'Do.', run=lambda _: 0, check=lambda _: cli.Checked(''), part='compare')\n"
        "assert cli.main(cli.command_line(p), 'x', ['--help']) == 0\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"flask", "h11", "yaml", "pydantic", "httpx", "prometheus_client", "asyncio", "numpy", "ssl"}
    assert not heavy & set(done.stderr.split())


def test_groups_may_be_nested() -> None:
    root = Group("root", context_settings=dict(cli.CONTEXT))
    inner = Group("inner", help="Work with things.")
    root.add_command(inner)
    inner.add_command(click.Command("list", help="List them."))
    assert cli.main(root, "root", ["inner", "lst"]) == Exit.USAGE
