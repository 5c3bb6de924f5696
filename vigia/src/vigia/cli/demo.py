"""vigia demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia.cli.options import json_option, lab_of, steps_of, topology_option

if TYPE_CHECKING:
    from vigia.lab.model import Lab

__all__ = ["demo"]


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
    leaves everything running. Exit code 0 means that every step was observed and that the victim kept its
    guarantee.
    """
    from vigia.errors import VigiaError
    from vigia_prometheus import PrometheusError

    try:
        _demo(lab_of(file), path, as_json)
    except PrometheusError as e:
        raise VigiaError(str(e)) from e


def _demo(wanted: Lab, path: str, as_json: bool) -> None:
    from vigia import console
    from vigia.demo import measured, outcome, scenario
    from vigia.lab import up as lab_up
    from vigia.stack import addresses, places
    from vigia.stack import up as stack_up
    from vigia.stack.agent import IsolationAgent
    from vigia_prometheus import Prometheus

    who = scenario.cast(wanted, path)
    steps = steps_of(as_json)
    places.find_programs()
    present = lab_up.bring_up(wanted, "auto", steps)
    wanted = present.lab  # without the paths that this machine cannot have
    where = stack_up.bring_up(present, steps)
    with Prometheus(f"http://{places.stack_address(wanted, 9090)}") as prometheus:
        with steps.step("measuring every path", expected=30) as done:
            for ready in measured.wait_for_samples(wanted, prometheus):
                paths = ready
            done.append(f"measured {paths} directions of paths, {measured.SAMPLES} probes or more on each")
        figures = measured.read(wanted, prometheus)
        if not as_json:
            _show(
                "What the paths give (kernel timestamps, reflector time excluded)",
                measured.as_table(figures, _room()),
            )
        with (
            IsolationAgent(places.stack_address(wanted, 9874), where.api_token) as agent,
            steps.step("playing the flood", expected=scenario.EXPECTED) as done,
        ):
            played = scenario.play(who, prometheus, agent, steps.line, wanted)
            done.append("the flood scenario is complete")
    result = outcome.assess(played, outcome.promised(who, present.datapath))
    if as_json:
        console.print_json(
            {
                "paths": [f.as_json() for f in figures],
                **result.as_json(),
                "addresses": addresses.of(wanted, where),
            }
        )
        return
    _show("What happened", result.timeline(_room()))
    _show(f"What {who.victim.tenant} got", result.victim(_room()))
    _show("Everything is still running; open", addresses.as_table(wanted, where))


def _room() -> int | None:
    """Return the columns that what is shown has, beside its indentation; None where nobody watches."""
    import sys

    from vigia_text import terminal

    width = terminal.width(sys.stdout)
    return width and width - 2


def _show(title: str, text: str) -> None:
    indented = "\n".join(f"  {line}".rstrip() for line in text.splitlines())
    click.echo(f"\n{title}:\n\n{indented}\n")
