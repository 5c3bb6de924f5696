"""A campaign's folder: manifest, one record and one Parquet file per repetition, and their union.

A repetition's samples are renamed into place before its record is, and the
record is what makes it count: a crash at any moment loses the repetition that
was being made and no other.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vigia.campaign.model import SIZES, Campaign, Plan, Size
from vigia.campaign.samples import Record, Series
from vigia.errors import VigiaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Folder", "create", "latest", "list_folders", "open_folder"]

_VERSION = 2
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}-(\d{8}T\d{6}Z)(?:-(\d+))?")


class Folder:
    """Where everything about one campaign is kept."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.campaign = Campaign.model_validate(manifest["campaign"])
        self.size: Size = next(s for s in SIZES if s == manifest["size"])
        self._records: dict[int, Record] = _read_records(path)

    @property
    def plan(self) -> Plan:
        """The size that is run."""
        return self.campaign.plan(self.size)

    @property
    def name(self) -> str:
        """Name of the folder, which names this run of the campaign."""
        return self.path.name

    @property
    def records(self) -> list[Record]:
        """The repetitions that were made or failed, in the order of the plan."""
        return [self._records[number] for number in sorted(self._records)]

    def record(self, run: int) -> Record | None:
        """Return what became of a repetition, if it was made."""
        return self._records.get(run)

    def forget_failed(self) -> int:
        """Take failed repetitions as not made, keeping their records beside; return how many."""
        failed = [r for r in self.records if r.status == "failed"]
        for record in failed:
            file = self.path / "runs" / f"{record.run:06d}.json"
            kept = file.with_name(f"{record.run:06d}.failed-{int(record.began)}.json")
            file.rename(kept)
            del self._records[record.run]
        return len(failed)

    def add(self, record: Record, series: Sequence[Series]) -> None:
        """Keep a repetition, durably: afterwards it counts."""
        if series:
            parquet = _parquet()
            target = self.path / "samples" / f"{record.run:06d}.parquet"
            new = target.with_suffix(".new")
            parquet.write(parquet.table(record, series), new)
            _durable(new, target)
        self._write_json(self.path / "runs" / f"{record.run:06d}.json", asdict(record))
        self._records[record.run] = record

    def samples(self) -> pa.Table:
        """Return all samples, a row each: run, block, cell, metric, unit, connection, every factor."""
        parquet = _parquet()
        merged = self.path / "samples.parquet"
        tables = [parquet.read(merged)] if merged.exists() else []
        covered = set(tables[0]["run"].unique().to_pylist()) if tables else set()
        for record in self.records:
            part = self.path / "samples" / f"{record.run:06d}.parquet"
            if record.status == "done" and record.run not in covered and part.exists():
                tables.append(parquet.read(part))
        return parquet.joined(tables)

    def samples_of(self, run: int) -> pa.Table:
        """Return the samples of one repetition."""
        part = self.path / "samples" / f"{run:06d}.parquet"
        if part.exists():
            return _parquet().read(part)
        return _parquet().read(self.path / "samples.parquet", run)

    def merge(self) -> None:
        """Put all samples into one file, and remove the parts."""
        if not self.records:
            return
        samples = self.samples()
        target = self.path / "samples.parquet"
        new = target.with_suffix(".new")
        _parquet().write(samples, new)
        _durable(new, target)
        for part in (self.path / "samples").glob("*.parquet"):
            part.unlink()

    def update(self, **values: Any) -> None:
        """Change entries of the manifest."""
        self.manifest.update(values)
        self._write_json(self.path / "manifest.json", self.manifest)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one command. Raises VigiaError if another has it."""
        with (self.path / ".lock").open("a+") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as e:
                raise VigiaError(f"campaign {self.name} is being run by another command; wait for it") from e
            self._records = _read_records(self.path)
            yield

    @staticmethod
    def _write_json(path: Path, value: Mapping[str, Any]) -> None:
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps(value, indent=1) + "\n")
        _durable(new, path)


def _parquet() -> ModuleType:
    """Return what reads and writes samples; loading it takes a moment that a list of campaigns need not."""
    from vigia.campaign import parquet  # noqa: PLC0415

    return parquet


def create(root: Path, campaign: Campaign, size: Size, manifest: Mapping[str, Any]) -> Folder:
    """Make the folder of a new campaign below root. Raises VigiaError."""
    campaign.plan(size)
    began = datetime.now(UTC)
    name = f"{campaign.name}-{began:%Y%m%dT%H%M%SZ}"
    path = root / name
    for further in range(1, 100):
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            path = root / f"{name}-{further}"
        except OSError as e:
            raise VigiaError(f"{path} cannot be made: {e.strerror}; choose another --directory") from e
    for part in ("runs", "samples"):
        (path / part).mkdir()
    content = {
        "version": _VERSION,
        "began": began.isoformat(timespec="seconds"),
        "state": "running",
        "size": size,
        "campaign": campaign.model_dump(mode="json"),
        **manifest,
    }
    folder = Folder(path, content)
    folder.update()
    return folder


def open_folder(path: Path) -> Folder:
    """Open a campaign's folder. Raises VigiaError."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        if manifest["version"] == 1:
            manifest = _of_version_1(manifest)
        if manifest["version"] != _VERSION:
            raise VigiaError(f"{path} was written by another version of vigia; use that one")
        return Folder(path, manifest)
    except FileNotFoundError as e:
        raise VigiaError(f"{path} is not the folder of a campaign: {e.filename} is missing") from e
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as e:
        raise VigiaError(f"{path}/manifest.json cannot be read: {e}") from e


