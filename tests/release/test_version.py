"""The version is in one place."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
MEMBERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
MADE = {"deploy/helm/vigia/Chart.yaml", "docker-compose.yml", "docs/how-to/kubernetes.md"}
"""Files that make generate writes it into."""

OTHERS = re.compile(
    r"CHANGELOG\.md|changelog\.d/.*|docs/concepts/soak.*|docs/reference/.*|"  # of the past, and made from code
    r"(.*/)?tests/.*|.*\.(sum|mod)|uv\.lock|\.github/ISSUE_TEMPLATE/.*"  # examples, and other things' versions
)


def test_nobody_else_writes_it_down() -> None:
    argv = ["git", "grep", "--full-name", "-lE", rf"(^|[^0-9.]){re.escape(VERSION)}([^0-9.]|$)"]
    found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {f for f in found if not OTHERS.fullmatch(f)} == MADE | {"VERSION"}


@pytest.mark.parametrize("member", MEMBERS)
def test_wheels_read_it(member: str) -> None:
    settings = tomllib.loads((ROOT / member / "pyproject.toml").read_text())
    assert "version" not in settings["project"] and settings["project"]["dynamic"] == ["version"]
    path = (ROOT / member / settings["tool"]["hatch"]["version"]["path"]).resolve()
    assert path == ROOT / "VERSION"
    assert {"file": settings["tool"]["hatch"]["version"]["path"]} in settings["tool"]["uv"]["cache-keys"]
    assert version(settings["project"]["name"]).replace("rc", "-rc.") == VERSION


def test_programs_chart_and_images_have_it() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/vigia/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    images = re.findall(r"image: vigia/[a-z-]+:(\S+)", (ROOT / "docker-compose.yml").read_text())
    assert len(images) > 5 and set(images) == {VERSION}
    said = subprocess.run(
        ["make", "-n", "build"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"version\.Version=(\S+)", said)) == {VERSION}


def test_the_files_are_made_from_it(tmp_path: Path) -> None:
    """docs/generate.py writes what VERSION says, and --check finds what does not."""
    text = (ROOT / "docs/generate.py").read_text()
    assert all(f'"{name}"' in text for name in MADE)
    argv = [ROOT / ".venv/bin/python", ROOT / "docs/generate.py", "--check", *sorted(MADE)]
    assert subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_go_is_the_same_everywhere() -> None:
    """Another compiler writes other bytes."""
    toolchain = re.search(r"^toolchain go(\S+)$", (ROOT / "go.mod").read_text(), re.MULTILINE)
    image = re.search(r"GO_IMAGE=golang:([\d.]+)-", (ROOT / "deploy/docker/Dockerfile").read_text())
    assert toolchain and image and toolchain[1] == image[1]
