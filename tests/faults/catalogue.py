"""All faults, room by room, and the table of them."""

from __future__ import annotations

from pathlib import Path

from faults import clock, configuration, network, processes, resources, storage
from faults.registry import FAULTS, Fault

__all__ = ["BEGIN", "END", "PAGE", "all_faults", "page_with", "table"]

PAGE = Path(__file__).resolve().parents[2] / "docs/concepts/faults.md"
BEGIN, END = (
    "<!-- the table is made by: PYTHONPATH=tests .venv/bin/python -m faults -->\n",
    "<!-- the end of the table -->\n",
)

_ROOMS = (processes, storage, clock, network, configuration, resources)


def all_faults() -> list[Fault]:
    """Every fault, in the order in which they are done."""
    places = {room.__name__: i for i, room in enumerate(_ROOMS)}
    return sorted(FAULTS.values(), key=lambda f: places[f.course.__module__])


def table() -> str:
    """The table of all faults: each promise beside the test that keeps it."""
    rows = ["| fault | what is done | what holds | test |", "| --- | --- | --- | --- |"]
    for fault in all_faults():
        short = ", in the gate" if fault.short else ""
        where = f"`{fault.course.__module__.rpartition('.')[2]}.py`{short}"
        rows.append(f"| {fault.name} | {fault.what} | {fault.promise} | {where} |")
    return "\n".join(rows) + "\n"


def page_with(page: str) -> str:
    """The page with the table in its place."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"
