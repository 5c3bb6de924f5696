"""Metrics as text, JSON or a Markdown table, as the Go programs print them (internal/catalog, print.go)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vigia_catalog import MAIN_PAGE, Metric

__all__ = ["listing"]


def listing(metrics: Sequence[Metric], form: str) -> str:
    """Return metrics as text, json or markdown, without a line end. Raises ValueError for another form."""
    if form == "text":
        return "\n".join(_text(m) for m in metrics)
    if form == "json":
        return json.dumps([_object(m) for m in metrics], indent=2)
    if form == "markdown":
        head = ["| metric | type | unit | labels | help |", "| --- | --- | --- | --- | --- |"]
        return "\n".join([*head, *map(_row, metrics)])
    raise ValueError(f"unknown format {form}: use text, json or markdown")


def _text(m: Metric) -> str:
    lines = [f"{m.name}{{{','.join(m.labels)}}} {m.type}, {m.unit}", f"    {m.help}"]
    for label, values in m.values.items():
        lines.append(f"    {label}: {', '.join(json.dumps(v) if v == '' or ' ' in v else v for v in values)}")
    if m.pages != (MAIN_PAGE,):
        lines.append(f"    pages: {', '.join(m.pages)}")
    return "\n".join(lines)


def _object(m: Metric) -> dict[str, object]:
    fields = ("name", "type", "unit", "labels", "help", "part", "pages")
    return {f: getattr(m, f) for f in fields} | ({"values": m.values} if m.values else {})


def _row(m: Metric) -> str:
    labels = []
    for label in m.labels:
        values = ", ".join(f"`{v or chr(34) * 2}`" for v in m.values.get(label, ()))
        labels.append(f"`{label}` ({values})" if values else f"`{label}`")
    shown = f" On {', '.join(f'`{p}`' for p in m.pages)}." if m.pages != (MAIN_PAGE,) else ""
    return f"| `{m.name}` | {m.type} | {m.unit} | {' '.join(labels)} | {m.help}{shown} |"
