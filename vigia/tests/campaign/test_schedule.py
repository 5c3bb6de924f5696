"""In which order repetitions are made."""

from __future__ import annotations

from vigia.campaign import schedule


def test_a_block_holds_every_combination_once_in_an_order_of_its_own() -> None:
    cells = [{"a": i} for i in range(30)]
    runs = list(schedule.runs(cells, 4, seed=7))
    assert [r.number for r in runs] == list(range(120))
    blocks = [[r.cell for r in runs if r.block == b] for b in range(4)]
    assert all(sorted(b) == list(range(30)) for b in blocks)
    assert len({tuple(b) for b in blocks}) == 4, "the same order in every block would confound it with time"
    assert list(schedule.runs(cells, 4, seed=7)) == runs
    assert list(schedule.runs(cells, 4, seed=8)) != runs
    assert [r.cell for r in schedule.block(cells, 2, None)] == list(range(30))
