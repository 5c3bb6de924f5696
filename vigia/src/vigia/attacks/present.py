"""A lab with its stack, there while something is played in it, and what was found said."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import httpx

from vigia.errors import VigiaError
from vigia.host.signals import interrupting
from vigia.lab import down as lab_down
from vigia.lab import model, state, topology
from vigia.lab.model import Lab
from vigia.stack import control
from vigia.stack.places import Places

__all__ = ["lab_of", "remove", "reported"]


def lab_of(
    name: str,
    at: tuple[str, str],
    bought: Mapping[str, int],
    paths: Mapping[str, int],
    more: Sequence[Mapping[str, Any]] = (),
) -> Lab:
    """Return a lab of two nodes with both switches, where each tenant has two machines on each path.

    at is the network of the agents and the address of the stack, bought is in Mbit/s, paths have the first of
    their keys, and more are further networks of the demo's paths.
    """
    given = topology.default().model_dump(mode="json")
    networks = [
        {"tenant": tenant, "path": path, "key": key + 10 * i, "subnet": "192.168.1.0/24", "machines": 2}
        for path, key in paths.items()
        for i, tenant in enumerate(("_infra", *bought))
    ]
    kept = {"direct", *paths, *(n["path"] for n in more)}
    given |= {
        "name": name,
        "agents": at[0],
        "stack_address": at[1],
        "tenants": [{"name": t, "guarantee": f"{m}Mbit", "ceiling": "200Mbit"} for t, m in bought.items()],
        "paths": [p for p in given["paths"] if p["name"] in kept],
        "networks": [*networks, *more],
    }
    return model.resolve(topology.Topology.model_validate(given))


def remove(lab: Lab) -> None:
    """Remove a lab and its stack, or what is left of them."""
    with state.locked(lab.layout):
        control.down(Places(lab.layout))
        lab_down.remove(lab.layout)


def reported(
    run: Callable[[list[Any], Callable[[str], None]], None],
    summary: Callable[[Sequence[Any]], str],
    *,
    as_json: bool,
    broken: str,
) -> tuple[list[Any], bool]:
    """Run trials, which are dataclasses, and print what each said and all together.

    ``run`` adds them to its list and says a line of each. Returns the trials, and whether all were made; if
    not, what was made is shown all the same, after ``broken``. With ``as_json`` the trials are one document
    on standard output, and lines go to standard error.
    """
    shown = sys.stderr if as_json else sys.stdout
    trials: list[Any] = []

    def say(line: str) -> None:
        shown.write(f"{line}\n")
        shown.flush()

    whole = True
    try:
        with interrupting():
            run(trials, say)
    except (VigiaError, OSError, httpx.HTTPError) as e:  # a service may be away, or started anew
        whole = False
        sys.stderr.write(f"{broken}: {e}\n")
    if as_json:
        json.dump([asdict(t) for t in trials], sys.stdout)
    say(summary(trials))
    return trials, whole
