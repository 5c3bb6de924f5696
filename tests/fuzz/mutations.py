"""Texts beside a seed: bytes of it changed, or values of the document that it is."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import yaml

__all__ = ["mutated"]

_TOKENS = [
    *(b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\t", b"#", b"---\n", b"\0", b"\xff", b"\xed\xa0\x80"),
    *(b"&a ", b"*a", b"? ", b"!!python/object:x ", b"!!binary x", b"!!set {}", b"!!timestamp 2001-99-99", b"<<: "),
    *(b"9" * 30, b"9" * 5000, b"1e400", b"-1", b"NaN", b".nan", b".inf", b"0x1", b"1:1:1", b"2001-99-99", b"null"),
    *(b"\\u0000", b"\\ud800", b"\xe2\x80\xa8", b"[" * 200, b"{[a]: b}", b"{? {a: b} : c}", b"- " * 100),
]  # fmt: skip

_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**63, 2**64, -(2**70), 10**400, 0.5, 1e308, float("inf"), float("nan")),
    *(
        "",
        "x",
        "\n",
        "\0",
        "\ud800",
        "x" * 5000,
        "1s",
        "60s",
        "1e9h",
        "200Mbit",
        "0bit",
        "127.0.0.1:0",
        "[::1]:1",
    ),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "../../etc/passwd", "http://[", "a" * 300),
    *([], [[]], {}, {"": None}, [None] * 50, {"x": {"x": {"x": []}}}),
]


def mutated(seed: bytes, source: random.Random) -> bytes:
    """Return a text near the seed."""
    if source.random() < 0.5:
        made = _changed_document(seed, source)
        if made is not None:
            return made if source.random() < 0.8 else _changed_bytes(made, source)
    return _changed_bytes(seed, source)


def _changed_bytes(seed: bytes, source: random.Random) -> bytes:
    text = bytearray(seed)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(text) + 1)
        kind = source.randrange(5)
        if kind == 0:
            text[at : at + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            text[at:at] = text[at : at + source.randrange(80)]
        elif kind == 2:
            del text[at : at + source.randrange(20)]
        else:
            text[at : at + source.randrange(6)] = source.choice(_TOKENS)
    return bytes(text[: 1 << 20])


def _changed_document(seed: bytes, source: random.Random) -> bytes | None:
    """Return the document with other values in a few places, or None if the seed is no document."""
    try:
        document, as_json = json.loads(seed), True
    except (ValueError, RecursionError):
        try:
            document, as_json = yaml.safe_load(seed), False
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError):  # all of PyYAML's
            return None
    document = copy.deepcopy(document)
    for _ in range(source.randint(1, 3)):
        document = _replaced(document, source)
    try:
        text = json.dumps(document) if as_json else yaml.safe_dump(document, allow_unicode=True)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None
    return text.encode("utf-8", "surrogatepass")


def _replaced(document: Any, source: random.Random) -> Any:
    """Replace, remove, double or rename something at a random place."""
    if not isinstance(document, (dict, list)) or not document or source.random() < 0.05:
        return copy.deepcopy(source.choice(_VALUES))
    key: Any = (
        source.choice(list(document)) if isinstance(document, dict) else source.randrange(len(document))
    )
    kind = source.random()
    if kind < 0.7:
        document[key] = _replaced(document[key], source)
    elif kind < 0.8:
        del document[key]
    elif isinstance(document, list):
        document.append(copy.deepcopy(document[key]))
    else:
        document[source.choice(["", "x", "\0", f"{key}s", 7, None])] = copy.deepcopy(document[key])
    return document
