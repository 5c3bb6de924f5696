"""Strict JSON: what is refused, that nothing else is, and that no input does worse than be refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

import vigia_json
from vigia_json import JsonError


class Switch(BaseModel):
    model_config = ConfigDict(extra="forbid")

    on: bool
    reason: str = ""


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_every_value_comes_through(value: Any) -> None:
    assert vigia_json.loads(json.dumps(value)) == value
    assert vigia_json.loads(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """And what is read is what others read: json.loads agrees."""
    try:
        value = vigia_json.loads(raw)
    except JsonError:
        return
    assert json.loads(raw) == value


@given(st.text(alphabet='{}[]",:0123456789eE+-.\\u dDnulltruefalseNaInfity', max_size=60))
def test_what_looks_like_json_is_read_alike_or_refused(text: str) -> None:
    try:
        value = vigia_json.loads(text)
    except JsonError:
        return
    assert json.dumps(json.loads(text)) == json.dumps(value)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b'{"on":false,"on":true}', 'key "on" appears twice; send it once'),
        (b'[{"a":{"x":1,"y":2,"x":3}}]', 'key "x" appears twice'),
        (b'{"\\u006fn":1,"on":2}', 'key "on" appears twice'),
        (b'{"a\\u001b[31m":1,"a\\u001b[31m":2}', 'key "a\\u001b[31m" appears twice'),
        (b"NaN", "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b"[1e999]", "the number 1e999 is too large"),
        (b"-1e400", "the number -1e400 is too large"),
        (b"1" * 41, "a number has 41 digits; send at most 40"),
        (b"1" * 5000, "a number has 5000 digits"),
        (b"[" * 33 + b"]" * 33, "nested deeper than 32 levels"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "nested deeper than 32 levels"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 32 levels"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
        (b'{"a":1} x', "not JSON: Extra data at line 1, column 9"),
        (b'{"a":1}\n{"a":1}', "not JSON: Extra data at line 2, column 1"),
        (b'{"a":1,}', "not JSON: "),
        (b"", "not JSON: Expecting value at line 1, column 1"),
        (b"{'a':1}", "not JSON: "),
        (b"\xff", "not UTF-8 at byte 0"),
        ("[1]".encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf[]", "not JSON: "),
        (b'"\x01"', "not JSON: Invalid control character"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'{"\\uDFFF":1}', "half of a surrogate pair"),
        ('"\ud800"', "not UTF-8"),
        (b'"' + b"x" * 16_777_215 + b'"', "larger than 16777216 bytes"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_what_is_refused(raw: bytes | str, problem: str) -> None:
    with pytest.raises(JsonError) as e:
        vigia_json.loads(raw)
    assert problem in str(e.value)
    assert len(str(e.value)) < 200, "an error never shows the whole input"


def test_whole_pairs_are_taken() -> None:
    assert vigia_json.loads(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_bounds_are_exact() -> None:
    assert vigia_json.loads("[" * 32 + "]" * 32)
    assert vigia_json.loads("[" * 3 + "]" * 3, max_depth=3)
    assert vigia_json.loads("123", max_size=3) == 123
    with pytest.raises(JsonError, match="larger than 2 bytes"):
        vigia_json.loads("123", max_size=2)
    with pytest.raises(JsonError, match="deeper than 2 levels"):
        vigia_json.loads('{"a":{"b":[]}}', max_depth=2)
    assert vigia_json.loads("1.7e308") == 1.7e308
    assert math.isfinite(vigia_json.loads("9" * 40))


def test_long_keys_are_shortened_in_errors() -> None:
    key = "k" * 1000
    with pytest.raises(JsonError) as e:
        vigia_json.loads(f'{{"{key}":1,"{key}":2}}')
    assert e.value.field == "k" * 60
    assert "k" * 61 not in str(e.value)


def test_a_model_is_read_strictly() -> None:
    assert vigia_json.model(b'{"on":true}', Switch) == Switch(on=True)
    for raw, field in (
        (b'{"on":"yes"}', "on"),
        (b'{"on":1}', "on"),
        (b"{}", "on"),
        (b'{"on":true,"off":true}', "off"),
        (b"[]", None),
        (b'{"on":false,"on":true}', "on"),
    ):
        with pytest.raises(JsonError) as e:
            vigia_json.model(raw, Switch)
        assert e.value.field == field
        assert (field or "the JSON") in str(e.value)
