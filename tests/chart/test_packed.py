"""The chart of a release renders what the folder renders."""

from __future__ import annotations

from pathlib import Path

from chartkit import CHART, KUBERNETES, helm, masked
from releasekit import copied, release


def test_the_packed_chart_is_the_chart(tmp_path: Path) -> None:
    made = release(copied(tmp_path / "tree"), tmp_path, "--key", "none", "--only", "chart")
    assert made.status == 0, made.said
    packed = made.file(".tgz")
    shown = helm("show", "chart", packed)
    assert shown.returncode == 0, shown.stderr
    assert packed.name == f"vigia-chart-{(CHART / '../../../VERSION').read_text().strip()}.tgz"
    words = ("--namespace", "vigia", "--kube-version", KUBERNETES)
    rendered = [helm("template", "vigia", chart, *words) for chart in (packed, CHART)]
    assert [done.returncode for done in rendered] == [0, 0], rendered[0].stderr
    assert masked(rendered[0].stdout) == masked(rendered[1].stdout) != {}
    assert helm("lint", packed).returncode == 0
