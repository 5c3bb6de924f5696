"""The page docs/reference/topology.md, made from the model."""

from __future__ import annotations

from importlib import resources

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vigia.lab.schema import LinkSpec, NetworkSpec, NodeSpec, PathSpec, TenantSpec
from vigia.lab.topology import Topology

__all__ = ["markdown", "table"]

_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Top level", Topology),
    ("`tenants`", TenantSpec),
    ("`links`", LinkSpec),
    ("`nodes`", NodeSpec),
    ("`paths`", PathSpec),
    ("`networks`", NetworkSpec),
)

_INTRODUCTION = """\
# Topology of the lab

`vigia lab up` builds the lab that a YAML file describes: `--topology FILE`, or without it the demo's,
which is shown at the end. `vigia lab check --topology FILE` reads a file, says what is wrong with it
(file, line, value, fix) and changes nothing. Unknown and repeated keys are errors.

Rates are bits per second with a unit (`64kbit`, `200Mbit`, `1Gbit`), times have a unit too (`0.5ms`,
`10ms`, `1s`). Addresses are IPv4.

This page is made from the program's model; to change it, change `vigia/src/vigia/lab/schema.py` and run
`make generate`.
"""

_RULES = """\
## What must fit together

- Names are unique among tenants, links, nodes and paths; `infra` (tenant), `wire` and `check` (nodes) and
  `test` (lab) are taken.
- A link joins two nodes with the same switch or switches; every node is on exactly one link.
- Both ends of a link have their underlay addresses in one subnet, and their tunnel addresses in another;
  no two such subnets overlap, no address is used twice.
- The tenants' guarantees together fit into 94% of every link. The queue holds at least two frames.
- An overlay path has a switch that some link has, and an encapsulation that the switch has; there is at
  most one direct path.
- A `local` path is over an overlay that learns addresses, where `_infra` has two machines or more on each
  node.
- A path with `match` has the mode `openflow`, and one network: of `_infra`, with one machine on each node and
  a subnet of its own, a /29 or larger; `rewrite` comes with `match: udp_port`.
- A tenant has at most one network on a path; keys are unique; subnets are /30 or larger and may overlap.
- Addresses of agents are inside 127.0.0.0/8, each node's its own, none the stack's.

## What the names become

| what | name | example |
|---|---|---|
| namespace of a node | `vigia-<lab>-<node>` | `vigia-demo-node1` |
| namespace of a machine | `vigia-<lab>-<node>-<tenant>-<path>` | `vigia-demo-node1-red-linuxbridge-vxlan` |
| namespace of a link's switch | `vigia-<lab>-wire-<link>` | `vigia-demo-wire-lan` |
| device of a port on its node | `<tenant>-<key>`, the tenant cut to 8 characters or fewer | `red-110` |
| port, the label `port` | `<node>-<tenant>-<key>` | `node1-red-110` |
| files | `/run/vigia/<lab>/nodes/<node>/` | `/run/vigia/demo/nodes/node1/probe.yaml` |

In names, the tenant `_infra` is written `infra`; in labels it stays `_infra`.
"""


def markdown() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for title, model in _SECTIONS:
        parts.append(f"## {title}\n\n{model.__doc__}\n\n{table(model)}")
    demo = resources.files("vigia.lab").joinpath("topologies/demo.yaml").read_text()
    parts += [_RULES, f"## The demo's topology\n\n```yaml\n{demo}```\n"]
    return "\n".join(parts)


def table(model: type[BaseModel]) -> str:
    """Return a model's keys as a table."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        lines.append(f"| `{name}` | {_default(model, name, field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def _default(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None or field.default == []:
        return "none"
    shown = {"rate": "200Mbit", "queue": "10ms"} if model is LinkSpec else {}
    return f"`{shown.get(name, field.default)}`"
