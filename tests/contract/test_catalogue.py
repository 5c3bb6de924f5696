"""The catalogue between the parts: Go and Python read it alike, and what is asked for is what is exported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from valueskit import Code, differences

import vigia
from isolation_agent.model import states
from vigia_catalog import part_metrics
from vigia_catalog.listing import listing
from vigia_dashboards.expressions import IN_FORCE, selectors
from vigia_service.cli import FORMATS

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


def test_in_force_is_what_the_agent_says_it_is() -> None:
    (actions,) = [s for s in selectors(IN_FORCE) if s.name == "vigia_isolation_actions"]
    (matcher,) = actions.matchers.matchers
    assert matcher.name == "state" and set(matcher.value.split("|")) == {s.value for s in states.IN_FORCE}


def test_closed_labels_of_a_campaigns_file() -> None:
    assert (
        differences("campaign", {"vigia_campaign_repetitions.state": Code(vigia).arguments("_count", 0)})
        == []
    )
