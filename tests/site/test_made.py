"""What the reference pages are made of: alerts, labels, keys, decisions, requests."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

import pytest
import yaml
from alertkit import rules
from labkit import ROOT
from pydantic import Field

import generate
import vigia_catalog
from isolation_agent.web.openapi import openapi
from made import alerts, configuration, decisions, go_structs, http_api, labels
from made.routes import GO_PROGRAMS, PYTHON_PROGRAMS, Route, application, routes
from vigia_config import Rate, Seconds, Strict


def test_every_alert_has_its_row_and_leads_to_its_runbook() -> None:
    page = alerts.markdown(ROOT)
    named = re.findall(r"^\| \[(\w+)\]\(\.\./runbooks/(\w+)\.md\)", page, re.MULTILINE)
    assert all(name == file for name, file in named)
    assert sorted(name for name, _ in named) == sorted(rule["alert"] for rule in rules("alert"))
    assert "{{" not in page and "$labels" not in page
    (row,) = (line for line in page.splitlines() if "[VigiaUdpFlood]" in line)
    assert "| critical | auto | at once | A tenant floods with UDP | Check in the console" in row


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Loss of {{ $labels.src }}", "Loss of SRC"),
        ("down{{ with $labels.node }} on {{ . }}{{ end }}; why", "down on …; why"),
        ("a | b", r"a \| b"),
    ],
)
def test_annotations_without_their_templates(text: str, plain: str) -> None:
    assert alerts._plain(text) == plain


def test_a_file_of_rules_without_a_title_is_found(tmp_path: Path) -> None:
    (tmp_path / "alert-rules").mkdir()
    rule = (
        "{alert: A, expr: up, labels: {severity: info, isolate: never}, annotations: {summary: a, action: b}}"
    )
    (tmp_path / "alert-rules/new.rules.yml").write_text(f"groups: [{{name: n, rules: [{rule}]}}]")
    with pytest.raises(KeyError, match="new"):
        alerts.markdown(tmp_path)


def test_every_label_is_explained() -> None:
    page = labels.markdown()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    declared = {label for metric in vigia_catalog.load().values() for label in metric.labels}
    assert set(rows) == declared
    assert all(rows.values()), "neither a meaning nor values"
    assert rows["objective"] == "`delay`, `jitter`"
    assert "`vigia_port_bytes_total`" in page or "exporter" in page


def test_many_values_are_counted() -> None:
    metric = vigia_catalog.Metric(
        "m", "gauge", "", ("x",), "", "probe", {"x": tuple(f"v{i:02}" for i in range(14))}
    )
    row = labels.markdown({"m": metric}).splitlines()[-1]
    assert row.startswith("| `x` | `v00`, ") and "`v11` and 2 more | `m` |" in row
    many = {str(i): vigia_catalog.Metric(f"m{i}", "gauge", "", ("x",), "", "probe") for i in range(4)}
    assert labels.markdown(many).splitlines()[-1].endswith("| 4: probe |")


def decision(folder: Path, number: int, more: str = "") -> None:
    (folder / f"{number:04}-d{number}.md").write_text(
        f"# {number}. Decision {number}\n\n{more}\n\n**Context.** x\n"
    )


def test_the_status_of_a_decision_follows_from_later_ones(tmp_path: Path) -> None:
    decision(tmp_path, 1)
    decision(tmp_path, 2)
    decision(tmp_path, 3, "**Replaces** [ADR 1](0001-d1.md).\n**Amends** [ADR 2](0002-d2.md).")
    rows = decisions.markdown(tmp_path).splitlines()[-3:]
    assert rows == [
        "| 1 | [Decision 1](0001-d1.md) | replaced by [3](0003-d3.md) |",
        "| 2 | [Decision 2](0002-d2.md) | accepted, amended by [3](0003-d3.md) |",
        "| 3 | [Decision 3](0003-d3.md) | accepted |",
    ]


def test_decisions_have_numbers_of_their_own(tmp_path: Path) -> None:
    decision(tmp_path, 1)
    (tmp_path / "0001-again.md").write_text("# 1. Again\n")
    with pytest.raises(ValueError, match="two decisions have the number 1"):
        decisions.markdown(tmp_path)
    (tmp_path / "0001-again.md").write_text("# 2. Again\n")
    with pytest.raises(ValueError, match=r"0001-again\.md does not begin with '# 1\. '"):
        decisions.markdown(tmp_path)


class Inner(Strict):
    """In a list."""

    rate: Rate = 1
    """What it carries."""


class Outer(Strict):
    """A file."""

    every: Seconds = 90.0
    """Time between two looks,
    in words of two lines."""
    kind: Literal["a", "b"] | None = None
    """Which."""
    names: dict[str, float] = {}
    """By name."""
    inner: list[Inner] = Field(min_length=1)
    """Several."""
    on: bool = True
    """Whether."""


class Silent(Strict):
    """A file with a key that nobody explains."""

    key: int


def test_keys_are_told_from_the_model() -> None:
    assert list(configuration.keys(Outer)) == [
        "| `every` | duration | `90s` | Time between two looks, in words of two lines. |",
        "| `kind` | `a`, `b` | none | Which. |",
        "| `names` | map of number | none | By name. |",
        "| `inner[]` | list of mapping (at least 1) | required | Several. |",
        "| `inner[].rate` | rate | `1` | What it carries. |",
        "| `on` | true or false | `true` | Whether. |",
    ]
    with pytest.raises(ValueError, match=r"Silent\.key is not explained"):
        list(configuration.keys(Silent))


GO = """package p

import (
	"vigia/internal/config"
	inner "vigia/b"
)

