"""The command: what it offers, how it says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from vigia.cli import main

Vigia = Callable[..., Any]
VIGIA = str(Path(sys.executable).with_name("vigia"))


def test_version(vigia: Vigia) -> None:
    assert vigia("--version").stdout == f"vigia, version {version('vigia')}\n"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


def test_the_tree_of_commands() -> None:
    names = {" ".join(path) for path, _ in commands(main)}
    assert {"lab up", "lab down", "lab status", "lab exec", "lab check", "flood"} <= names


def test_every_command_and_option_is_explained() -> None:
    for path, command in commands(main):
        assert command.help, path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)


@pytest.mark.parametrize(
    "words", [("lab", "up"), ("lab", "down"), ("lab", "status"), ("lab", "check"), ("flood",)]
)
def test_commands_that_report_can_do_it_as_json(words: tuple[str, ...]) -> None:
    command = dict(commands(main))[words]
    assert "--json" in [name for parameter in command.params for name in parameter.opts]


@pytest.mark.parametrize(
    ("words", "status", "stderr"),
    [
        (("lab", "fly"), 2, "No such command 'fly'."),
        (("lab", "up", "--fast"), 2, "No such option"),
        (
            ("lab", "down", "--lab", "test"),
            1,
            'Error: --lab "test" is not the name of a lab; write for example demo\n',
        ),
        (
            ("lab", "down", "--lab", "../etc"),
            1,
            'Error: --lab "../etc" is not the name of a lab; write for example demo\n',
        ),
        (("lab", "status", "--lab", "never"), 1, "Error: lab never is not up; bring it up: vigia lab up\n"),
        (
            ("lab", "exec", "--lab", "never", "lb1", "true"),
            1,
            "Error: lab never is not up; bring it up: vigia lab up\n",
        ),
        (("lab", "exec", "lb1"), 2, "Missing argument 'COMMAND...'"),
        (
            ("lab", "up", "--topology", "/nonexistent/lab.yaml"),
            1,
            "Error: /nonexistent/lab.yaml: cannot be read: No such file or directory\n",
        ),
        (("lab", "check", "--topology", "/etc"), 1, "Error: /etc: cannot be read: Is a directory\n"),
        (
            ("lab", "up", "--ovs-datapath", "hardware"),
            2,
            "'hardware' is not one of 'auto', 'kernel', 'userspace'.",
        ),
        (("flood", "--tenant", "red"), 2, "Missing option '--path'."),
        (
            ("flood", "--tenant", "red", "--path", "x", "--rate", "1Mbit", "--seconds", "soon"),
            2,
            "'soon' is not a valid float.",
        ),
    ],
)
def test_mistakes(vigia: Vigia, words: tuple[str, ...], status: int, stderr: str) -> None:
    done = vigia(*words)
    assert done.status == status
    assert stderr in done.stderr
    assert done.stdout == ""


def test_check(vigia: Vigia, edited: Callable[..., Path]) -> None:
    assert vigia("lab", "check").stdout == "demo.yaml: lab demo: 4 nodes, 2 links, 4 paths, 18 endpoints\n"
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
    for words in (("lab", "check"), ("lab", "up")):
        done = vigia(*words, "--topology", str(bad))
        assert done.status == 1
        assert done.stderr == (
            f'Error: {bad}:9: tenants[0].guarantee: "fast": is not a rate; write for example 200Mbit, 1Gbit or 64kbit\n'
            f'{bad}:30: unknown key "vlan"; known here: key, machines, path, subnet, tenant\n'
        )


@pytest.mark.parametrize("words", [["lab", "up"], ["lab", "down"]])
def test_without_rights_it_says_so_and_makes_nothing(root: None, words: list[str]) -> None:
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", VIGIA, *words]
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(
        r"Error: the lab needs root \(CAP_NET_ADMIN, .* missing\); run it as root\n", done.stderr
    )


def test_the_name_of_the_lab_comes_from_the_environment(vigia: Vigia) -> None:
    done = vigia("lab", "status", env={"VIGIA_LAB": "never"})
    assert "lab never is not up" in done.stderr
