"""In which order repetitions are made: blocks that hold every combination once, shuffled within."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vigia.campaign.model import Factor

__all__ = ["Run", "block", "runs"]


@dataclass(frozen=True)
class Run:
    """One repetition of one combination."""

    number: int
    """From 0, in the order of the plan; the same in every resumption."""
    block: int
    """Which repetition of its combination it is, from 0."""
    cell: int
    """Which combination, from 0."""
    factors: Mapping[str, Factor]


def block(cells: Sequence[Mapping[str, Factor]], number: int, seed: int | None) -> list[Run]:
    """Return the runs of one block; seed None keeps the order given.

    A block depends on the seed and its number alone, so a campaign that is
    resumed has the order that it would have had.
    """
    order = list(range(len(cells)))
    if seed is not None:
        random.Random(f"{seed}/{number}").shuffle(order)  # noqa: S311 - an order, not a secret
    first = number * len(cells)
    return [Run(first + i, number, cell, cells[cell]) for i, cell in enumerate(order)]


def runs(cells: Sequence[Mapping[str, Factor]], blocks: int, seed: int | None) -> Iterator[Run]:
    """Yield the runs of all blocks."""
    for number in range(blocks):
        yield from block(cells, number, seed)
