"""What is not released: no key, a tree with changes, a version that is wrong. One line says why, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from extendkit import git
from release.signature import check_key
from release.source import Refused, Source, export, look
from releasekit import commit, key, release


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository with what is looked at."""
    made = tmp_path / "tree"
    made.mkdir()
    git(made, "init", "--quiet")
    (made / "VERSION").write_text("0.2.0\n")
    (made / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2026-01-31)\n")
    (made / "program").write_text("#!/bin/sh\n")
    (made / "program").chmod(0o775)
    (made / "link").symlink_to("../elsewhere")
    commit(made)
    return made


def refused(tree: Path) -> str:
    with pytest.raises(Refused) as caught:
        look(tree)
    return str(caught.value)


def test_a_clean_tree_is_looked_at(tree: Path) -> None:
    found = look(tree)
    assert found == Source("0.2.0", git(tree, "rev-parse", "HEAD")[:12], 1769860800)
    assert (found.python, found.debian) == ("0.2.0", "0.2.0")


def test_a_candidate_comes_before_its_release_everywhere() -> None:
    found = Source("0.2.0-rc.1", "", 0)
    assert (found.python, found.debian) == ("0.2.0rc1", "0.2.0~rc.1")


def test_changes_are_named(tree: Path) -> None:
    (tree / "program").write_text("exit 1\n")
    assert "changes (program): commit or remove them" in refused(tree)
    for name in "abcd":
        (tree / name).touch()
    assert "(program, a, b, ...)" in refused(tree)


@pytest.mark.parametrize(
    "version", ["", "v0.2.0", "0.2", "0.2.0.1", "00.2.0", "0.2.0rc1", "0.2.0-rc.0", "0.2.0\n0.3.0"]
)
def test_a_version_that_not_all_can_have(tree: Path, version: str) -> None:
    (tree / "VERSION").write_text(f"{version}\n")
    commit(tree)
    assert "write X.Y.Z or X.Y.Z-rc.N" in refused(tree)


def test_a_tag_of_another_version(tree: Path) -> None:
    git(tree, "tag", "v0.1.0")
    assert "this commit has the tag v0.1.0" in refused(tree)
    git(tree, "tag", "v0.2.0")
    assert "this commit has the tag v0.1.0, v0.2.0" in refused(tree)
    git(tree, "tag", "--delete", "v0.1.0")
    git(tree, "tag", "verified")
    assert look(tree).version == "0.2.0"


def test_a_version_that_is_another_commit(tree: Path) -> None:
    git(tree, "tag", "v0.2.0")
    commit(tree)
    assert "v0.2.0 is another commit; raise VERSION" in refused(tree)


def test_a_tag_without_its_changelog(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (not released yet)\n")
    commit(tree)
    assert look(tree).version == "0.2.0"
    git(tree, "tag", "v0.2.0")
    assert "towncrier build --version 0.2.0" in refused(tree)


def test_only_what_is_committed_is_exported(tree: Path, tmp_path: Path) -> None:
    (tree / ".git/info/exclude").write_text("secret\n")
    (tree / "secret").write_text("x")
    to = tmp_path / "to"
    to.mkdir()
    export(tree, to)
    assert {p.name for p in to.iterdir()} == {"VERSION", "CHANGELOG.md", "program", "link"}
    assert (to / "program").stat().st_mode & 0o777 == 0o755
    assert (to / "VERSION").stat().st_mode & 0o777 == 0o644
    assert (to / "link").is_symlink()


def test_a_key_that_would_ask_is_refused_before_the_work(tmp_path: Path) -> None:
    check_key(key(tmp_path))
    with pytest.raises(Refused, match="without a passphrase"):
        check_key(key(tmp_path, "locked", "secret"))
    (tmp_path / "no-key").write_text("x")
    with pytest.raises(Refused, match="give a private key"):
        check_key(tmp_path / "no-key")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "cannot sign: KEY is not set; give a private key of OpenSSH (make release KEY="),
        (["--key", "/nonexistent"], "cannot sign: KEY=/nonexistent is no file"),
        (["--key", "none", "--only", "wheels"], "cannot release a tree with changes (new)"),
    ],
)
def test_the_command_says_what_to_do_and_leaves_nothing(
    tree: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tree / "new").touch()
    made = release(tree, tmp_path / "dist", *arguments)
    assert made.status == 1
    assert made.said.startswith(f"release: {said}") and made.said.count("\n") == 1
    assert not (tmp_path / "dist").exists()


def test_what_fails_in_the_middle_takes_the_place_of_nothing(tree: Path, tmp_path: Path) -> None:
    before = tmp_path / "dist/vigia-0.2.0"
    before.mkdir(parents=True)
    (before / "SHA256SUMS").write_text("earlier")
    made = release(tree, tmp_path / "dist", "--key", "none", "--only", "wheels")  # there are no packages
    assert made.status == 1 and made.said.startswith("release: cannot run ")
    assert [p.name for p in (tmp_path / "dist").iterdir()] == ["vigia-0.2.0"]
    assert (before / "SHA256SUMS").read_text() == "earlier"
