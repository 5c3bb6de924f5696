"""vigia demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia.cli.options import json_option, lab_of, topology_option

if TYPE_CHECKING:
    from vigia.course import Course
    from vigia.demo.measured import PathFigures
    from vigia.demo.scenario import Cast, Play
    from vigia.lab.model import Lab
    from vigia.lab.state import State
    from vigia.stack.places import Places

__all__ = ["demo"]

_STAGES = {"lab": 3.0, "stack": 5.0, "measurement": 30.0, "flood": 37.0}
"""Seconds that each stage takes where the machine is not busy."""

_MEASURED = "What the paths give (kernel timestamps, reflector time excluded)"


@click.command()
@topology_option
@click.option(
    "--path",
    default="linuxbridge-vxlan",
    show_default=True,
    help="Overlay path on which the flood is played.",
)
@json_option
def demo(file: Path | None, path: str, as_json: bool) -> None:
    """Bring up lab and stack, play a flood, show how it is stopped.

    Shows the delay and loss of every path, the timeline of the flood, and the throughput of its victim, and
    leaves everything running. On a terminal its stages and the time that is left are shown while it runs;
    with NO_COLOR, and elsewhere, it prints lines alone. Exit code 0 means that every step was observed and
    that the victim kept its guarantee.
    """
    from vigia.errors import VigiaError
    from vigia_prometheus import PrometheusError

    try:
        _demo(lab_of(file), path, as_json)
    except PrometheusError as e:
        raise VigiaError(str(e)) from e


def _demo(wanted: Lab, path: str, as_json: bool) -> None:
    import sys

    from vigia import console
    from vigia.course import Course
    from vigia.demo import measured, outcome, scenario
    from vigia.stack import addresses, places

    who = scenario.cast(wanted, path)
    places.find_programs()
    course = Course("vigia demo", _STAGES, sys.stderr if as_json else sys.stdout)
    with course.shown():
        present, where, figures, played = _run(wanted, who, course, as_json)
    result = outcome.assess(played, outcome.promised(who, present.datapath))
    if as_json:
        console.print_json(
            {
                "paths": [f.as_json() for f in figures],
                **result.as_json(),
                "addresses": addresses.of(present.lab, where),
            }
        )
        return
    if course.is_terminal:  # elsewhere it was printed before the flood, for who reads along
        _show(_MEASURED, measured.as_table(figures, _room()))
    _show("What happened", result.timeline(_room()))
    _show(f"What {who.victim.tenant} got", result.victim(_room()))
    _show("Everything is still running; open", addresses.as_table(present.lab, where))


def _run(
    wanted: Lab, who: Cast, course: Course, as_json: bool
) -> tuple[State, Places, list[PathFigures], Play]:
    """Go through all stages. Raises VigiaError or PrometheusError."""
    from vigia.demo import measured, scenario
    from vigia.lab import up as lab_up
    from vigia.stack import places
    from vigia.stack import up as stack_up
    from vigia.stack.agent import IsolationAgent
    from vigia_prometheus import Prometheus

    with course.stage("lab"):
        present = lab_up.bring_up(wanted, "auto", course)
    lab = present.lab  # without the paths that this machine cannot have
    with course.stage("stack"):
        where = stack_up.bring_up(present, course)
    with Prometheus(f"http://{places.stack_address(lab, 9090)}") as prometheus:
        with (
            course.stage("measurement"),
            course.step("measuring every path", expected=_STAGES["measurement"]) as done,
        ):
            for ready in measured.wait_for_samples(lab, prometheus):
                paths = ready
            done.append(f"measured {paths} directions of paths, {measured.SAMPLES} probes or more on each")
        figures = measured.read(lab, prometheus)
        if not (as_json or course.is_terminal):
            _show(_MEASURED, measured.as_table(figures, _room()))
        with (
            IsolationAgent(places.stack_address(lab, 9874), where.api_token) as agent,
            course.stage("flood"),
            course.step("playing the flood", expected=scenario.EXPECTED) as done,
        ):
            played = scenario.play(who, prometheus, agent, course.line, lab)
            done.append("the flood scenario is complete")
    return present, where, figures, played


def _room() -> int | None:
    """Return the columns that what is shown has, beside its indentation; None where nobody watches."""
    import sys

    from vigia_text import terminal

    width = terminal.width(sys.stdout)
    return width and width - 2


def _show(title: str, text: str) -> None:
    indented = "\n".join(f"  {line}".rstrip() for line in text.splitlines())
    click.echo(f"\n{title}:\n\n{indented}\n")
