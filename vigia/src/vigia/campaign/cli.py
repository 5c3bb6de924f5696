"""vigia campaign: list, show, run, resume, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click

__all__ = ["campaign"]

_directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("campaigns"),
    envvar="VIGIA_CAMPAIGNS",
    show_default=True,
    help="Folder with what was measured, one folder per campaign that was run.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_textfile_option = click.option(
    "--textfile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.prom",
    help="Keep the progress in this file, for node_exporter's textfile collector.",
)
_full_option = click.option("--full", is_flag=True, help="In the size of the study, not of a small machine.")


_influx_options = (
    click.option("--influx-url", help="Send every sample to this store as well (InfluxDB 2's write API)."),
    click.option("--influx-org", default="vigia", show_default=True, help="Organisation in the store."),
    click.option("--influx-bucket", default="vigia", show_default=True, help="Bucket in the store."),
    click.option(
        "--influx-token-file",
        type=click.Path(path_type=Path),
        help="File with the store's token; or set VIGIA_INFLUX_TOKEN.",
    ),
    click.option(
        "--influx-ca-file",
        type=click.Path(path_type=Path),
        help="Certificate of the authority that the store's certificate is of, in PEM.",
    ),
)


def _with_influx(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_influx_options):
        command = option(command)
    return command


def _actions() -> ModuleType:
    """Return what the commands do; loading it takes a second, which no other command should pay."""
    from vigia.campaign import actions  # noqa: PLC0415

    return actions


@click.group()
def campaign() -> None:
    """Planned measurements that answer a question, with their report."""


@campaign.command("list")
@_directory_option
@_json_option
def campaign_list(directory: Path, as_json: bool) -> None:
    """List the campaigns that come with the program, and what was measured."""
    _actions().listing(directory, as_json)


@campaign.command("show")
@click.argument("name", metavar="CAMPAIGN|FILE")
@_full_option
@_json_option
def campaign_show(name: str, full: bool, as_json: bool) -> None:
    """Show what a campaign would do: combinations, time, traffic. Measures nothing."""
    _actions().show(name, full, as_json)


@campaign.command("run")
@click.argument("name", metavar="CAMPAIGN|FILE")
@_full_option
@click.option("--dry-run", is_flag=True, help="Say what would be run, and stop.")
@click.option(
    "--topology",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measure on this lab, or on these real nodes, instead of the campaign's.",
)
@_with_influx
@_textfile_option
@_directory_option
@_json_option
def campaign_run(  # noqa: PLR0913 - one argument per option
    name: str,
    full: bool,
    dry_run: bool,
    topology: Path | None,
    directory: Path,
    textfile: Path | None,
    as_json: bool,
    influx_url: str | None,
    influx_org: str,
    influx_bucket: str,
    influx_token_file: Path | None,
    influx_ca_file: Path | None,
) -> None:
    """Measure. Ctrl-C stops after the repetition at work; vigia campaign resume goes on."""
    actions = _actions()
    store = actions.store(influx_url, influx_org, influx_bucket, influx_token_file, influx_ca_file)
    actions.run(name, full, dry_run, directory, as_json, store, textfile, topology)


@campaign.command("resume")
@click.argument("name", metavar="CAMPAIGN|FOLDER")
@click.option("--retry-failed", is_flag=True, help="Make failed repetitions again; their records are kept.")
@_with_influx
@_textfile_option
@_directory_option
@_json_option
def campaign_resume(  # noqa: PLR0913 - one argument per option
    name: str,
    retry_failed: bool,
    directory: Path,
    textfile: Path | None,
    as_json: bool,
    influx_url: str | None,
    influx_org: str,
    influx_bucket: str,
    influx_token_file: Path | None,
    influx_ca_file: Path | None,
) -> None:
    """Go on with a campaign that was interrupted, where it was; with a store, send what waits for it."""
    actions = _actions()
    store = actions.store(influx_url, influx_org, influx_bucket, influx_token_file, influx_ca_file)
    actions.resume(name, retry_failed, directory, as_json, store, textfile)


@campaign.command("report")
@click.argument("name", metavar="CAMPAIGN|FOLDER")
@click.option("--pdf/--no-pdf", default=True, help="Write a PDF as well.", show_default=True)
@_directory_option
@_json_option
def campaign_report(name: str, pdf: bool, directory: Path, as_json: bool) -> None:
    """Write the report of what was measured: one HTML page and a PDF."""
    _actions().report(name, pdf, directory, as_json)


@campaign.command("compare")
@click.argument("one", metavar="CAMPAIGN|FOLDER")
@click.argument("other", metavar="CAMPAIGN|FOLDER")
@click.option("--metric", help="Only this metric, for example rtt or throughput.")
@_directory_option
@_json_option
def campaign_compare(one: str, other: str, metric: str | None, directory: Path, as_json: bool) -> None:
    """Compare what two campaigns measured for the same combinations, with significance."""
    _actions().compare(one, other, metric, directory, as_json)
