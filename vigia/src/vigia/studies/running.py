"""Running campaigns, going on with them, and their reports."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from vigia.campaign import engine, folder, influx, model
from vigia.campaign.folder import Folder
from vigia.campaign.influx import Store
from vigia.campaign.model import Campaign
from vigia.campaign.testbed import Testbed, lab_testbed
from vigia.campaign.textfile import Textfile
from vigia.campaign.watch import Watcher
from vigia.console import Steps
from vigia.errors import Interrupted, VigiaError
from vigia.host import environment
from vigia.host.signals import deferred
from vigia.host.source import source_root
from vigia.lab import preflight
from vigia.nodes.testbed import nodes_testbed
from vigia.nodes.topology import describes_nodes
from vigia.studies import catalogue, outlines

__all__ = ["begin", "go_on", "write_report"]

_PATIENCE = 60.0
"""Seconds in which a store may take what waits, once everything is measured."""


def begin(  # noqa: PLR0913 - one argument per option
    wanted: Campaign,
    full: bool,
    topology: str,
    directory: Path,
    steps: Steps,
    store: Store | None,
    textfile: Path | None,
) -> Folder:
    """Measure a campaign in the lab, or on the nodes, of a topology's text. Raises VigiaError.

    Ctrl-C stops it after the repetition at work.
    """
    _check_rights(topology)
    about = {"environment": environment.describe(_source()), "topology": topology}
    new = folder.create(directory, wanted, full, about)
    _give_back(new.path)
    steps.line(f"raw data, manifest and report go to {new.path}")
    _measure(new, steps, store, textfile)
    return new


def go_on(
    present: Folder, retry_failed: bool, steps: Steps, store: Store | None, textfile: Path | None
) -> None:
    """Go on with a campaign that was interrupted, where it was. Raises VigiaError."""
    _check_rights(present.manifest["topology"])
    if retry_failed:
        with present.locked():
            steps.line(f"{present.forget_failed()} failed repetitions will be made again")
    _measure(present, steps, store, textfile)


def _measure(present: Folder, steps: Steps, store: Store | None, textfile: Path | None) -> None:
    now = outlines.state(present)
    if now["done"] == now["total"]:
        steps.line(f"{present.name} is complete: {now['total']} repetitions")
    else:
        _execute(present, steps, store, textfile)
    if store:
        _deliver(present, steps, store)


def _deliver(present: Folder, steps: Steps, store: Store) -> None:
    """Send what still waits, for a minute."""
    spool = influx.Spool(present, store)
    with steps.step(f"sending samples to {store.url}") as done:
        left = spool.drain(patience=_PATIENCE)
        again = f"vigia campaign resume {present.name} --influx-url {store.url}"
        done.append(
            f"{left} repetitions wait in {present.path}: {spool.problem}; send them: {again}"
            if left
            else f"{store.url} has every sample"
        )


def _execute(present: Folder, steps: Steps, store: Store | None, textfile: Path | None) -> None:
    progress = [Textfile(textfile, present)] if textfile else []
    measurement = catalogue.study(present.campaign.study).measurement
    try:
        with (
            present.locked(),
            deferred() as stop,
            engine.finished(present),
            _testbed(present.manifest["topology"], steps) as here,
            Watcher(steps, present) as watcher,
        ):
            catalogue.check_testbed(present.campaign, present.plan, here)
            present.update(state="running", bed=here.description)
            spools = [influx.Spool(present, store)] if store else []
            listeners: list[engine.Listener] = [watcher, *spools, *progress]
            engine.execute(present, measurement.measure, here, stop, listeners)
    except Interrupted as e:
        raise Interrupted(f"{e}; go on with: vigia campaign resume {present.name}") from e
    finally:
        _give_back(present.path)
    failed = [r for r in present.records if r.status == "failed"]
    for record in failed:
        steps.line(f"failed: {model.shown(record.factors)}: {record.reason}")
    total = len(present.records)
    steps.line(f"{present.name} is complete: {total - len(failed)} repetitions done, {len(failed)} failed")


def _testbed(text: str, steps: Steps) -> AbstractContextManager[Testbed]:
    """Return what the topology describes: a lab, or real nodes."""
    return nodes_testbed(text, steps) if describes_nodes(text) else lab_testbed(text, steps)


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


def write_report(present: Folder, *, pdf: bool) -> tuple[str, list[Path]]:
    """Write the report of what was measured; return its answer and its files. Raises VigiaError."""
    from vigia.report import build  # noqa: PLC0415 - draws figures, which takes a second to load

    study = catalogue.study(present.campaign.study)
    scale = study.measurement.scale(present.plan.settings)
    document = build.assemble(present, study.report, scale)
    files = build.write(present, document, pdf=pdf)
    _give_back(present.path)
    return document.answer, files
