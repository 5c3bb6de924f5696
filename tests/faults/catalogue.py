"""All faults, in the order in which they are done: importing the rooms puts them on the list."""

from __future__ import annotations

from faults import clock, configuration, network, processes, resources, storage

__all__ = ["ROOMS"]

ROOMS = (processes, storage, clock, network, configuration, resources)
