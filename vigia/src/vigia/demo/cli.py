"""vigia demo and vigia down."""

from __future__ import annotations

import sys
from typing import Any

import click

from vigia import console
from vigia.console import Steps
from vigia.demo import measured, outcome, scenario
from vigia.demo.scenario import Cast
from vigia.isolation import claims
from vigia.lab import down as lab_down
from vigia.lab import model, naming, preflight, state, topology, up
from vigia.lab.cli import lab_option, topology_option
from vigia.lab.model import Lab
from vigia.stack import cli as stack_cli
from vigia.stack import control, places
from vigia.stack.agent import IsolationAgent
from vigia.stack.places import Places
from vigia.stack.prometheus import Prometheus

__all__ = ["demo", "down"]

SAMPLES = 100
"""Answered probes that every path has before its figures are shown: five seconds of them."""

WINDOW = 30
"""Seconds that the table of paths looks back."""


@click.command()
@topology_option
@click.option(
    "--path",
    default="linuxbridge-vxlan",
    show_default=True,
    help="Overlay path on which the flood is played.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the steps go to stderr.")
def demo(file: Any, path: str, as_json: bool) -> None:
    """Bring up lab and stack, show what they measure, play a flood, show what happened.

    Leaves everything running. Exit status 0 means that every step was observed.
    """
    wanted = model.resolve(topology.load(file) if file else topology.default())
    who = scenario.cast(wanted, path)
    steps = Steps(sys.stderr if as_json else sys.stdout)
    places.find_programs()
    present = up.bring_up(wanted, "auto", steps)
    where = stack_cli.bring_up(present, steps)
    prometheus = Prometheus(places.stack_address(wanted, 9090))
    with steps.step("measuring every path", expected=10) as done:
        for ready in measured.wait_for_samples(wanted, prometheus, SAMPLES, WINDOW):
            paths = ready
        done.append(f"measured {paths} directions of paths, {SAMPLES} probes or more on each")
    figures = measured.read(wanted, prometheus, WINDOW)
    if not as_json:
        _show(
            "What the paths give (kernel to kernel, the reflector's time removed)", measured.as_table(figures)
        )
    result = _flood(wanted, who, prometheus, where, steps)
    if as_json:
        console.print_json(
            {
                "paths": [f.as_json() for f in figures],
                **result.as_json(),
                "addresses": addresses(wanted, where),
            }
        )
        return
    _show("What happened", result.timeline())
    _show(f"What {who.victim.tenant} got", result.victim())
    _show("Everything is left running; open", _addresses_text(wanted, where))


def _flood(lab: Lab, who: Cast, prometheus: Prometheus, where: Places, steps: Steps) -> outcome.Outcome:
    agent = IsolationAgent(places.stack_address(lab, 9874), where.api_token)
    expected = scenario.BEFORE + scenario.FLOOD + 12 + scenario.AFTER
    with steps.step("playing the flood", expected=expected) as done:
        played = scenario.play(who, prometheus, agent, steps.line, lab)
        done.append("played the flood to its end")
    return outcome.assess(played)


def _show(title: str, text: str) -> None:
    indented = "\n".join(f"  {line}" for line in text.splitlines())
    click.echo(f"\n{title}:\n\n{indented}\n")


def addresses(lab: Lab, where: Places) -> dict[str, str]:
    """Return what there is to open."""
    first = lab.nodes[0]
    return {
        "prometheus": f"http://{places.stack_address(lab, 9090)}/graph",
        "alertmanager": f"http://{places.stack_address(lab, 9093)}/api/v2/alerts",
        "console": f"http://{places.stack_address(lab, 9874)}/",
        "comparison": f"http://{places.stack_address(lab, 9875)}/",
        "actions": f"http://{places.stack_address(lab, 9874)}/v1/actions",
        "api_token": str(where.api_token),
        "probe": f"http://{places.agent_address(lab, first.name, 'vigia-probe')}/",
        "exporter": f"http://{places.agent_address(lab, first.name, 'vigia-exporter')}/debug/ports",
    }


def _addresses_text(lab: Lab, where: Places) -> str:
    a = addresses(lab, where)
    first = lab.nodes[0].name
    rows = [
        ("Prometheus", a["prometheus"]),
        ("alerts", a["alertmanager"]),
        ("console", f"{a['console']}   sign in with the content of {a['api_token']}"),
        ("comparison", a["comparison"]),
        ("isolation actions", f'curl -sH "Authorization: Bearer $(cat {a["api_token"]})" {a["actions"]}'),
        (f"probe of {first}", a["probe"]),
        (f"ports of {first}", a["exporter"]),
        ("flood again", ".venv/bin/vigia demo --path ovs-vxlan"),
        ("remove everything", "make down"),
    ]
    return console.table(("what", "where"), rows)


@click.command()
@lab_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def down(name: str, as_json: bool) -> None:
    """Stop the stack and remove the lab: every trace of both, also after a crash.

    What a campaign that was killed left behind goes, too.
    """
    preflight.check_rights()
    layout = naming.layout_of(name)
    steps = Steps(sys.stderr if as_json else sys.stdout)
    with state.locked(layout):
        with steps.step("stopping the stack") as done:
            stopped = control.down(Places(layout))
            done.append(f"stopped {stopped} processes" if stopped else "no stack is up")
        with steps.step(f"removing lab {name}") as done:
            removed = lab_down.remove(layout)
            done.append(f"removed lab {name}: {removed}" if removed.anything else f"no lab {name} is up")
    beds = claims.sweep()
    if beds:
        steps.line(f"removed what killed campaigns left: {', '.join(beds)}")
    if as_json:
        console.print_json(
            {"lab": name, "processes": stopped, "namespaces": removed.namespaces, "beds": beds}
        )
