"""What the README tells people to run, open and read is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from labkit import VIGIA
from pagekit import BESIDE_CODE

import vigia_catalog

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs/tutorial/first-ten-minutes.md").read_text()
PAGES = [p for p in sorted(ROOT.glob("*.md")) if p.name != "CHANGELOG.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
PAGES += [ROOT / p for p in BESIDE_CODE if ROOT / p not in PAGES]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """Return the command lines of the shell blocks, without comments."""
    lines = "\n".join(blocks(text, "sh")).splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_the_gate_runs_the_test_command_of_the_readme_and_then_the_long_matrices() -> None:
    development = README[README.index("## Development") :]
    (command,) = commands(development)
    gate = [line for line in (ROOT / ".ci/run").read_text().splitlines() if "make" in line.split()]
    assert gate == [command, "exec make test-long"]


def test_the_quick_start_comes_first_and_is_two_commands() -> None:
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert headings[0] == "Quick start"
    quick = README[README.index("## Quick start") : README.index("## What you will see")]
    assert commands(quick) == ["make demo", "make down"]


def test_the_quick_start_shows_both_ways_with_what_each_needs() -> None:
    quick = README[README.index("## Quick start") : README.index("## What you will see")]
    assert blocks(quick, "console") == ["$ docker compose --profile lab up --detach\n"]
    native, containers = quick.split("Or the same in containers")
    for words in ("Debian 12", "as root", "Go", "2 cores", "2 GiB of memory"):
        assert words in native, words
    for words in ("Docker 20.10", "Linux 5.18", "2 cores", "2 GiB of memory", "registry"):
        assert words in containers, words


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {c.split()[1] for c in commands(page.read_text()) if c.startswith("make ")}
    named |= set(re.findall(r"`make ([a-z-]+)`", page.read_text()))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            assert anchor in {slug(h) for h in headings}, f"{target}: no such heading"


def test_every_metric_that_the_readme_names_is_in_the_catalogue() -> None:
    known = set(vigia_catalog.load())
    named = set(re.findall(r"\bvigia_(?:probe|port|tenant|isolation|exporter)_\w+", README))
    assert len(named) >= 10
    assert named <= known


def test_the_readme_is_short_and_leads_to_every_part_of_the_documentation() -> None:
    assert len(README.splitlines()) <= 110
    table = README[README.index("## Documentation") : README.index("## Metrics")]
    for folder in ("tutorial", "how-to", "concepts", "reference", "adr"):
        assert f"](docs/{folder}/" in table, folder
    assert all(
        f"]({name})" in README for name in BESIDE_CODE if name.count("/") == 1 and name != "README.md"
    ), "a part whose page nobody finds"


def test_the_flood_in_the_readme_is_that_of_the_tutorial() -> None:
    (shown,) = blocks(README[README.index("## What you will see") :], "console")
    assert shown.rstrip() in TUTORIAL
    assert len(shown.splitlines()) == 11


def test_the_commands_of_the_tutorial_have_the_options_that_it_uses() -> None:
    used = [c.split() for c in commands(TUTORIAL) if c.startswith(".venv/bin/vigia ")]
    assert len(used) >= 4
    for words in used:
        path = [w for w in words[1:3] if re.fullmatch(r"[a-z]+", w)]
        options = [w for w in words[: words.index("--") if "--" in words else None] if w.startswith("--")]
        done = subprocess.run([VIGIA, *path, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [o for o in options if o not in done.stdout] == []