def _of_version_1(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest as today's are: it had a small and a full size, and no hypotheses."""
    campaign = dict(manifest["campaign"])
    campaign["standard"] = campaign.pop("small")
    size = "full" if manifest["full"] else "standard"
    kept = {k: v for k, v in manifest.items() if k != "full"}
    return {**kept, "version": _VERSION, "size": size, "campaign": campaign}


def list_folders(root: Path) -> list[Folder]:
    """Return the campaigns below root, oldest first."""
    named = [(m, p) for p in root.glob("*") if (m := _NAME.fullmatch(p.name))]
    found = sorted((m[1], int(m[2] or 0), p.name, p) for m, p in named if (p / "manifest.json").exists())
    return [open_folder(path) for *_, path in found]


def latest(root: Path, wanted: str) -> Folder:
    """Return a campaign's latest folder by its name, or a folder by its own. Raises VigiaError."""
    for path in (root / wanted, Path(wanted)):
        if (path / "manifest.json").exists():
            return open_folder(path)
    found = [f for f in list_folders(root) if f.campaign.name == wanted]
    if not found:
        raise VigiaError(
            f'nothing was measured yet for "{wanted}" in {root}; run: vigia campaign run {wanted}'
        )
    return found[-1]


def _read_records(path: Path) -> dict[int, Record]:
    """Read the records: one file each, or all in one where a campaign was published. Raises VigiaError."""
    if not (path / "runs").is_dir() and (path / "runs.json").exists():
        return {r.run: r for r in _records_of(path / "runs.json")}
    # A name with more than a number is a failed attempt that was made again.
    files = [f for f in (path / "runs").glob("[0-9]*.json") if f.stem.isdigit()]
    return {r.run: r for file in files for r in _records_of(file)}


def _records_of(file: Path) -> list[Record]:
    """Read a file of one record, or of a list of them. Raises VigiaError."""
    try:
        given = json.loads(file.read_text())
        listed = given if isinstance(given, list) else [given]
        return [Record(**{**one, "load": tuple(one["load"])}) for one in listed]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise VigiaError(f"{file} is not a record of a repetition: {e}") from e


def _durable(new: Path, target: Path) -> None:
    with new.open("rb") as f:
        os.fsync(f.fileno())
    new.replace(target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
