"""Samples in Parquet files: a row for each, with every factor of its repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vigia.campaign.samples import Record, Series

__all__ = ["joined", "read", "table", "write"]


def read(file: Path, run: int | None = None) -> pa.Table:
    """Return the samples of a file, or those of one repetition in it."""
    return pq.read_table(file, filters=None if run is None else [("run", "=", run)])


def write(samples: pa.Table, file: Path) -> None:
    """Write samples to a file."""
    pq.write_table(samples, file, compression="zstd")


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all samples of some tables; a factor that one has not is null there."""
    if not tables:
        return table(Record(0, 0, 0, {}, 0, 0, 0), [])
    return pa.concat_tables(tables, promote_options="default")


def table(record: Record, series: Sequence[Series]) -> pa.Table:
    """Return the samples of a repetition: run, cell, metric, value, every factor, and more.

    A packet that was lost has no value.
    """
    columns: dict[str, list[Any]] = {n: [] for n in ("metric", "unit", "connection", "sequence", "value")}
    for s in series:
        count = len(s.values)
        columns["metric"] += [s.metric] * count
        columns["unit"] += [s.unit] * count
        columns["connection"] += [s.connection] * count
        columns["sequence"] += range(count)
        columns["value"] += [None if math.isnan(v) else float(v) for v in s.values]
    rows = len(columns["value"])
    arrays: dict[str, pa.Array] = {
        "run": pa.array([record.run] * rows, pa.int32()),
        "block": pa.array([record.block] * rows, pa.int32()),
        "cell": pa.array([record.cell] * rows, pa.int32()),
        "metric": pa.array(columns["metric"], pa.string()),
        "unit": pa.array(columns["unit"], pa.string()),
        "connection": pa.array(columns["connection"], pa.int32()),
        "sequence": pa.array(columns["sequence"], pa.int32()),
        "value": pa.array(columns["value"], pa.float64()),
    }
    for name, level in record.factors.items():
        arrays[f"factor_{name}"] = pa.array([str(level)] * rows, pa.string())
    return pa.table(arrays)
