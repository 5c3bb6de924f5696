"""Numbers, tables and terminals as people see them."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vigia_text import numbers, terminal
from vigia_text.tables import table
from vigia_text.terminal import clean, cut, fold, hang, paint, wants_colour, width, width_of


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (numbers.seconds(69e-6), "69.0 µs"),
        (numbers.seconds(0.00219), "2.19 ms"),
        (numbers.seconds(12.345), "12.3 s"),
        (numbers.seconds(3600), "3 600 s"),
        (numbers.seconds(5e-9), "5.00 ns"),
        (numbers.seconds(5e-12), "0.00500 ns"),
        (numbers.seconds(7e-16), "0.000001 ns"),
        (numbers.seconds(5e-20), "0 ns"),
        (numbers.seconds(0), "0 s"),
        (numbers.bits_per_second(0), "0 bit/s"),
        (numbers.quantity(0, "bytes_per_second"), "0 bit/s"),
        (numbers.size(0), "0 B"),
        (numbers.times(1.26), "1.3"),
        (numbers.times(9.94), "9.9"),
        (numbers.times(9.96), "10"),
        (numbers.times(261.4), "261"),
        (numbers.times(math.nan), "–"),
        (numbers.span(0, 0, "bytes"), "0 to 0 B"),
        (numbers.seconds(-69e-6), "-69.0 µs"),
        (numbers.seconds(0.9999), "1.00 s"),
        (numbers.seconds(9.999e-4), "1.00 ms"),
        (numbers.seconds(math.nan), "–"),
        (numbers.seconds(math.inf), "–"),
        (numbers.bits_per_second(1.32e9), "1.32 Gbit/s"),
        (numbers.bits_per_second(640), "640 bit/s"),
        (numbers.size(1536), "1.50 KiB"),
        (numbers.size(12 << 20), "12.0 MiB"),
        (numbers.count(1_234_567), "1 234 567"),
        (numbers.count(math.nan), "–"),
        (numbers.percent(0.125), "12.5 %"),
        (numbers.percent(0.00012), "0.0120 %"),
        (numbers.probability(0.0004), "<0.001"),
        (numbers.probability(0.04), "0.040"),
        (numbers.probability(1.0), "1.000"),
        (numbers.probability(math.nan), "–"),
        (numbers.quantity(1e7, "bytes_per_second"), "80.0 Mbit/s"),
        (numbers.quantity(1e7, "bit/s"), "10.0 Mbit/s"),
        (numbers.quantity(0.01, "ratio"), "1.00 %"),
        (numbers.quantity(69e-6, "seconds"), "69.0 µs"),
        (numbers.quantity(36711, "packets/s"), "36 711 packets/s"),
        (numbers.quantity(math.nan, "s"), "–"),
        (numbers.difference(69e-6, "seconds"), "+69.0 µs"),
        (numbers.difference(-69e-6, "seconds"), "-69.0 µs"),
        (numbers.difference(math.nan, "seconds"), "–"),
        (numbers.interval(1e-3, 5e-4, 2e-3, "s"), "1.00 [0.500, 2.00] ms"),
        (numbers.interval(0.01, 0, 0.02, "ratio"), "1.00 [0, 2.00] %"),
        (numbers.interval(1.0, -math.inf, 2.0, "s"), "1.00 [2.00 or less] s"),
        (numbers.interval(math.nan, 0, 0, "s"), "–"),
        (numbers.span(65e-6, 74e-6, "seconds"), "65.0 to 74.0 µs"),
        (numbers.span(1e6, 1.2e6, "bytes_per_second"), "8.00 to 9.60 Mbit/s"),
    ],
)
def test_numbers(shown: str, expected: str) -> None:
    assert shown == expected


UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@given(st.floats(1e-8, 1e6))
def test_three_digits_say_the_value(value: float) -> None:
    number, unit = re.fullmatch(r"([\d. ]+) (\S+)", numbers.seconds(value)).groups()  # type: ignore[union-attr]
    assert float(number.replace(" ", "")) * UNITS[unit] == pytest.approx(value, rel=0.006)
    assert unit == "s" or float(number) < 1000


@example(sys.float_info.max, "things")
@example(5e-324, "s")
@given(st.floats(), st.sampled_from(["s", "ratio", "bytes", "bytes_per_second", "bit/s", "things"]))
def test_every_float_can_be_written(value: float, unit: str) -> None:
    for text in (
        numbers.quantity(value, unit),
        numbers.difference(value, unit),
        numbers.interval(value, value, value, unit),
        numbers.span(value, value, unit),
    ):
        assert text and "nan" not in text and "inf" not in text


# Tables


def test_columns_are_aligned_numbers_to_the_right() -> None:
    assert table(
        ("path", "median", "verdict"), [("direct", "9.10 µs", "tie"), ("ovs", "123 µs", "direct")]
    ).splitlines() == [
        "path     median  verdict",
        "direct  9.10 µs  tie",
        "ovs      123 µs  direct",
    ]
    assert table(("a", "b"), [], indent=2) == "  a  b"


@pytest.mark.parametrize(
    "cell", ["1", "-1.5", "+3 ms", "12 345", "1.5 %", "<0.001", "–", "-", "9.10 µs", "3 Gbit/s"]
)
def test_what_is_a_number(cell: str) -> None:
    assert table(("header title",), [(cell,)]).splitlines()[1].endswith(f" {cell}")


@pytest.mark.parametrize("cell", ["a1", "n/a", "1 to 2 µs", "10.0.0.1/24 net work"])
def test_what_is_none(cell: str) -> None:
    assert table(("header title",), [(cell,)]).splitlines()[1] == cell


def test_wide_and_combining_letters_keep_columns_aligned() -> None:
    names = ("ab", "日本", "e\N{COMBINING ACUTE ACCENT}x", "\N{GRINNING FACE}")
    lines = table(("tenant", "state"), [(n, "up") for n in names]).splitlines()
    assert {width_of(line.removesuffix("up")) for line in lines[1:]} == {8}


def test_a_cell_cannot_write_to_the_terminal() -> None:
    text = table(("tenant",), [("\x1b[2J\x07red\nfake  line\u202e",)])
    assert text.splitlines()[1:] == ["\\x1b[2J\\x07red\\nfake  line\\u202e"]


def test_a_table_fits_a_terminal_and_leaves_nothing_out() -> None:
    rows = [("a" * 60, "12.5 %", "b" * 30), ("c", "1 %", "d")]
    for columns in (80, 60, 40):
        text = table(("name", "share", "reason"), rows, width=columns)
        assert max(map(width_of, text.splitlines())) <= columns
        assert "12.5 %" in text and (text.count("a"), text.count("b")) == (63, 30)
    assert len(table(("name", "share", "reason"), rows, width=120).splitlines()) == 3
    assert "12.5 %" in table(("name", "share", "reason"), rows, width=1), "too narrow for any table"


def test_a_column_of_text_is_folded_between_words() -> None:
    rows = [
        ("gre - vxlan", "-99 %", "-99.9 to -94.6 %", "not known yet, gre is ahead"),
        ("gre", "+1 %", "–", "costs"),
    ]
    assert table(("pair", "by", "interval", "verdict"), rows, width=50).splitlines() == [
        "pair            by  interval          verdict",
        "gre - vxlan  -99 %  -99.9 to -94.6 %  not known",
        "                                      yet, gre is",
        "                                      ahead",
        "gre           +1 %  –                 costs",
    ]
    assert table(("name", "state"), [("ovs-openflow-set-priority", "up")], width=20).splitlines() == [
        "name           state",
        "ovs-openflow-  up",
        "set-priority",
    ]


NO_NUMBER = st.text(max_size=20).map(lambda text: "x" + text)


@given(st.lists(st.tuples(NO_NUMBER, NO_NUMBER), max_size=5), st.integers(20, 80))
def test_any_text_makes_a_table(rows: list[tuple[str, str]], columns: int) -> None:
    lines = table(("one", "two"), rows, width=columns).split("\n")
    assert len(lines) >= 1 + len(rows)
    assert all(line.isprintable() and width_of(line) <= columns for line in lines)
    shown = sorted("".join(lines).replace(" ", ""))
    assert shown == sorted("onetwo" + "".join(clean(c) for row in rows for c in row).replace(" ", ""))


def test_cutting() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 4) == "abc…"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 0) == ""
    assert clean("tab\there") == "tab\\there"


def test_folding() -> None:
    assert fold("two words", 9) == ["two words"]
    assert fold("two words", 8) == ["two", "words"]
    assert fold("two words", 3) == ["two", "wor", "ds"]
    assert fold("linuxbridge-vxlan-local - gre", 18) == ["linuxbridge-vxlan-", "local - gre"]
    assert fold("日本語", 4) == ["日本", "語"]
    assert fold("", 4) == [""]
    assert fold("ab", 0) == ["a", "b"], "at least a letter is shown"


@given(st.text().map(clean), st.integers(-1, 30))
def test_folding_leaves_nothing_out(text: str, columns: int) -> None:
    lines = fold(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(width_of(line) <= max(columns, 2) for line in lines)


def test_long_lines_hang() -> None:
    text = "What to do: find what takes the processors.\n  Runbook: docs/runbooks/VigiaHostBusy.md\n\nshort"
    assert hang(text, 24).splitlines() == [
        "What to do: find what",
        "  takes the processors.",
        "  Runbook:",
        "    docs/runbooks/VigiaHostBusy.md",
        "",
        "short",
    ]
    assert hang(text, None) == text, "files have no end"
    assert hang(text, 10) == text, "too narrow for any"
    assert hang(text, 200) == text


# Terminals


@pytest.fixture
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOBase]:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        yield stream
    os.close(leader)


def test_colours_are_for_terminals(a_terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    assert wants_colour(a_terminal) and not wants_colour(file)
    assert paint("up", "green", a_terminal) == "\x1b[32mup\x1b[0m"
    assert paint("up", "green", file) == "up"
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(a_terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_colour(file)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(file), "NO_COLOR has the last word"
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    assert paint("up", "red", a_terminal) == "up"


def test_a_width_is_a_terminals(a_terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert width(a_terminal) == 77
    assert width(io.StringIO()) is None
    closed = io.StringIO()
    closed.close()
    assert width(closed) is None and not wants_colour(closed)


def test_every_colour_has_a_code() -> None:
    assert set(terminal._CODES) == set(terminal.Colour.__args__)  # type: ignore[attr-defined]
