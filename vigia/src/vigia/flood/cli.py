"""vigia flood."""

from __future__ import annotations

import click

from vigia import console
from vigia.flood import order, run
from vigia.lab import preflight, state
from vigia.lab.cli import lab_option

__all__ = ["flood"]


@click.command()
@lab_option
@click.option("--tenant", required=True, help="Tenant that floods, for example red.")
@click.option("--path", required=True, help="Path that it floods on, for example linuxbridge-vxlan.")
@click.option(
    "--from", "node", metavar="NODE", help="Node that it floods from; the first one on the path if left out."
)
@click.option("--to", metavar="ADDRESS", help="Endpoint of the tenant that is flooded; its peer if left out.")
@click.option("--rate", required=True, help="Rate of UDP payload, for example 400Mbit; at most 1Gbit.")
@click.option("--seconds", type=float, required=True, help=f"Duration; at most {order.MAX_SECONDS:g}.")
@click.option("--size", type=int, default=1400, show_default=True, help="Bytes of UDP payload in a packet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def flood(  # noqa: PLR0913 - one argument per option
    name: str,
    tenant: str,
    path: str,
    node: str | None,
    to: str | None,
    rate: str,
    seconds: float,
    size: int,
    as_json: bool,
) -> None:
    """Send UDP to random ports of a tenant's own endpoint: bounded, and never out of the lab."""
    wanted = order.make(
        state.running(name).lab,
        tenant=tenant,
        path=path,
        node=node,
        to=to,
        rate=rate,
        seconds=seconds,
        size=size,
    )
    preflight.check_rights()
    report = run.run(wanted)
    if as_json:
        console.print_json(report.as_json())
    else:
        click.echo(report.as_text())
