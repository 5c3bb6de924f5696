"""Samples to a store with InfluxDB 2's write API; the campaign's folder is the spool.

A repetition is on disk before anything is sent, and waits there until the store
has taken it. Points carry their own time stamps, so sending
them twice changes nothing. However long the store is away, nothing is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vigia.campaign.engine import Progress
from vigia.campaign.folder import Folder
from vigia.campaign.samples import Record, Series
from vigia.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Spool", "Store", "lines", "store_from"]

BATCH = 5000
"""Points in one request."""

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_TIMEOUT_MS = 10_000
_ESCAPES = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ "})


@dataclass(frozen=True)
class Store:
    """Where points go."""

    url: str
    org: str
    bucket: str
    token: str
    ca_file: Path | None = None
    """The authority to trust; None: those that the machine trusts."""

    def __repr__(self) -> str:
        """Never shows the token."""
        return f"Store({self.url}, {self.org}, {self.bucket})"


def store_from(
    url: str, org: str, bucket: str, token_file: Path | None, ca_file: Path | None = None
) -> Store:
    """Return a store; the token comes from a file or from VIGIA_INFLUX_TOKEN. Raises VigiaError."""
    if not url.startswith(("http://", "https://")):
        raise OptionError(f'--influx-url "{url}" is not a URL; write for example http://127.0.0.1:8086')
    token = os.environ.get("VIGIA_INFLUX_TOKEN", "")
    if token_file:
        try:
            token = token_file.read_text().strip()
        except OSError as e:
            raise OptionError(f"--influx-token-file {token_file} cannot be read: {e.strerror}") from e
    if ca_file is not None and not ca_file.is_file():
        raise OptionError(f"--influx-ca-file {ca_file} is not there; name the authority's certificate in PEM")
    return Store(url, org, bucket, token, ca_file)


def lines(campaign: str, record: Record, samples: pa.Table) -> Iterator[str]:
    """Yield a repetition's samples in line protocol, one point a line, nanoseconds since 1970.

    Samples of a repetition are a microsecond apart in the order in which they
    were measured. A lost packet is a point with lost=1 and no value.
    """
    tags = {"campaign": campaign, "run": str(record.run), **{k: str(v) for k, v in record.factors.items()}}
    began = int(record.began * 1e9)
    columns = (samples[name].to_pylist() for name in ("metric", "connection", "sequence", "value"))
    for metric, connection, sequence, value in zip(*columns, strict=True):
        head = _head({**tags, "metric": metric, "connection": str(connection)})
        field = "lost=1i" if value is None else f"value={value!r}"
        yield f"{head} {field} {began + sequence * 1000}"


def _head(tags: Mapping[str, str]) -> str:
    return ",".join(["vigia_campaign", *_tags(tags)])


def _tags(tags: Mapping[str, str]) -> Iterable[str]:
    return (f"{k.translate(_ESCAPES)}={v.translate(_ESCAPES)}" for k, v in sorted(tags.items()) if v)


class Spool:
    """Sends what a campaign has recorded, in batches, again and again until it is taken.

    The campaign's own files are what waits; the file sent has the number of
    each repetition that the store took.
    """

    def __init__(self, folder: Folder, store: Store) -> None:
        self._folder = folder
        self._file = folder.path / "sent"
        self._sent = _numbers(self._file)
        self._store = store
        self._pause = _FIRST_PAUSE
        self._next = 0.0
        self.problem = ""
        """Why the last attempt failed; empty if it did not."""

    @property
    def waiting(self) -> int:
        """Repetitions that the store has not taken yet."""
        return len(self._records())

    def recorded(self, progress: Progress, series: list[Series]) -> None:
        """Send what waits, if it is time to try."""
        if time.monotonic() >= self._next:
            self._send()

    def drain(self, patience: float) -> int:
        """Send until nothing waits or so many seconds are over; return how many repetitions still wait."""
        deadline = time.monotonic() + patience
        while not self._send() and time.monotonic() < deadline:
            time.sleep(max(0.0, min(self._next, deadline) - time.monotonic()))
        return self.waiting

    def _records(self) -> list[Record]:
        return [r for r in self._folder.records if r.status == "done" and r.run not in self._sent]

    def _send(self) -> bool:
        """Send what waits; return whether all of it was taken."""
        records = self._records()
        if not records:
            return True
        try:
            with _client(self._store) as client:
                api = client.write_api(write_options=_synchronous())
                for record in records:
                    self._send_record(api, record)
        except Exception as e:  # whatever the client raises, the samples stay on disk
            self.problem = _reason(e)
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return False
        self.problem, self._pause, self._next = "", _FIRST_PAUSE, 0.0
        return True

    def _send_record(self, api: Any, record: Record) -> None:
        points = lines(self._folder.name, record, self._folder.samples_of(record.run))
        while batch := list(islice(points, BATCH)):
            api.write(bucket=self._store.bucket, org=self._store.org, record=batch)
        with self._file.open("a") as f:
            f.write(f"{record.run}\n")
        self._sent.add(record.run)


def _numbers(file: Path) -> set[int]:
    try:
        return {int(line) for line in file.read_text().split("\n")[:-1] if line.isdigit()}
    except FileNotFoundError:
        return set()


def _client(store: Store) -> Any:
    from influxdb_client.client.influxdb_client import InfluxDBClient  # noqa: PLC0415 - takes seconds to load

    return InfluxDBClient(
        url=store.url,
        token=store.token or "none",
        org=store.org,
        timeout=_TIMEOUT_MS,
        ssl_ca_cert=str(store.ca_file) if store.ca_file else None,
    )


def _synchronous() -> Any:
    from influxdb_client.client.write_api import SYNCHRONOUS  # noqa: PLC0415

    return SYNCHRONOUS


def _reason(e: Exception) -> str:
    status = getattr(e, "status", None)
    if status:
        return f"the store answered {status} {getattr(e, 'reason', '')}".strip()
    return f"the store cannot be reached: {type(e).__name__}"
