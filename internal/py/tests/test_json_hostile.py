"""Strict JSON against texts that somebody made to be read in two ways, or to cost a lot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

import vigia_json
from vigia_json import JsonError

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-1000, 1000) | KEYS
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    share: float = Field(ge=0.0, le=1.0)


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Item]
    dry: bool = False


def nested(value: str, path: list[str | None]) -> str:
    """Put a text into arrays (None) and objects (a key), the first outermost."""
    for key in reversed(path):
        value = f"[{value}]" if key is None else f"{{{json.dumps(key)}: {value}}}"
    return value


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


PATHS = st.lists(st.none() | KEYS, max_size=6)


@given(PATHS, KEYS, DOCUMENTS, DOCUMENTS)
def test_a_repeated_key_is_refused_wherever_it_is(
    path: list[str | None], key: str, one: Any, two: Any
) -> None:
    twice = (
        f"{{{json.dumps(key)}: {json.dumps(one)}, {json.dumps(key, ensure_ascii=False)}: {json.dumps(two)}}}"
    )
    with pytest.raises(JsonError, match="appears twice; send it once") as e:
        vigia_json.loads(nested(twice, path), max_depth=100)
    assert e.value.field == key


@given(PATHS, st.sampled_from(["NaN", "Infinity", "-Infinity", "1e309", "-1e309", "9" * 41]))
def test_a_number_that_is_none_is_refused_wherever_it_is(path: list[str | None], number: str) -> None:
    with pytest.raises(JsonError):
        vigia_json.loads(nested(number, path))


@given(PATHS, st.integers(0xD800, 0xDFFF), st.booleans())
def test_half_a_pair_is_refused_wherever_it_is(path: list[str | None], half: int, as_key: bool) -> None:
    text = f'"a\\u{half:04x}b"'
    with pytest.raises(JsonError, match="surrogate"):
        vigia_json.loads(nested(f"{{{text}: 1}}" if as_key else text, path))


@given(DOCUMENTS, st.integers(1, 8))
def test_the_bound_of_depth_is_exact(value: Any, most: int) -> None:
    text = json.dumps(value)
    if depth(value) <= most:
        assert vigia_json.loads(text, max_depth=most) == value
    else:
        with pytest.raises(JsonError, match=f"deeper than {most} levels"):
            vigia_json.loads(text, max_depth=most)


@given(DOCUMENTS)
def test_the_bound_of_size_is_in_bytes(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    size = len(text.encode())
    assert vigia_json.loads(text, max_size=size) == value
    with pytest.raises(JsonError, match=f"larger than {size - 1} bytes"):
        vigia_json.loads(text, max_size=size - 1)


@given(DOCUMENTS, st.data())
def test_a_text_that_breaks_off_is_refused(value: Any, data: st.DataObject) -> None:
    """Numbers alone are whole at any digit; in an array nothing is."""
    text = f"[{json.dumps(value)}]"
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(JsonError, match="not JSON"):
        vigia_json.loads(text[:cut])


@given(DOCUMENTS, st.sampled_from(["\x00", "\x0b", "\u00a0", "\ufeff", "//", "/* */", "#"]))
def test_what_is_no_white_space_of_json_is_refused(value: Any, odd: str) -> None:
    for text in (f"{odd}[{json.dumps(value)}]", f"[{json.dumps(value)}]{odd}", f"[{odd}{json.dumps(value)}]"):
        with pytest.raises(JsonError):
            vigia_json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * (1 << 20),
        '{"a":' * (1 << 18),
        "[" + "[]," * (1 << 18) + "[" * 40 + "]" * 40 + "]",
        "1" * (1 << 20),
        "-" + "9" * (1 << 20),
        '{"' + '\\"' * (1 << 19),
        "{" + ",".join(f'"{i}":{i}' for i in range(100_000)) + ',"0":1}',
    ],
    ids=lambda v: v[:10],
)
def test_a_megabyte_made_to_cost_is_refused(text: str) -> None:
    """If the cost grew with the square of the size, this would take minutes."""
    with pytest.raises(JsonError) as e:
        vigia_json.loads(text)
    assert len(str(e.value)) < 200


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ('{"items": [{"name": "a", "share": 1.5}]}', "items.0.share"),
        ('{"items": [{"name": "a", "share": "1"}]}', "items.0.share"),
        ('{"items": [{"name": "a", "share": 0.5}, {"name": 7, "share": 0.5}]}', "items.1.name"),
        ('{"items": {"name": "a"}}', "items"),
        ('{"items": [], "dry": 1}', "dry"),
        ('{"items": [], "dry": null}', "dry"),
        ('{"items": [], "other": "hunter2"}', "other"),
        ('{"items": ["hunter2"]}', "items.0"),
        ('"hunter2"', None),
        ("null", None),
        ('{"items": [{"name": "hunter2", "name": "b"}]}', "name"),
    ],
)
def test_a_wrong_field_is_named_and_its_value_is_not_shown(raw: str, field: str | None) -> None:
    with pytest.raises(JsonError) as e:
        vigia_json.model(raw, Order)
    assert e.value.field == field
    assert (field or "the JSON") in str(e.value)
    assert SECRET not in str(e.value)


@given(st.lists(st.tuples(KEYS, st.floats(0.0, 1.0)), max_size=5), st.booleans())
def test_a_model_comes_through(items: list[tuple[str, float]], dry: bool) -> None:
    order = Order(items=[Item(name=n, share=s) for n, s in items], dry=dry)
    assert vigia_json.model(order.model_dump_json(), Order) == order
    assert vigia_json.model(order.model_dump_json().encode(), Order) == order


def test_bounds_hold_for_models_too() -> None:
    with pytest.raises(JsonError, match="larger than 10 bytes"):
        vigia_json.model('{"items": []}', Order, max_size=10)
    with pytest.raises(JsonError, match="deeper than 1 levels"):
        vigia_json.model('{"items": []}', Order, max_depth=1)
