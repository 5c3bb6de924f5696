"""The command: what it offers, how it says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from labkit import ROOT

from vigia.cli.main import COMMANDS, command
from vigia_service.cli import CONTEXT
from vigia_service.exits import Exit
from vigia_testing import modules_after

Vigia = Callable[..., Any]
VIGIA = str(Path(sys.executable).with_name("vigia"))

WITHOUT_JSON = {
    "lab exec": "its output is the command's",
    "node serve": "it runs until it is stopped",
    "compose lab": "it runs until it is stopped",
    "completion": "its output is a script",
}
SUMMARY = 62
"""Characters of a summary that fit beside the longest name in 80 columns."""


def tree(command: click.Command = command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every group and command with the words that it is typed as."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            yield from tree(child, *path, name)


COMMANDS_BY_WORDS = dict(tree())
LEAVES = {w: c for w, c in COMMANDS_BY_WORDS.items() if not isinstance(c, click.Group)}


def test_version(vigia: Vigia) -> None:
    assert vigia("--version").stdout == f"vigia, version {version('vigia')}\n"


def test_the_tree_of_commands() -> None:
    assert set(LEAVES) == {
        *("up", "status", "down", "demo", "flood", "compare", "explain", "doctor", "completion", "top"),
        *(f"lab {w}" for w in ("up", "down", "status", "exec", "paths", "check")),
        *(f"stack {w}" for w in ("up", "down", "status")),
        *(f"campaign {w}" for w in ("list", "show", "run", "resume", "report", "compare")),
        "soak report",
        *(f"node {w}" for w in ("serve", "check-config", "status")),
        *(f"certs {w}" for w in ("init", "status", "password")),
        *(f"compose {w}" for w in ("init", "certificates", "lab")),
    }
    assert not any(c.hidden for c in COMMANDS_BY_WORDS.values())


@pytest.mark.parametrize("words", COMMANDS_BY_WORDS)
def test_everything_is_explained(words: str) -> None:
    command = COMMANDS_BY_WORDS[words]
    assert command.help, words
    summary = command.get_short_help_str(10_000)
    assert len(summary) <= SUMMARY, f"{words}: {summary}"
    assert "..." not in summary
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, (words, parameter.name)
            assert parameter.help.endswith("."), (words, parameter.name)


@pytest.mark.parametrize("words", COMMANDS_BY_WORDS)
def test_help_by_both_names(vigia: Vigia, words: str) -> None:
    short, long = (vigia(*words.split(), option) for option in ("-h", "--help"))
    assert (short.status, short.stdout) == (0, long.stdout)
    assert short.stdout.startswith(f"Usage: {' '.join(['vigia', *words.split()])} ")
    summary = COMMANDS_BY_WORDS[words].get_short_help_str(10_000)
    shown = " ".join(short.stdout.split())
    assert summary.rstrip(".") in shown
    command = COMMANDS_BY_WORDS[words]
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = COMMANDS_BY_WORDS[f"{words} {name}".strip()].get_short_help_str(10_000)
            assert re.search(rf"^  {name} +{re.escape(below)}$", short.stdout, re.MULTILINE), (
                f"{name} is on a line of its own, whole"
            )


def test_the_help_has_the_table_of_exit_codes(vigia: Vigia) -> None:
    shown = vigia("--help").stdout
    for code in Exit:
        assert f"  {code.value}  {code.meaning}" in shown
    assert "Exit codes" not in vigia("lab", "--help").stdout, "once is enough"


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_can_print_json(words: str) -> None:
    options = {name for parameter in LEAVES[words].params for name in parameter.opts}
    assert ("--json" in options) != (words in WITHOUT_JSON), WITHOUT_JSON.get(words, words)


@pytest.mark.parametrize(
    ("words", "status", "stderr"),
    [
        (("lab", "fly"), 2, "vigia: No such command 'fly'; see vigia --help\n"),
        (("lab", "up", "--fast"), 2, "No such option"),
        (
            ("lab", "down", "--lab", "test"),
            2,
            'vigia: --lab "test" is not the name of a lab; write for example demo; see vigia --help\n',
        ),
        (
            ("lab", "down", "--lab", "../etc"),
            2,
            'vigia: --lab "../etc" is not the name of a lab; write for example demo; see vigia --help\n',
        ),
        (("lab", "status", "--lab", "never"), 1, "vigia: lab never is not up; bring it up: vigia lab up\n"),
        (
            ("lab", "exec", "--lab", "never", "lb1", "true"),
            1,
            "vigia: lab never is not up; bring it up: vigia lab up\n",
        ),
        (("lab", "exec", "lb1"), 2, "Missing argument 'COMMAND...'"),
        (
            ("lab", "up", "--topology", "/nonexistent/lab.yaml"),
            1,
            "vigia: /nonexistent/lab.yaml: cannot be read: No such file or directory\n",
        ),
        (("lab", "check", "--topology", "/etc"), 1, "vigia: /etc: cannot be read: Is a directory\n"),
        (
            ("lab", "up", "--ovs-datapath", "hardware"),
            2,
            "'hardware' is not one of 'auto', 'kernel', 'userspace';",
        ),
        (("lab", "up", "--cloud", "cumulus"), 2, "Invalid value for '--cloud': 'cumulus' is not "),
        (("flood", "--tenant", "red"), 2, "Missing option '--path';"),
        (("campaign", "show", "e99"), 2, 'there is no campaign "e99"; write one of e1, '),
    ],
)
def test_mistakes(vigia: Vigia, words: tuple[str, ...], status: int, stderr: str) -> None:
    done = vigia(*words)
    assert done.status == status
    assert stderr in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("stauts",), "did you mean status?"),
        (("campaing", "run", "e1"), "did you mean campaign?"),
        (("lab", "stat"), "did you mean status?"),
        (("campaign", "reprot"), "did you mean report?"),
        (("resume",), "vigia campaign resume?"),
        (("exec", "lb1", "true"), "vigia lab exec?"),
    ],
)
def test_a_mistyped_command_names_the_nearest(vigia: Vigia, words: tuple[str, ...], hint: str) -> None:
    done = vigia(*words)
    assert done.status == Exit.USAGE
    assert hint in done.stderr


def test_what_is_near_nothing_has_no_suggestion(vigia: Vigia) -> None:
    assert "did you mean" not in vigia("xyzzy").stderr


def test_an_error_of_the_system_is_a_line(vigia: Vigia, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = vigia("certs", "init", "--dir", str(tmp_path / "file" / "tls"))
    assert done.status == Exit.FAILED
    assert re.fullmatch(r"vigia: .*/file/tls.*: Not a directory.*\n", done.stderr)


def test_the_reference_has_every_command_and_its_options() -> None:
    page = (ROOT / "docs/reference/command-lines.md").read_text()
    parts = dict(re.findall(r"^## (vigia\b.*?)\n+```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    commands = {" ".join(("vigia", path)).strip(): c for path, c in tree()}
    assert {name for name in parts if name.split()[0] == "vigia"} == set(commands)
    for name, found in commands.items():
        for option in (o for p in found.params for o in p.opts if o.startswith("--")):
            assert re.search(rf"{re.escape(option)}\b", parts[name]), (name, option)


# --- what is loaded ---

OURS = re.compile(r"_*vigia.*|_editable_impl_.*|__editable.*")


def loaded(*words: str) -> set[str]:
    """Names of the packages that are not Python's own that a command has loaded when it ends."""
    found = modules_after("vigia", *words) - sys.stdlib_module_names
    return {name for name in found if not OURS.fullmatch(name)}


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("lab", "-h"),
        ("lab", "status", "-h"),
        ("campaign", "run", "-h"),
        ("flood", "-h"),
        ("compare", "-h"),
        ("completion", "bash"),
    ],
)
def test_help_loads_click_and_nothing_heavy(words: tuple[str, ...]) -> None:
    """Every other library takes longer to load than the rest of the command takes."""
    assert loaded(*words) <= {"click", "typing_extensions"}


