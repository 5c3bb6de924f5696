"""kubectl vigia: kubectl finds the program kubectl-vigia on PATH and runs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vigia.cli.options import Duration, json_option
from vigia.cli.tree import Tree
from vigia.errors import VigiaError
from vigia_service import cli
from vigia_service.exits import Exit

if TYPE_CHECKING:
    from vigia.kubectl.release import Release

__all__ = ["command", "explain", "main", "paths", "status", "top"]

COMMANDS = dict.fromkeys(("status", "paths", "top", "explain"), "vigia.cli.kubectl")
MOST_PROBES = 32
"""Probers that are asked for records at once: each takes a connection through the API server."""


@click.group("kubectl-vigia", cls=Tree, table=COMMANDS, context_settings=dict(cli.CONTEXT))
@click.version_option(package_name="vigia", prog_name="kubectl-vigia")
@click.option("--namespace", "-n", default="vigia", show_default=True, help="Where Vigia is installed.")
@click.option("--release", default="vigia", show_default=True, help="How its objects' names begin.")
@click.option("--context", "cluster", metavar="NAME", help="Cluster and user of the kubeconfig.")
@click.option("--kubeconfig", metavar="FILE", help="As kubectl takes it.")
@click.pass_context
def command(
    ctx: click.Context, namespace: str, release: str, cluster: str | None, kubeconfig: str | None
) -> None:
    """Vigia of a cluster: kubectl vigia COMMAND.

    Everything is reached through kubectl, with the rights that you have in the cluster.
    """
    from vigia.kubectl.release import Release

    given = (("--context", cluster), ("--kubeconfig", kubeconfig))
    ctx.obj = Release(namespace, release, tuple(w for k, v in given if v is not None for w in (k, v)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return cli.main(command, "kubectl-vigia", arguments)


@click.command()
@json_option
@click.pass_obj
def status(release: Release, as_json: bool) -> None:
    """Say whether all is ready, what fires, who is limited; exit 1 unless all is ready and nothing fires."""
    from dataclasses import asdict

    from vigia import console
    from vigia.kubectl import status as looking

    found = looking.look(release)
    if as_json:
        console.print_json({"well": found.well, **asdict(found)})
    else:
        click.echo("\n".join(found.lines()))
    if not found.well:
        click.get_current_context().exit(Exit.FAILED)


@click.command()
@json_option
@click.pass_obj
def paths(release: Release, as_json: bool) -> None:
    """Show what each path is made of, its delay and loss, and what it costs beside its twin."""
    from dataclasses import asdict

    from vigia import console
    from vigia.kubectl import paths as reading
    from vigia_prometheus import PrometheusError
    from vigia_prometheus.client import Prometheus

    try:
        with release.forwarded(release.service("prometheus"), 9090) as url, Prometheus(url) as server:
            found = reading.read(server)
    except PrometheusError as e:
        raise VigiaError(str(e)) from e
    if not found:
        raise VigiaError("Prometheus knows no path yet; wait for a scrape, and see kubectl vigia status")
    if as_json:
        console.print_json([{k: None if v != v else v for k, v in asdict(p).items()} for p in found])  # noqa: PLR0124 - not a number
    else:
        console.print_table(reading.HEADER, [p.row() for p in found])


@click.command()
@click.option("--once", is_flag=True, help="Print once and end; so it is where nobody watches, too.")
@click.option(
    "--every",
    type=Duration("1s", "10m", "5s or 1m"),
    default="5s",
    show_default=True,
    help="Time between two looks.",
)
@json_option
@click.pass_context
def top(ctx: click.Context, /, **options: object) -> None:
    """Show tenants and paths, worst first, and what is wrong now."""
    from vigia.cli import top as of_a_lab

    release: Release = ctx.obj
    with release.forwarded(release.service("compare"), 9875) as url:
        ctx.invoke(of_a_lab.top, name="", url=url, **options)


@click.command()
@click.argument("what", metavar="ACTION|ALERT|PATH")
@click.option("--src", metavar="NODE", help="Only records of this node's probers, and only these are asked.")
@click.option("--dst", metavar="NODE", help="Only records of targets on this node.")
@click.option("--tenant", help="Only records of this tenant.")
@click.option("--probe", metavar="CLASS", help="Only records of this class of probes.")
@click.option(
    "--last", type=click.IntRange(1, 20), default=1, show_default=True, help="So many records of each target."
)
@json_option
@click.pass_context
def explain(ctx: click.Context, /, what: str, src: str | None, **options: object) -> None:
    """Explain what happened, why, and on what evidence: an action, a firing alert, or a path."""
    from vigia.cli import explain as of_a_lab
    from vigia.explain.action import ACTION

    release: Release = ctx.obj
    with ExitStack() as stack:
        token = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vigia-"))) / "token"
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write(release.token("api-token"))
        agent = stack.enter_context(release.forwarded(release.service("isolation-agent"), 9874))
        prometheus: str | None = None
        urls: tuple[str, ...] = ()
        if ACTION.fullmatch(what) is None:
            prometheus = stack.enter_context(release.forwarded(release.service("prometheus"), 9090))
            urls = tuple(stack.enter_context(release.forwarded(pod, 9871)) for pod in _probers(release, src))
        ctx.invoke(
            of_a_lab.explain,
            what=what,
            name="",
            urls=urls,
            prometheus=prometheus,
            agent=agent,
            token_file=token,
            src=src,
            **options,
        )


def _probers(release: Release, node: str | None) -> list[str]:
    """Return the probers that are asked."""
    pods = [p for c in ("probe", "probe-pods") for p in release.own("pods", c)]
    found = [f"pod/{p['metadata']['name']}" for p in pods if node in (None, p["spec"].get("nodeName"))]
    if not found:
        raise VigiaError(
            "there is no prober" + (f" on node {node}; kubectl get nodes has the names" if node else "")
        )
    if len(found) > MOST_PROBES:
        raise VigiaError(
            f"there are {len(found)} probers, at most {MOST_PROBES} are asked; name a node: --src NODE"
        )
    return found
