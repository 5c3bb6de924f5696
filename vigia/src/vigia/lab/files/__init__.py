"""Files that the lab writes for the agents of its nodes: one module per file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from vigia.lab.files import enforcer, exporter, ports, probe
from vigia.lab.model import Datapath, Lab, Node

__all__ = ["contents", "write"]

Content = Mapping[str, object] | Sequence[Mapping[str, object]]

_HEAD = "# Written by vigia lab up; changes are lost.\n"


def contents(lab: Lab, node: Node, datapath: Datapath, esp: Datapath = "userspace") -> dict[str, Content]:
    """Return the content of each of a node's files by file name; esp says where IPsec is done."""
    files: dict[str, Content] = {
        "probe.yaml": probe.content(lab, node, datapath, esp),
        probe.NODES: probe.nodes(lab, node),
        "exporter.yaml": exporter.content(lab, node),
        "enforcer.yaml": enforcer.content(lab, node),
        enforcer.SITE: enforcer.site(lab, node),
    }
    if node.has("linuxbridge"):  # the database of Open vSwitch has the identities of its own
        files[ports.FILE] = ports.content(node)
    return files


def write(
    lab: Lab,
    datapath: Datapath,
    esp: Datapath = "userspace",
    change: Callable[[str, Content], Content] = lambda name, content: content,
) -> int:
    """Write the files of all nodes and the enforcers' secrets; return how many there are.

    change is given each file's name and content, and returns what is written.
    """
    count = 1
    _write_secret(lab.layout.token_file, secrets.token_urlsafe(32))
    keys = enforcer.keys([n.name for n in lab.nodes])
    for node in lab.nodes:
        lab.layout.node(node.name).mkdir(mode=0o755, parents=True, exist_ok=True)
        _write_secret(lab.layout.notice_keys(node.name), keys[node.name])
        count += 1
        lab.layout.pins(node.name).mkdir(mode=0o700)
        for name, value in contents(lab, node, datapath, esp).items():
            (lab.layout.node(node.name) / name).write_text(dump(change(name, value)))
            count += 1
    return count


def dump(value: Content) -> str:
    """Return a file's text."""
    return _HEAD + yaml.safe_dump(value, sort_keys=False, width=120)


def _write_secret(path: Path, secret: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(secret + "\n")
