"""Structured logs to stderr, as logfmt or JSON, one record per line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from isolation_agent.clock import rfc3339

__all__ = ["FORMATS", "LEVELS", "setup"]

FORMATS = ("logfmt", "json")
LEVELS = ("debug", "info", "warn", "error")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVEL = {"WARNING": "WARN", "CRITICAL": "ERROR"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
        "level": _LEVEL.get(record.levelname, record.levelname),
        "source": record.name,
        "msg": record.getMessage(),
    }
    fields |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
    if record.exc_info:
        fields["err"] = logging.Formatter().formatException(record.exc_info)
    return fields


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), default=str)


class _Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{k}={_quoted(v)}" for k, v in _fields(record).items())


def _quoted(value: object) -> str:
    """Quote so that no value can end its line or look like another field."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text and text.isascii() and text.isprintable() and not set(text) & set(' ="\\'):
        return text
    return json.dumps(text)


_FORMATTERS: Mapping[str, type[logging.Formatter]] = {"logfmt": _Logfmt, "json": _Json}


def setup(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to stderr (or stream) in the format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format]())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel({"warn": "WARNING"}.get(level, level.upper()))
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
