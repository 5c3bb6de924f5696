"""What the commands of vigia campaign do."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import click

from vigia import console
from vigia.campaign import bed, catalogue, engine, folder, influx, model
from vigia.campaign.bed import Bed
from vigia.campaign.folder import Folder
from vigia.campaign.influx import Store
from vigia.campaign.model import Campaign, Plan
from vigia.campaign.textfile import Textfile
from vigia.campaign.watch import Watcher
from vigia.console import Steps
from vigia.errors import Interrupted, VigiaError
from vigia.host import environment
from vigia.host.signals import deferred
from vigia.lab import preflight
from vigia.nodes.bed import nodes_bed
from vigia.nodes.topology import describes_nodes
from vigia.report import build, pairing
from vigia.stack.places import source_root

__all__ = ["compare", "listing", "report", "resume", "run", "show", "store"]


def listing(directory: Path, as_json: bool) -> None:
    """List the campaigns that come with the program, and what was measured."""
    known, measured = model.shipped(), folder.list_folders(directory)
    if as_json:
        console.print_json(
            {
                "campaigns": [{"name": c.name, "title": c.title, "question": c.question} for c in known],
                "measured": [_state(f) for f in measured],
            }
        )
        return
    click.echo(console.table(["campaign", "question"], [[c.name, c.question] for c in known]))
    if measured:
        rows = [
            [s["name"], s["state"], f"{s['done']} of {s['total']}", s["failed"]]
            for s in map(_state, measured)
        ]
        click.echo(
            "\n" + console.table([f"measured, in {directory}", "state", "repetitions", "failed"], rows)
        )


def _state(f: Folder) -> dict[str, object]:
    plan = f.plan
    return {
        "name": f.name,
        "state": f.manifest["state"],
        "done": sum(r.status == "done" for r in f.records),
        "failed": sum(r.status == "failed" for r in f.records),
        "total": len(plan.cells()) * plan.stop.repetitions,
    }


def show(name: str, full: bool, as_json: bool) -> None:
    """Show what a campaign would do: combinations, time, traffic. Measures nothing."""
    wanted, _ = model.find(name)
    plan = wanted.plan(full)
    catalogue.check(wanted, plan)
    if as_json:
        console.print_json({**_outline(wanted, plan), "cells": plan.cells()})
        return
    click.echo(f"{wanted.title}: {wanted.question}")
    click.echo(_preflight(wanted, plan))
    names = list(dict.fromkeys(name for cell in plan.cells() for name in cell))
    click.echo(console.table(names, [[cell.get(n, "") for n in names] for cell in plan.cells()]))


def _outline(wanted: Campaign, plan: Plan) -> dict[str, object]:
    cost = catalogue.cost(wanted, plan)
    return {
        "campaign": wanted.name,
        "question": wanted.question,
        "combinations": len(plan.cells()),
        "repetitions": plan.stop.repetitions,
        "seconds": round(cost.seconds),
        "traffic_bytes_at_most": round(cost.bytes),
    }


def _preflight(wanted: Campaign, plan: Plan) -> str:
    cost = catalogue.cost(wanted, plan)
    cells, times = len(plan.cells()), plan.stop.repetitions
    scaled = f"; {scale}" if (scale := catalogue.scale(wanted.study, plan.settings)) else ""
    until = f", fewer once {plan.stop.metric} is known to {plan.stop.until:.0%}" if plan.stop.until else ""
    return (
        f"{cells} combinations, {times} repetitions each{until}: {cells * times} runs, order {wanted.order}, "
        f"about {_time(cost.seconds)}, at most {cost.bytes / 1e9:.3g} GB of traffic{scaled}"
    )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def run(  # noqa: PLR0913 - one argument per option
    name: str,
    full: bool,
    dry_run: bool,
    directory: Path,
    as_json: bool,
    store: Store | None,
    textfile: Path | None = None,
    topology: Path | None = None,
) -> None:
    """Measure. Ctrl-C stops after the repetition at work; vigia campaign resume goes on."""
    wanted, file = model.find(name)
    plan = wanted.plan(full)
    catalogue.check(wanted, plan)
    text = bed.topology_text(str(topology.absolute()) if topology else wanted.topology, file)
    steps = Steps(sys.stderr if as_json else sys.stdout)
    steps.line(f"{wanted.name}: {_preflight(wanted, plan)}")
    if dry_run:
        if as_json:
            console.print_json(_outline(wanted, plan))
        return
    _check_rights(text)
    about = {"environment": environment.describe(_source()), "topology": text}
    new = folder.create(directory, wanted, full, about)
    _give_back(new.path)
    steps.line(f"raw data, manifest and report go to {new.path}")
    _measure(new, steps, as_json, store, textfile)


def resume(  # noqa: PLR0913 - one argument per option
    name: str,
    retry_failed: bool,
    directory: Path,
    as_json: bool,
    store: Store | None,
    textfile: Path | None = None,
) -> None:
    """Go on with a campaign that was interrupted, where it was."""
    present = folder.latest(directory, name)
    steps = Steps(sys.stderr if as_json else sys.stdout)
    _check_rights(present.manifest["topology"])
    if retry_failed:
        with present.locked():
            steps.line(f"{present.forget_failed()} failed repetitions will be made again")
    _measure(present, steps, as_json, store, textfile)


def store(
    url: str | None, org: str, bucket: str, token_file: Path | None, ca_file: Path | None
) -> Store | None:
    """Return the store that the options name, None for none. Raises VigiaError."""
    return influx.store_from(url, org, bucket, token_file, ca_file) if url else None


def _measure(
    present: Folder, steps: Steps, as_json: bool, store: Store | None, textfile: Path | None
) -> None:
    state = _state(present)
    if state["done"] == state["total"]:
        steps.line(f"{present.name} is complete: {state['total']} repetitions")
    else:
        _execute(present, steps, store, textfile)
    if store:
        _deliver(present, steps, store)
    if as_json:
        console.print_json({**_state(present), "directory": str(present.path)})


def _deliver(present: Folder, steps: Steps, store: Store) -> None:
    """Send what still waits, for a minute."""
    spool = influx.Spool(present, store)
    left = spool.drain(patience=60.0)
    if left:
        again = f"vigia campaign resume {present.name} --influx-url {store.url}"
        steps.line(f"{left} repetitions wait in {present.path}: {spool.problem}; send them: {again}")
    else:
        steps.line(f"{store.url} has every sample")


def _execute(present: Folder, steps: Steps, store: Store | None, textfile: Path | None) -> None:
    progress = [Textfile(textfile, present)] if textfile else []
    try:
        with (
            present.locked(),
            deferred() as stop,
            engine.finished(present),
            _bed(present.manifest["topology"], steps) as here,
            Watcher(steps, present) as watcher,
        ):
            catalogue.check_bed(present.campaign, present.plan, here)
            present.update(state="running", bed=here.description)
            spools = [influx.Spool(present, store)] if store else []
            engine.execute(present, here, stop, [watcher, *spools, *progress])
    except Interrupted as e:
        raise Interrupted(f"{e}; go on with: vigia campaign resume {present.name}") from e
    finally:
        _give_back(present.path)
    failed = [r for r in present.records if r.status == "failed"]
    for record in failed:
        steps.line(f"failed: {model.shown(record.factors)}: {record.reason}")
    total = len(present.records)
    steps.line(f"{present.name} is complete: {total - len(failed)} repetitions done, {len(failed)} failed")


def _bed(text: str, steps: Steps) -> AbstractContextManager[Bed]:
    """Return what the topology describes: a lab, or real nodes."""
    return nodes_bed(text, steps) if describes_nodes(text) else bed.lab_bed(text, steps)


def _check_rights(text: str) -> None:
    """Raise VigiaError if a lab is to be made by somebody who may not; real nodes have their agents."""
    if not describes_nodes(text):
        preflight.check_rights()


def _source() -> Path | None:
    with suppress(VigiaError):
        return source_root()
    return None


def _give_back(path: Path) -> None:
    """Make the files those of the user who ran sudo."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if not (uid.isdigit() and gid.isdigit()):
        return
    for file in (path.parent, path, *path.rglob("*")):
        os.chown(file, int(uid), int(gid), follow_symlinks=False)


def report(name: str, pdf: bool, directory: Path, as_json: bool) -> None:
    """Write the report of what was measured: one HTML page and a PDF."""

    present = folder.latest(directory, name)
    document = build.document(present)
    files = build.write(present, pdf=pdf)
    _give_back(present.path)
    if as_json:
        console.print_json({"answer": document.answer, "files": [str(f) for f in files]})
        return
    click.echo(document.answer)
    for file in files:
        click.echo(f"wrote {file}")


def compare(one: str, other: str, metric: str | None, directory: Path, as_json: bool) -> None:
    """Compare what two campaigns measured for the same combinations, with significance."""
    rows = pairing.pairs(folder.latest(directory, one), folder.latest(directory, other), metric)
    if as_json:
        console.print_json([row.as_json() for row in rows])
        return
    click.echo(console.table(pairing.HEADER, [row.as_text() for row in rows]))
