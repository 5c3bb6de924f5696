"""Carrying out the recipes of docs/how-to/extend.md in a copy of the tree."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/how-to/extend.md"

_BLOCK = re.compile(r"^(?:`([^`\n]+)`:\n\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Recipe:
    """One recipe: what is written, what is changed, and how one sees that it works."""

    title: str
    files: dict[str, str]
    """Content of each new file, by name."""
    patches: tuple[str, ...]
    """Changes of files that are there, as unified diffs."""
    commands: tuple[str, ...]
    named: frozenset[str]
    """Files that the recipe's table says it touches."""
    generated: frozenset[str]
    """Those of them that its commands make, as `make generate` does."""


def recipes(text: str) -> list[Recipe]:
    """Read the page: every section of the second level with a table of files is a recipe.

    A block below a line with a file's name alone is that file; a block of diff changes files; a block
    of sh is run. A file that the table says is made by something is made by the block of sh.
    """
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", body, re.MULTILINE)
        named = frozenset(name for name, _ in rows)
        if not named:
            continue
        blocks = [(m[1], m[2], m[3]) for m in _BLOCK.finditer(body)]
        found.append(
            Recipe(
                title.strip(),
                {name: content for name, language, content in blocks if name},
                tuple(content for name, language, content in blocks if language == "diff"),
                tuple(
                    line
                    for name, language, content in blocks
                    if language == "sh"
                    for line in content.splitlines()
                    if line.strip()
                ),
                named,
                frozenset(name for name, what in rows if what.startswith("made by ")),
            )
        )
    return found


def copy_tree(to: Path) -> None:
    """Copy what git tracks, or would, and make it a repository, so that changes can be listed."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # It may be removed and still tracked, or whoever made it removes it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target, follow_symlinks=False)
    git(to, "init", "--quiet")
    git(to, "add", "--all")


def git(tree: Path, *arguments: str, text: str | None = None) -> str:
    """Run git in a tree."""
    argv = ["git", "-c", "core.autocrlf=false", *arguments]
    done = subprocess.run(argv, cwd=tree, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def carry_out(recipe: Recipe, tree: Path) -> set[str]:
    """Write and change what the recipe says; return the files that differ from before."""
    for name, content in recipe.files.items():
        path = tree / name
        assert not path.exists(), f"{name} is there already: show the change as a diff"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for patch in recipe.patches:
        git(tree, "apply", "-", text=patch)
    return changed(tree)


def changed(tree: Path) -> set[str]:
    """Return the files of a tree that are not as they were when it was copied."""
    status = git(tree, "status", "--porcelain=v1", "--untracked-files=all")
    return {line[3:] for line in status.splitlines() if line[:2] != "A "}


def run(command: str, tree: Path) -> str:
    """Run a command of a recipe in the copy, with the project's interpreter on the copy's packages.

    Go compiles as `make build` does, without the paths of files, so that what is the same in every copy is
    compiled once.
    """
    sources = ["vigia/src", "isolation-agent/src", "exporters/compare/src", "exporters/identity/src"]
    sources += ["dashboards", "internal/py", "tests"]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(str(tree / s) for s in sources),
        "GOFLAGS": "-trimpath -buildvcs=false",
        "CGO_ENABLED": "0",
    }
    done = subprocess.run(
        ["sh", "-c", command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout + done.stderr