@pytest.mark.parametrize("words", [("lab", "check"), ("campaign", "list")])
def test_light_commands_load_no_numbers_and_no_figures(words: tuple[str, ...]) -> None:
    heavy = {"numpy", "scipy", "matplotlib", "scapy", "cryptography", "flask", "gunicorn", "weasyprint"}
    assert not loaded(*words) & heavy


def test_a_wrong_option_is_refused_before_anything_is_loaded() -> None:
    script = (
        "import sys; from vigia.cli.main import main; code = main(sys.argv[1:]); print(code, *sys.modules)"
    )
    argv = [sys.executable, "-c", script, "compare", "--since", "-5m"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert '"-5m" is not a duration; write for example 30s, 15m, 1h or 1d' in done.stderr
    code, *modules = done.stdout.split()
    assert code == "2"
    assert not {"pydantic", "yaml", "numpy", "httpx"} & set(modules)


def test_every_row_of_the_table_is_a_module_that_has_it() -> None:
    for name in COMMANDS:
        found = command.get_command(click.Context(command), name)
        assert found is not None
        assert found.name == name
    assert command.context_settings == dict(CONTEXT)


# --- in detail ---


def test_check(vigia: Vigia, edited: Callable[..., Path]) -> None:
    assert vigia("lab", "check").stdout == "demo.yaml: lab demo: 2 nodes, 1 links, 21 paths, 56 endpoints\n"
    good = edited(("name: demo\n", "name: mine\n"))
    done = vigia("lab", "check", "--topology", str(good))
    assert (done.status, done.stdout) == (0, f"{good}: lab mine: 4 nodes, 2 links, 4 paths, 18 endpoints\n")
    assert vigia("lab", "check", "--topology", str(good), "--json").json == {
        "lab": "mine",
        "nodes": 4,
        "links": 2,
        "paths": 4,
        "endpoints": 18,
    }


def test_a_bad_topology_is_a_line_for_each_mistake(vigia: Vigia, edited: Callable[..., Path]) -> None:
    bad = edited(("guarantee: 40Mbit", "guarantee: fast"), ("key: 110", "key: 110, vlan: 3"))
    for words in (("lab", "check"), ("lab", "up"), ("up",)):
        done = vigia(*words, "--topology", str(bad))
        assert done.status == 1
        assert done.stderr == (
            f'vigia: {bad}:9: tenants[0].guarantee: "fast": is not a rate; write for example 200Mbit, 1Gbit or 64kbit\n'
            f'vigia: {bad}:30: unknown key "vlan"; known here: key, machines, path, subnet, subnet6, tenant\n'
        )


@pytest.mark.parametrize("words", [["lab", "up"], ["lab", "down"], ["down"]])
def test_without_rights_it_says_so_and_makes_nothing(root: None, words: list[str]) -> None:
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", VIGIA, *words]
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(
        r"vigia: the lab needs root \(CAP_NET_ADMIN, .* missing\); run it as root\n", done.stderr
    )


def test_the_name_of_the_lab_comes_from_the_environment(vigia: Vigia) -> None:
    done = vigia("lab", "status", env={"VIGIA_LAB": "never"})
    assert "lab never is not up" in done.stderr
