"""Logs: one line a record, whatever is in it."""

from __future__ import annotations

import io
import json
import logging

import pytest

from vigia_service import logs


def lines(form: str, level: str = "info") -> tuple[io.StringIO, logging.Logger]:
    out = io.StringIO()
    logs.setup(form, level, out)
    return out, logging.getLogger("isolation_agent.test")


def test_logfmt() -> None:
    out, log = lines("logfmt")
    log.warning("limit in force", extra={"node": "lb1", "count": 3, "ok": True, "none": None})
    line = out.getvalue()
    assert line.startswith("time=20")
    assert line.endswith(
        ' level=WARN source=isolation_agent.test msg="limit in force" node=lb1 count=3 ok=true none=None\n'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("a\nlevel=ERROR msg=forged", '"a\\nlevel=ERROR msg=forged"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\u2028", '"\\u2028"'),
        ("back\\slash", '"back\\\\slash"'),
    ],
)
def test_nothing_ends_its_line_or_looks_like_a_field(value: str, shown: str) -> None:
    out, log = lines("logfmt")
    log.info("x", extra={"field": value})
    assert out.getvalue().endswith(f" field={shown}\n")
    assert len(out.getvalue().splitlines()) == 1


def test_json() -> None:
    out, log = lines("json")
    log.error("a %s", "b\nc", extra={"field": "d\ne"})
    (line,) = out.getvalue().splitlines()
    record = json.loads(line)
    assert (record["level"], record["msg"], record["field"]) == ("ERROR", "a b\nc", "d\ne")
    assert set(record) == {"time", "level", "source", "msg", "field"}


@pytest.mark.parametrize("form", logs.FORMATS)
def test_exceptions_stay_on_their_line(form: str) -> None:
    out, log = lines(form)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("broken")
    (line,) = out.getvalue().splitlines()
    assert "ZeroDivisionError" in line


def test_level() -> None:
    out, log = lines("logfmt", "warn")
    log.info("no")
    log.warning("yes")
    assert "yes" in out.getvalue()
    assert "no" not in out.getvalue().replace("source", "")


def test_requests_to_enforcers_are_not_logged_one_by_one() -> None:
    out, _ = lines("logfmt", "info")
    logging.getLogger("httpx").info("HTTP Request: GET ...")
    assert out.getvalue() == ""
