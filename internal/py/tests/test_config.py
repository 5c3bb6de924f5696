"""Strict configuration: what is accepted and what each error says."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import model_validator

from vigia_config import MAX_SIZE, ConfigError, Rate, Seconds, Strict, absolute, fault, load, parse
from vigia_config.urls import base_url


class Target(Strict):
    address: str
    size: int = 64


class Sample(Strict):
    name: str
    rate: Rate = 0
    wait: Seconds = 1.0
    targets: list[Target] = []

    @model_validator(mode="after")
    def _sizes(self) -> "Sample":
        for i, target in enumerate(self.targets):
            if target.size > 1500:
                raise fault(("targets", i, "size"), f"{target.size} is too large", "write at most 1500")
        return self


def test_accepts() -> None:
    got = parse("f.yaml", "name: lb1\nrate: 200Mbit\nwait: 500ms\ntargets: [{address: a}]\n", Sample)
    assert got == Sample.model_construct(
        name="lb1", rate=25_000_000, wait=0.5, targets=[Target(address="a", size=64)]
    )


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("# nothing\n", "f.yaml: the file is empty"),
        ("name: [\n", "f.yaml:2: not YAML"),
        ("name: a\ntargts: []\n", 'f.yaml:2: unknown key "targts"; known here: name, rate, targets, wait'),
        (
            "name: a\ntargets:\n  - address: b\n    addr: x\n",
            'f.yaml:4: unknown key "addr"; known here: address, size',
        ),
        ("name: a\nname: b\n", 'f.yaml:2: key "name" appears twice (first in line 1); keep one'),
        ("rate: 1Gbit\n", "f.yaml:1: name: is missing"),
        ("name: a\nrate: 200MB\n", 'f.yaml:2: rate: "200MB": is not a rate; write for example 200Mbit'),
        ("name: a\nwait: 5\n", 'f.yaml:2: wait: "5": is not a duration'),
        (
            "name: a\ntargets:\n  - address: x\n    size: big\n",
            'f.yaml:4: targets[0].size: "big": input should be a valid integer',
        ),
        (
            "name: a\ntargets:\n  - address: x\n    size: 9000\n",
            "f.yaml:4: targets[0].size: 9000 is too large; write at most 1500",
        ),
        ("- a\n", "f.yaml:1: input should be a valid dictionary"),
        ("&a [*a]\n", "f.yaml"),
        ("name: a\n{[a]: b}: c\n", "f.yaml:2: a key is a list or a mapping; write a name"),
        ("name: a\n? [a]\n: b\n", "f.yaml:2: a key is a list or a mapping; write a name"),
        ("name: 2001-99-99\n", "f.yaml: not YAML: month must be in 1..12"),
        ("name: !!timestamp x\n", "f.yaml: not YAML"),
        ("name: !!int x\n", "f.yaml: not YAML: invalid literal"),
        (f"name: a\nrate: {'9' * 5000}\n", "f.yaml: not YAML: Exceeds the limit"),
        (f"name: a\nrate: 0x{'f' * 5000}\n", 'f.yaml:2: rate: "a number that is too large": is not a rate'),
        (f"name: a\nrate: {'x' * 5000}\n", f'rate: "{"x" * 200}...": is not a rate'),
    ],
)
def test_errors_name_line_field_and_fix(raw: str, want: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse("f.yaml", raw, Sample)
    assert want in str(e.value)


def test_absolute_paths() -> None:
    class Files(Strict):
        file: Annotated[Path, absolute("/var/lib/x")]

    assert parse("f.yaml", "file: /a\n", Files).file == Path("/a")
    with pytest.raises(ConfigError) as e:
        parse("f.yaml", "file: a\n", Files)
    assert str(e.value) == 'f.yaml:1: file: "a": is not an absolute path; write for example /var/lib/x'


def test_all_errors_are_reported() -> None:
    with pytest.raises(ConfigError) as e:
        parse("f.yaml", "nam: a\nrate: x\n", Sample)
    assert len(str(e.value).splitlines()) == 3


def test_load(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "absent.yaml", Sample)
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (MAX_SIZE + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load(big, Sample)
    good = tmp_path / "good.yaml"
    good.write_text("name: x\n")
    assert load(good, Sample).name == "x"


@pytest.mark.parametrize(
    ("text", "value"), [("8bit", 1), ("64kbit", 8000), ("1.5Mbit", 187_500), ("1Gbit", 125_000_000)]
)
def test_rate(text: str, value: int) -> None:
    assert parse("f", f"name: a\nrate: {text}\n", Sample).rate == value


@pytest.mark.parametrize(("text", "value"), [("250ms", 0.25), ("10s", 10.0), ("2m", 120.0), ("1.5h", 5400.0)])
def test_seconds(text: str, value: float) -> None:
    assert parse("f", f"name: a\nwait: {text}\n", Sample).wait == value


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://x?a=b", "http://x#a", "http://a:b@x", "http://x y", "http://x\n", "x:9090"],
)  # fmt: skip
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not the URL of a server; write for example http://h:1") as e:
        base_url(url, "a server", "http://h:1")
    assert "a:b" not in str(e.value)


def test_urls() -> None:
    assert base_url("http://[::1]:9090/", "x", "y") == "http://[::1]:9090"
    assert base_url("https://host/select/0/prometheus/", "x", "y") == "https://host/select/0/prometheus"
