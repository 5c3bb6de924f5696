"""docs/reference/topology.md says what the model says."""

from __future__ import annotations

import re

import yaml
from labkit import ROOT

from vigia.lab import reference, topology
from vigia.lab.schema import LinkSpec, NetworkSpec, NodeSpec, PathSpec, TenantSpec
from vigia.lab.topology import Topology

PAGE = ROOT / "docs" / "reference" / "topology.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference.markdown(), "write it anew: make generate"


def test_every_key_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    described = [name for name, text in rows if len(text) > 10 or name in ("tenants", "links", "paths")]
    models = (Topology, TenantSpec, LinkSpec, NodeSpec, PathSpec, NetworkSpec)
    assert described == [name for model in models for name in model.model_fields]
    assert "PydanticUndefined" not in PAGE.read_text()


def test_the_example_on_the_page_is_the_demo() -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1]
    assert Topology.model_validate(yaml.safe_load(example)) == topology.default()


def test_the_defaults_on_the_page_are_those_of_the_model() -> None:
    rows = dict(
        re.findall(r"^\| `(rate|queue|agents|stack_address)` \| `(.+?)` \|", PAGE.read_text(), re.MULTILINE)
    )
    written = (
        "{version: 1, tenants: [], links: [{name: l, nodes: [a, b], rate: %(rate)s, queue: %(queue)s}],"
        " agents: %(agents)s, stack_address: %(stack_address)s,"
        " nodes: [{name: a, switch: linuxbridge, underlay: 10.0.0.1/30},"
        " {name: b, switch: linuxbridge, underlay: 10.0.0.2/30}], paths: [{name: direct, kind: direct}]}"
    )
    explicit = Topology.model_validate(yaml.safe_load(written % rows))
    bare = re.sub(r"(, rate: \S+ queue: [^}]+)|( agents: \S+ stack_address: \S+)", "", written % rows)
    assert Topology.model_validate(yaml.safe_load(bare)) == explicit