// File is a file.
type File struct {
	Embedded `yaml:",inline"`
	Each     []inner.Each `yaml:"each"` // what | there is.

	// Above says what
	// it is.
	Above kind `yaml:"above"`
	other int
}

type Embedded struct {
	Every *config.Duration `yaml:"every"` // time between two
	N     uint32           `yaml:"n"`     // how many
}

type kind string
"""


def test_keys_of_go_are_told_from_structs_and_their_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_structs, "ROOT", tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/a.go").write_text(GO)
    (tmp_path / "a/a_test.go").write_text('package p\n\ntype File struct {\n\tX int `yaml:"x"`\n}\n')
    (tmp_path / "b/b.go").write_text(
        'package inner\n\ntype Each struct {\n\tOn bool `yaml:"on"` // whether\n}\n'
    )
    go_structs._package.cache_clear()
    try:
        assert list(go_structs.keys("a", "File")) == [
            "| `every` | duration | time between two |",
            "| `n` | integer | how many |",
            r"| `each[]` | list of mapping | what \| there is |",
            "| `each[].on` | true or false | whether |",
            "| `above` | text | Above says what it is |",
        ]
        (tmp_path / "b/b.go").write_text('package inner\n\ntype Each struct {\n\tOn bool `yaml:"on"`\n}\n')
        go_structs._package.cache_clear()
        with pytest.raises(ValueError, match="b: Each has a key on that no comment explains"):
            list(go_structs.keys("a", "File"))
    finally:
        go_structs._package.cache_clear()


@pytest.mark.parametrize(
    ("readme", "section"), [("exporters/tenant", "exporter"), ("isolation-agent/enforcer", "enforcer")]
)
def test_every_key_of_the_examples_is_listed(readme: str, section: str) -> None:
    page = configuration.markdown().partition(f"## vigia-{section}\n")[2].partition("\n## ")[0]
    listed = {k.replace("[]", "") for k in re.findall(r"^\| `(\S+)` \|", page, re.MULTILINE)}
    examples = re.findall(r"```yaml\n(node:.*?)```", (ROOT / readme / "README.md").read_text(), re.DOTALL)

    def walk(value: object, at: str) -> None:
        if isinstance(value, dict):
            for key, below in value.items():
                assert f"{at}{key}" in listed
                walk(below, f"{at}{key}.")
        if isinstance(value, list):
            for below in value:
                walk(below, at)

    assert examples
    for example in examples:
        walk(yaml.safe_load(example), "")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (0.5, "500ms"), (90.0, "90s"), (300.0, "5m"), (28_800.0, "8h")]
)
def test_durations_are_written_as_in_a_file(seconds: float, text: str) -> None:
    assert configuration._duration(seconds) == text


@pytest.mark.parametrize("program", [*GO_PROGRAMS, *PYTHON_PROGRAMS])
def test_every_request_is_explained(program: str) -> None:
    found = routes(program)
    assert {("/metrics", "GET"), ("/-/ready", "GET")} <= {(r.path, r.method) for r in found}
    assert [r for r in found if not r.what] == []
    assert len({(r.path, r.method) for r in found}) == len(found)


def test_comments_of_the_code_are_what_is_said_of_requests() -> None:
    said = {(r.method, r.path): r.what for r in routes("vigia-enforcer")}
    assert said["PUT", "/v1/ports/{port}/limit"].startswith("Sets the limit of a port")
    assert ("GET", "/debug/pairs") in {(r.method, r.path) for r in routes("vigia-probe")}
    with pytest.raises(KeyError):
        routes("vigia")


def test_a_request_without_a_word_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "routes", lambda _: (Route("/v1/x", "GET"),))
    with pytest.raises(ValueError, match=r"vigia-probe serves GET /v1/x and no comment says what that does"):
        http_api.markdown()


def test_the_page_has_every_operation_and_schema_of_the_document() -> None:
    page = (ROOT / "docs/reference/http-api.md").read_text()
    with application("isolation-agent") as app:
        document = openapi(app)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            section = page.partition(f"\n### {method.upper()} {path}\n")[2].partition("\n### ")[0]
            assert operation["summary"] in section
            assert all(f"`{p['name']}`" in section for p in operation["parameters"])
            assert all(re.search(rf"\b{code}\b", section) for code in operation["responses"])
    for name, schema in document["components"]["schemas"].items():
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert all(f"| `{field}` |" in section for field in schema.get("properties", ())), name


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "format": "uuid"}, "uuid"),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "integer (from 1) or null"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Action"}}, "list of [`Action`](#action)"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "map of string"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"const": 4}, "`4`"),
        ({}, "anything"),
    ],
)
def test_types_in_words(schema: dict[str, object], words: str) -> None:
    assert http_api._type(schema) == words


def test_the_generator_says_which_pages_are_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "PAGES", {"a.md": lambda: "new\n", "b.md": lambda: "as it is\n"})
    (tmp_path / "a.md").write_text("old\n")
    (tmp_path / "b.md").write_text("as it is\n")

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["generate.py", *words])
        return generate.main()

    assert run("--check") == 1
    assert capsys.readouterr().out == "a.md: out of date; run make generate\n"
    assert run("--check", "b.md") == run("a.md") == run("--check") == 0
    assert (tmp_path / "a.md").read_text() == "new\n"


def test_the_page_about_time_stamps_has_every_reason_and_every_cause() -> None:
    page = (ROOT / "docs/concepts/time-stamps.md").read_text()
    first = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    named = {word for cell in first for word in re.findall(r"`(\w+)`", cell)}
    metrics = vigia_catalog.load()
    for metric, label in (("vigia_probe_quarantined_total", "reason"), ("vigia_probe_lost_total", "cause")):
        assert set(metrics[metric].values[label]) <= named, metric
