"""Progress for node_exporter's textfile collector."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vigia.campaign import engine, folder
from vigia.campaign.folder import Folder
from vigia.campaign.model import Campaign
from vigia.campaign.samples import Series
from vigia.campaign.textfile import Textfile
from vigia.errors import VigiaError
from vigia_catalog import part_metrics


def measure(factors: Any, settings: Any, testbed: Any) -> list[Series]:
    """Fails for one of four combinations."""
    if (factors["path"], factors["size"]) == ("shaky", 128):
        raise VigiaError("no answer from 10.0.0.1")
    return [Series("rtt", "s", [1e-3, 2e-3])]


class Quiet:
    """A testbed on which nothing happens."""

    description: dict[str, Any] = {}

    def marks(self) -> list[dict[str, Any]]:
        return []


class NeverStops:
    def check(self) -> None:
        """Goes on."""


@pytest.fixture
def present(tmp_path: Path) -> Folder:
    wanted = Campaign.model_validate(
        {
            "version": 1,
            "name": "t",
            "title": "T",
            "question": "Q?",
            "study": "overlays",
            "topology": "e1",
            "standard": {
                "designs": [{"factors": {"path": ["steady", "shaky"], "size": [64, 128]}}],
                "stop": {"repetitions": 4},
            },
        }
    )
    return folder.create(tmp_path / "campaigns", wanted, "standard", {"environment": {}, "topology": ""})


def value(file: Path, sample: str) -> float:
    match = re.search(rf"^{re.escape(sample)} (\S+)$", file.read_text(), re.MULTILINE)
    assert match, file.read_text()
    return float(match[1])


def test_the_file_follows_the_campaign(tmp_path: Path, present: Folder) -> None:
    file = tmp_path / "campaign.prom"
    key = 'campaign="t",study="overlays"'
    states: list[tuple[float, float, float]] = []

    class Reads:
        def recorded(self, progress: Any, series: Any) -> None:
            planned, done, failed = (
                value(file, f'vigia_campaign_repetitions{{campaign="t",state="{s}",study="overlays"}}')
                for s in ("planned", "done", "failed")
            )
            states.append((planned, done, failed))

    listener = Textfile(file, present)
    assert value(file, 'vigia_campaign_repetitions{campaign="t",state="planned",study="overlays"}') == 16
    engine.execute(present, measure, Quiet(), NeverStops(), [listener, Reads()])  # type: ignore[arg-type]
    assert [sum(s[1:]) for s in states] == list(range(1, 17)) and states[-1] == (16, 12, 4)
    assert value(file, f"vigia_campaign_remaining_seconds{{{key}}}") == 0
    last = present.records[-1]
    assert value(file, f"vigia_campaign_last_repetition_timestamp_seconds{{{key}}}") == pytest.approx(
        last.began + last.seconds
    )
    text = file.read_text()
    assert set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == {m.name for m in part_metrics("campaign")}
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o644
    again = Textfile(tmp_path / "again.prom", present)
    assert (
        again
        and value(
            tmp_path / "again.prom",
            'vigia_campaign_repetitions{campaign="t",state="failed",study="overlays"}',
        )
        == 4
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [("campaign.txt", "end in .prom; rename it"), ("nowhere/campaign.prom", "is not a folder; make it")],
)
def test_a_file_that_nobody_would_read_is_refused(
    tmp_path: Path, present: Folder, name: str, problem: str
) -> None:
    with pytest.raises(VigiaError, match=problem):
        Textfile(tmp_path / name, present)
