"""vigia campaign: list, show, run, resume, report, compare."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vigia.cli.options import cloud_option, json_option, steps_of
from vigia_service.cli import Group

if TYPE_CHECKING:
    from vigia.campaign.influx import Store
    from vigia.campaign.model import Size

__all__ = ["campaign"]

_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("campaigns"),
    envvar="VIGIA_CAMPAIGNS",
    show_default=True,
    help="Results; each run of a campaign has a folder in it.",
)
_textfile_option = click.option(
    "--textfile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.prom",
    help="Write the progress to this file, for node_exporter's textfile collector.",
)
_size_option = click.option(
    "--size",
    type=click.Choice(["smoke", "standard", "full"]),
    default="standard",
    show_default=True,
    help="smoke: shows that it runs, in minutes; standard: answers on a small machine; full: as published.",
)


_influx_options = (
    click.option("--influx-url", help="Also send every sample to this store (InfluxDB 2 write API)."),
    click.option("--influx-org", default="vigia", show_default=True, help="Organisation of the bucket."),
    click.option("--influx-bucket", default="vigia", show_default=True, help="Bucket in the store."),
    click.option(
        "--influx-token-file",
        type=click.Path(path_type=Path),
        help="File with the store's token; or set VIGIA_INFLUX_TOKEN.",
    ),
    click.option(
        "--influx-ca-file",
        type=click.Path(path_type=Path),
        help="CA certificate of the store, in PEM.",
    ),
)


def _with_influx(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_influx_options):
        command = option(command)
    return command


def _store(
    influx_url: str | None,
    influx_org: str,
    influx_bucket: str,
    influx_token_file: Path | None,
    influx_ca_file: Path | None,
) -> Store | None:
    """Return the store that the options name, None for none. Raises VigiaError."""
    from vigia.campaign import influx

    if not influx_url:
        return None
    return influx.store_from(influx_url, influx_org, influx_bucket, influx_token_file, influx_ca_file)


@click.group(cls=Group)
def campaign() -> None:
    """Run planned measurements and report them."""


@campaign.command("list")
@_directory_option
@json_option
def campaign_list(directory: Path, as_json: bool) -> None:
    """List the campaigns and their results."""
    from vigia import console
    from vigia.campaign import folder
    from vigia.studies import catalogue, outlines

    known, measured = catalogue.shipped(), [outlines.state(f) for f in folder.list_folders(directory)]
    if as_json:
        campaigns = [{"name": c.name, "title": c.title, "question": c.question} for c in known]
        console.print_json({"campaigns": campaigns, "measured": measured})
        return
    console.print_table(["campaign", "question"], [[c.name, c.question] for c in known])
    if measured:
        rows = [[s["name"], s["state"], f"{s['done']} of {s['total']}", s["failed"]] for s in measured]
        header = [f"measured, in {directory}", "state", "repetitions", "failed"]
        click.echo()
        console.print_table(header, rows)


@campaign.command("show")
@click.argument("name", metavar="CAMPAIGN|FILE")
@_size_option
@json_option
def campaign_show(name: str, size: Size, as_json: bool) -> None:
    """Show what a campaign would do and find: time, traffic, power."""
    from vigia import console
    from vigia.studies import catalogue, outlines

    wanted, _ = catalogue.find(name)
    plan = wanted.plan(size)
    outline = outlines.outline(wanted, plan)
    if as_json:
        console.print_json({**outline, "cells": plan.cells()})
        return
    click.echo(f"{wanted.title}: {wanted.question}")
    click.echo(outlines.preview(wanted, plan))
    names = list(dict.fromkeys(name for cell in plan.cells() for name in cell))
    console.print_table(names, [[cell.get(n, "") for n in names] for cell in plan.cells()])
    click.echo()
    console.print_table(outlines.ABILITY_HEADER, outlines.abilities(wanted, plan))


@campaign.command("run")
@click.argument("name", metavar="CAMPAIGN|FILE")
@_size_option
@click.option("--dry-run", is_flag=True, help="Show what would run, and exit.")
@click.option(
    "--topology",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measure on this lab, or on these real nodes, instead of the campaign's own.",
)
@cloud_option
@_with_influx
@_textfile_option
@_directory_option
@json_option
def campaign_run(  # noqa: PLR0913 - one argument per option
    name: str,
    size: Size,
    dry_run: bool,
    topology: Path | None,
    cloud: str,
    directory: Path,
    textfile: Path | None,
    as_json: bool,
    **influx: Any,
) -> None:
    """Run a campaign.

    With --cloud and without --topology it is run on those of its paths that the cloud has.
    A plan that cannot separate what its hypotheses ask is refused, unless it is only a smoke run.
    Ctrl-C stops it after the current repetition; vigia campaign resume continues it.
    """
    from vigia import console
    from vigia.lab.clouds import PLAIN
    from vigia.studies import catalogue, clouds, outlines, running

    store = _store(**influx)
    wanted, file = catalogue.find(name)
    text = catalogue.topology_text(str(topology.absolute()) if topology else wanted.topology, file)
    if cloud != PLAIN and topology is None:
        wanted, text = clouds.fit(wanted, text, cloud)
    plan = wanted.plan(size)
    outline = outlines.outline(wanted, plan)
    if size != "smoke":
        catalogue.check_design(wanted, plan)
    steps = steps_of(as_json)
    steps.line(f"{wanted.name}: {outlines.preview(wanted, plan)}")
    if dry_run:
        if as_json:
            console.print_json(outline)
        return
    made = running.begin(wanted, size, text, directory, steps, store, textfile, cloud)
    if as_json:
        console.print_json({**outlines.state(made), "directory": str(made.path)})


@campaign.command("resume")
@click.argument("name", metavar="CAMPAIGN|FOLDER")
@click.option("--retry-failed", is_flag=True, help="Repeat the failed repetitions; their records are kept.")
@_with_influx
@_textfile_option
@_directory_option
@json_option
def campaign_resume(
    name: str,
    retry_failed: bool,
    directory: Path,
    textfile: Path | None,
    as_json: bool,
    **influx: Any,
) -> None:
    """Resume a campaign that was interrupted.

    With --influx-url, samples that the store does not have yet are sent, too.
    """
    from vigia import console
    from vigia.campaign import folder
    from vigia.studies import outlines, running

    store = _store(**influx)
    present = folder.latest(directory, name)
    running.go_on(present, retry_failed, steps_of(as_json), store, textfile)
    if as_json:
        console.print_json({**outlines.state(present), "directory": str(present.path)})


@campaign.command("report")
@click.argument("name", metavar="CAMPAIGN|FOLDER")
@click.option("--pdf/--no-pdf", default=True, help="Write a PDF as well.", show_default=True)
@click.option(
    "--beside",
    multiple=True,
    metavar="CAMPAIGN|FOLDER",
    help="Put into the same report what this run of the campaign measured of other paths; may be repeated.",
)
@_directory_option
@json_option
def campaign_report(name: str, pdf: bool, beside: tuple[str, ...], directory: Path, as_json: bool) -> None:
    """Write the report of what was measured, as HTML and PDF.

    With --beside it is of several runs, such as one for each cloud, and stays in the folder of the first.
    """
    from vigia import console
    from vigia.campaign import folder
    from vigia.studies import running

    present = folder.latest(directory, name)
    with console.Steps(sys.stderr).step("writing the report") as done:
        done.append("")  # shown on a terminal while it lasts
        others = [folder.latest(directory, other) for other in beside]
        answer, files = running.write_report(present, pdf=pdf, beside=others)
    if as_json:
        console.print_json({"answer": answer, "files": [str(f) for f in files]})
        return
    click.echo(answer)
    for file in files:
        click.echo(f"wrote {file}")


@campaign.command("compare")
@click.argument("one", metavar="CAMPAIGN|FOLDER")
@click.argument("other", metavar="CAMPAIGN|FOLDER")
@click.option("--metric", help="Only this metric, for example rtt or throughput.")
@_directory_option
@json_option
def campaign_compare(one: str, other: str, metric: str | None, directory: Path, as_json: bool) -> None:
    """Compare two runs of campaigns, with significance."""
    from vigia import console
    from vigia.campaign import folder
    from vigia.report import pairing

    rows = pairing.pairs(folder.latest(directory, one), folder.latest(directory, other), metric)
    if as_json:
        console.print_json([row.as_json() for row in rows])
        return
    console.print_table(pairing.HEADER, [row.as_text() for row in rows])
