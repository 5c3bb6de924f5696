"""What paths are, and which of them are compared with which: like with like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from vigia_compare.source import Source
from vigia_compare.windows import Grid

__all__ = ["INFO", "Kind", "Known", "PathAttributes", "attributes", "data_planes", "elements", "kind"]

INFO = "group by (node, path, placement, dataplane, encap, mode, security, layer) (vigia_path_info)"

_NOTHING = {"encap": ("none",), "security": ("none",), "mode": ("normal",), "dataplane": ("none",)}
"""Values of attributes that say that the element is not there."""

_USER, _HERE = "user space", "the kernel"
_USER_SPACE = ("netdev", "userspace", "user", "dpdk", "vpp", "afxdp")
_KERNEL = ("kernel", "system", "linuxbridge", "macvlan", "bridge", "ebpf", "xdp", "tc")


class Kind(StrEnum):
    """Why two paths are compared."""

    CONTEST = "contest"
    """Either could be used in place of the other: they are ranked."""
    REFERENCE = "reference"
    """One is the underlay, which is no choice: what the other costs above it."""
    ELEMENT = "element"
    """They differ in one thing, such as encryption: what that costs."""


@dataclass(frozen=True)
class PathAttributes:
    """What vigia_path_info says of a path."""

    placement: str = "unknown"
    dataplane: str = "unknown"
    encap: str = "unknown"
    mode: str = "unknown"
    security: str = "unknown"
    layer: str = "unknown"

    @property
    def fingerprint(self) -> str:
        """Return what is compared to tell whether the path was configured anew."""
        return "/".join(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Known:
    """Attributes by node and path, and by path alone for nodes that do not say."""

    by_node: Mapping[tuple[str, str], PathAttributes]
    by_path: Mapping[str, PathAttributes]
    changed: Mapping[tuple[str, str], float]
    """Unix time since which a path of a node is what it is, where it was something else before."""

    def of(self, src: str, path: str) -> PathAttributes:
        """Return what a path is on a node."""
        found = self.by_node.get((src, path))
        return found if found is not None else self.by_path.get(path, PathAttributes())

    def words(self, a: str, b: str, nodes: Iterable[str]) -> str:
        """Return words about data planes of two paths where they differ on any of the nodes; else nothing."""
        said = (data_planes(a, self.of(n, a), b, self.of(n, b)) for n in sorted(set(nodes)))
        return "; ".join(w for w in dict.fromkeys(said) if w)

    def since(self, src: str, path: str) -> float:
        """Return since when a path is what it is on a node, Unix time; 0 where nothing else is known."""
        return self.changed.get((src, path), self.changed.get(("", path), 0.0))


def attributes(source: Source, grid: Grid) -> Known:
    """Return the attributes of every path, those that it had last. Raises PrometheusError."""
    seen: dict[tuple[str, str], list[tuple[int, int, PathAttributes]]] = {}
    for s in sorted(source.windows(INFO, grid), key=lambda s: sorted(s.labels.items())):
        path, at = s.labels.get("path", ""), np.flatnonzero(np.isfinite(s.values))
        if path and at.size:
            said = PathAttributes(
                **{f.name: s.labels.get(f.name) or str(f.default) for f in fields(PathAttributes)}
            )
            seen.setdefault((s.labels.get("node", ""), path), []).append((int(at[-1]), int(at[0]), said))
    by_node, by_path, changed = {}, {}, {}
    for (node, path), versions in sorted(seen.items(), key=lambda kv: max(v[:2] for v in kv[1])):
        versions.sort(key=lambda v: v[0])
        last, _, by_node[(node, path)] = versions[-1]
        by_path[path] = by_node[(node, path)]
        before = [end for end, _, said in versions[:-1] if end < last]
        if before:
            changed[(node, path)] = grid.start + (max(before) + 1) * grid.window
    return Known(by_node, by_path, changed)


def kind(a: PathAttributes, b: PathAttributes) -> Kind | None:
    """Return why two paths of one placement are compared; None if that would tell nothing.

    Overlays compete with overlays of the same mode and security. A path without an encapsulation, such as a
    virtual function, does less than an overlay and competes with its like alone. OpenFlow paths differ in
    their rules, which nobody chooses between: each is compared with its path in normal mode.
    """
    underlays = (a.layer == "underlay") + (b.layer == "underlay")
    if underlays == 2:
        return None
    if underlays == 1:
        return Kind.REFERENCE
    alike = (a.mode, a.security, a.encap == "none") == (b.mode, b.security, b.encap == "none")
    if alike and a.mode != "openflow":
        return Kind.CONTEST
    return Kind.ELEMENT if elements(a, b) or elements(b, a) else None


def elements(path: PathAttributes, without: PathAttributes) -> str:
    """Name the one thing that a path has and another lacks; empty if it is none, or more than one.

    ESP is an encapsulation of its own, so that a path with it differs in two words.
    """
    differing = [n for n in _NOTHING if getattr(path, n) != getattr(without, n)]
    if differing == ["encap", "security"] and path.encap == "esp":
        differing = ["security"]
    if len(differing) != 1 or getattr(without, differing[0]) not in _NOTHING[differing[0]]:
        return ""
    return f"{differing[0]} {getattr(path, differing[0])}"


def data_planes(a: str, of_a: PathAttributes, b: str, of_b: PathAttributes) -> str:
    """Return words about paths of which one runs in the kernel, the other in user space; else nothing."""
    where = (_where(of_a.dataplane), _where(of_b.dataplane))
    if set(where) == {_USER, _HERE}:
        return f"{a} runs in {where[0]} ({of_a.dataplane}), {b} in {where[1]} ({of_b.dataplane})"
    # What nobody states may be the kernel as well. The underlay has no data plane of its own.
    if _USER in where and "" in where and "none" not in (of_a.dataplane, of_b.dataplane):
        here, there = ((a, of_a), (b, of_b)) if where[0] == _USER else ((b, of_b), (a, of_a))
        return (
            f"{here[0]} runs in {_USER} ({here[1].dataplane}), and {there[0]} elsewhere or nobody says where "
            f"({there[1].dataplane})"
        )
    return ""


def _where(dataplane: str) -> str:
    words = dataplane.lower().replace("_", "-").split("-")
    if any(w in _USER_SPACE for w in words):
        return _USER
    return _HERE if any(w in _KERNEL for w in words) else ""
