"""Go and Python read the same catalogue and print it alike."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from vigia_catalog import part_metrics
from vigia_catalog.listing import FORMATS, listing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("part", ["probe", "exporter", "enforcer"])
def test_what_a_program_prints_is_what_python_reads(part: str, form: str) -> None:
    done = subprocess.run(
        [ROOT / "bin" / f"vigia-{part}", f"--list-metrics={form}"], capture_output=True, text=True, check=True
    )
    read = listing(part_metrics(part), form)
    if form == "json":
        assert json.loads(done.stdout) == json.loads(read)
    else:
        assert done.stdout == read + "\n"
