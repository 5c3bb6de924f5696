"""vigia flood."""

from __future__ import annotations

import sys

import click

from vigia.cli.options import Number, Rate, json_option, lab_option
from vigia.flood.bounds import MAX_PORTS, MAX_SECONDS, MAX_SIZE, MIN_SIZE

__all__ = ["flood"]


@click.command()
@lab_option
@click.option("--tenant", required=True, help="Tenant that floods, for example red.")
@click.option("--path", required=True, help="Path that it floods on, for example linuxbridge-vxlan.")
@click.option("--from", "node", metavar="NODE", help="Node that it floods from; default: the path's first.")
@click.option("--to", metavar="ADDRESS", help="Endpoint of the tenant that is flooded; default: its peer.")
@click.option(
    "--rate",
    type=Rate("1kbit", "1Gbit"),
    required=True,
    help="Rate of UDP payload, for example 400Mbit; at most 1Gbit.",
)
@click.option(
    "--seconds", type=Number(0, MAX_SECONDS), required=True, help=f"Duration; at most {MAX_SECONDS:g}."
)
@click.option(
    "--size",
    type=click.IntRange(MIN_SIZE, MAX_SIZE),
    default=1400,
    show_default=True,
    help="Bytes of UDP payload in a packet.",
)
@click.option(
    "--ports",
    type=click.IntRange(1, MAX_PORTS),
    default=MAX_PORTS,
    show_default=True,
    help="Different destination ports, drawn at random.",
)
@json_option
def flood(  # noqa: PLR0913 - one argument per option
    name: str,
    tenant: str,
    path: str,
    node: str | None,
    to: str | None,
    rate: str,
    seconds: float,
    size: int,
    ports: int,
    as_json: bool,
) -> None:
    """Flood a tenant's own endpoint in the lab with UDP.

    Destination ports are random, rate and time are bounded, and no packet leaves the lab. Ctrl-C ends it
    early; what was sent is still reported.
    """
    from vigia import console
    from vigia.flood import order, run
    from vigia.lab import preflight, state

    wanted = order.make(
        state.running(name).lab,
        tenant=tenant,
        path=path,
        node=node,
        to=to,
        rate=rate,
        seconds=seconds,
        size=size,
        ports=ports,
    )
    preflight.check_rights()
    with console.Steps(sys.stderr).step(f"flooding at {rate}", expected=seconds) as done:
        done.append("")  # shown on a terminal while it lasts
        report = run.run(wanted)
    if as_json:
        console.print_json(report.as_json())
    else:
        click.echo(report.as_text())
