"""What each host's enforcer reads of the site: all hosts, and the ports of the tenants that it has.

What other tenants do changes nothing there. A tenant decides how many ports it has on how many hosts, so what
a host reads of all of them has a bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vigia_identity.clouds import Site

__all__ = ["MOST", "texts"]

MOST = 20_000
"""Entries that a host reads besides what has to be: some 3 MB, and 50 MB of memory meanwhile."""

Entry = Mapping[str, Any]


def texts(site: Site, most: int = MOST) -> Iterator[tuple[str, str]]:
    """Yield each host and its file. The text of a tenant's ports is made once, however many hosts get it."""
    here: dict[str, list[str]] = {host: [] for host in site.nodes}
    whole = {tenant: _lines(entries) for tenant, entries in site.ports.items()}
    for tenant, entries in sorted(site.ports.items()):
        for host in dict.fromkeys(e["node"] for e in entries):
            here[host].append(tenant)
    head = "version: 1\nnodes:\n" + _lines(site.nodes.values())
    for host, tenants in here.items():
        chosen = _chosen(site, host, tenants, whole, most)
        own = "".join(chosen[tenant] for tenant in tenants)
        yield host, head + (f"ports:\n{own}" if own else "ports: []\n")


def _chosen(
    site: Site, host: str, tenants: Sequence[str], whole: Mapping[str, str], most: int
) -> dict[str, str]:
    """Return what a host reads of each of its tenants: of the smallest all, of others what has to be.

    What has to be, whatever others have: all of the tenant's ports there, and one of each other host, by
    which it is known to be on it. A source is then told by its tunnel's end and its tenant, not its port.
    """
    left, chosen = most, {}
    for tenant in sorted(tenants, key=lambda t: (len(site.ports[t]), t)):
        left -= len(site.ports[tenant])
        chosen[tenant] = whole[tenant] if left >= 0 else _lines(_brief(site.ports[tenant], host))
    return chosen


def _brief(entries: Sequence[Entry], host: str) -> list[Entry]:
    """Return one entry of each port on a host, and then one of each other host."""
    own: dict[str, Entry] = {}
    others: dict[str, Entry] = {}
    for e in entries:
        if e["node"] == host:
            own.setdefault(e["port"], e)
        else:
            others.setdefault(e["node"], e)
    return [*own.values(), *others.values()]


def _lines(entries: Iterable[Entry]) -> str:
    """Return a list in YAML, each entry as JSON, which is YAML as well and is made and read in less time."""
    return "".join(f"- {json.dumps(e)}\n" for e in entries)
