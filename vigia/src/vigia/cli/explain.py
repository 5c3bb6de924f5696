"""vigia explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vigia.cli.options import json_option, lab_option
from vigia.errors import OptionError, VigiaError

if TYPE_CHECKING:
    from vigia.explain.nodes import Found
    from vigia_prometheus.client import Prometheus

__all__ = ["explain"]


@click.command()
@click.argument("what", metavar="PATH|ALERT")
@lab_option
@click.option(
    "--url", "urls", multiple=True, metavar="URL", help="Probe to ask; repeatable. Default: all of the lab."
)
@click.option(
    "--prometheus",
    metavar="URL",
    help="Server that knows the probes and the alerts; default: the Prometheus of the lab's stack.",
)
@click.option("--src", metavar="NODE", help="Only records of this node's probe.")
@click.option("--dst", metavar="NODE", help="Only records of targets on this node.")
@click.option("--tenant", help="Only records of this tenant.")
@click.option("--probe", metavar="CLASS", help="Only records of this class of probes.")
@click.option(
    "--last",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    help="So many records of each target.",
)
@json_option
def explain(  # noqa: PLR0913 - one argument per option
    what: str,
    name: str,
    urls: tuple[str, ...],
    prometheus: str | None,
    last: int,
    as_json: bool,
    **labels: str | None,
) -> None:
    """Explain what happened when a path turned bad.

    Prints what the probes recorded at that moment, beside the last good record: the hops that packets still
    passed, the path MTU, the class of service that arrived, the state of the host. PATH is the name of a
    path, ALERT that of a firing alert, for example VigiaPathLoss.
    """
    from vigia import console
    from vigia.explain import nodes

    selection = {k: v for k, v in labels.items() if v is not None}
    is_alert = nodes.ALERT.fullmatch(what) is not None
    ask_prometheus = is_alert or (prometheus is not None and not urls)
    server = _server(name, prometheus) if ask_prometheus else None
    selections = [selection | {"path": what}]
    addresses = [_base(u) for u in urls]
    if server is not None:
        with server:
            if is_alert:
                selections = [dict(found) | selection for found in nodes.alerts(server, what)]
                if not selections:
                    raise VigiaError(
                        f"{server.url} knows no firing alert {what} of a path; write the path's name"
                    )
            if not addresses and prometheus is not None:
                addresses = nodes.probes(server)
    if not addresses and prometheus is None:
        addresses = _of_the_lab(name)
    if not addresses:
        raise VigiaError(f"{prometheus} scrapes no vigia-probe; name one: --url http://NODE:9871")
    found = nodes.ask(addresses, selections, limit=100)
    for problem in found.problems:
        click.echo(f"vigia: cannot ask a probe: {problem}", err=True)
    _keep_last(found, last)
    if as_json:
        console.print_json({"moments": [m for _, m in found.moments], "good": [m for _, m in found.good]})
        return
    _print(found, what)


def _base(url: str) -> str:
    from vigia_config.urls import base_url

    try:
        return base_url(url, "a probe", "http://127.0.0.1:9871")
    except ValueError as e:
        raise OptionError(f'--url "{url}" {e}') from e


def _server(name: str, url: str | None) -> Prometheus:
    from vigia.lab import state
    from vigia.stack import places
    from vigia_prometheus import client

    if url is None:
        return client.Prometheus(f"http://{places.stack_address(state.running(name).lab, 9090)}")
    try:
        return client.Prometheus(url)
    except ValueError as e:
        raise OptionError(f'--prometheus "{url}" {e}') from e


def _of_the_lab(name: str) -> list[str]:
    from vigia.lab import state
    from vigia.stack import places

    lab = state.running(name).lab
    return [f"http://{places.agent_address(lab, node.name, 'vigia-probe')}" for node in lab.nodes]


def _keep_last(found: Found, last: int) -> None:
    """Keep the newest records of each target."""
    seen: dict[tuple[str, ...], int] = {}
    kept = []
    for moment, text in found.moments:
        seen[moment.target] = seen.get(moment.target, 0) + 1
        if seen[moment.target] <= last:
            kept.append((moment, text))
    found.moments = kept


def _print(found: Found, what: str) -> None:
    from vigia.explain import sentences

    if not found.moments and not found.good:
        raise VigiaError(
            f"none of {found.asked} probes has a record of {what}; they are made when a path turns bad, "
            "and of good ones every moments.good_interval"
        )
    if not found.moments:
        click.echo(f"No bad moment of {what} is remembered. The last good records:")
    blocks = [sentences.explain(m) for m, _ in found.moments or found.good]
    click.echo("\n\n".join("\n".join([lines[0], *(f"  {line}" for line in lines[1:])]) for lines in blocks))
