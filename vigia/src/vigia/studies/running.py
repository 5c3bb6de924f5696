"""Running campaigns, going on with them, and their reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vigia.campaign import engine, folder, influx, model
from vigia.campaign.folder import Folder
from vigia.campaign.influx import Store
from vigia.campaign.model import Campaign, Size
from vigia.campaign.testbed import Testbed, lab_testbed
from vigia.campaign.textfile import Textfile
from vigia.campaign.watch import Watcher
from vigia.console import Steps
from vigia.errors import Interrupted, VigiaError
from vigia.host import environment
from vigia.host.signals import deferred
from vigia.host.source import source_root
from vigia.lab import preflight
from vigia.lab.clouds import PLAIN
from vigia.nodes.testbed import nodes_testbed
from vigia.nodes.topology import describes_nodes
from vigia.studies import catalogue, outlines

if TYPE_CHECKING:
    from vigia.report.document import Document

__all__ = ["begin", "document", "go_on", "write_report"]

_PATIENCE = 60.0
"""Seconds in which a store may take what waits, once everything is measured."""


def begin(  # noqa: PLR0913 - one argument per option
    wanted: Campaign,
    size: Size,
    topology: str,
    directory: Path,
    steps: Steps,
    store: Store | None,
    textfile: Path | None,
    cloud: str = PLAIN,
) -> Folder:
    """Measure a campaign in the lab, or on the nodes, of a topology's text. Raises VigiaError.

    cloud is what controls the lab's network. Ctrl-C stops it after the repetition at work.
    """
    _check_rights(topology)
    about = {"environment": environment.describe(_source()), "topology": topology, "cloud": cloud}
    new = folder.create(directory, wanted, size, about)
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
            _testbed(present.manifest, steps) as here,
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


def _testbed(manifest: Mapping[str, Any], steps: Steps) -> AbstractContextManager[Testbed]:
    """Return what the topology describes: a lab, or real nodes."""
    text: str = manifest["topology"]
    if describes_nodes(text):
        return nodes_testbed(text, steps)
    return lab_testbed(text, steps, manifest.get("cloud", PLAIN))


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


def document(present: Folder, beside: Sequence[Folder] = ()) -> Document:
    """Return the report of what was measured, and of runs beside it. Raises VigiaError if nothing was."""
    from vigia.report import build  # noqa: PLC0415 - draws figures, which takes a second to load

    study = catalogue.study(present.campaign.study)
    measurement = study.measurement
    basis = build.Basis(
        study.report,
        catalogue.hypotheses(present.campaign),
        measurement.described(present.plan.settings),
        measurement.completed,
    )
    return build.assemble(present, basis, beside)


def write_report(present: Folder, *, pdf: bool, beside: Sequence[Folder] = ()) -> tuple[str, list[Path]]:
    """Write the report of what was measured; return its answer and its files. Raises VigiaError."""
    from vigia.report import build  # noqa: PLC0415

    made = document(present, beside)
    files = build.write(present, made, pdf=pdf)
    _give_back(present.path)
    return made.answer, files
