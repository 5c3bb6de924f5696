"""The command line: `python -m release` in tools/, which `make release` runs."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import release
from release.bill import bill
from release.build import ARCHITECTURES, Build
from release.debian import cli_packages, node_packages, site_packages
from release.downloads import chart, programs, wheels
from release.images import images
from release.signature import check_key, sign, sums
from release.source import Refused, export, look

ROOT = Path(__file__).resolve().parents[2]
PARTS: dict[str, Callable[[Build], None]] = {
    "programs": programs,
    "wheels": wheels,
    "chart": chart,
    "node-packages": node_packages,
    "site-packages": site_packages,
    "cli-packages": cli_packages,
    "images": images,
    "sbom": bill,
}


def main(arguments: list[str] | None = None) -> int:
    """Make a release and return the exit status."""
    parser = argparse.ArgumentParser(prog="release", description=release.__doc__)
    add = parser.add_argument
    add("--root", type=Path, default=ROOT, help="the repository; default: this one")
    add("--output", type=Path, help="folder that gets vigia-VERSION/; default: dist/ of the repository")
    add("--key", default="", help="private key of OpenSSH to sign with, or none")
    add("--only", action="append", choices=PARTS, default=[], help="make this part (repeatable)")
    add(
        "--architecture", action="append", choices=ARCHITECTURES, default=[], help="for this one (repeatable)"
    )
    add(
        "--debian",
        action="append",
        default=[],
        metavar="LINE",
        help="where the images' Debian is from (repeatable)",
    )
    options = parser.parse_args(arguments)
    try:
        made = _make(options)
    except Refused as e:
        sys.stderr.write(f"release: {e}\n")
        return 1
    sys.stdout.write(f"{made}: {len(list(made.iterdir()))} files\n")
    return 0


def _make(options: argparse.Namespace) -> Path:
    """Make all in a folder of its own, which takes the place of an earlier one when it is whole."""
    root: Path = options.root.resolve()
    if not options.key:
        raise Refused(
            "cannot sign: KEY is not set; give a private key of OpenSSH (make release KEY=~/.ssh/vigia), or "
            "none for files that nobody else will have (KEY=none)"
        )
    key = None if options.key == "none" else Path(options.key).expanduser().resolve()
    if key:
        check_key(key)
    source = look(root)
    output: Path = (options.output or root / "dist").resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=output) as scratch:
        folders = [Path(scratch, name) for name in ("tree", "work", "out")]
        for folder in folders:
            folder.mkdir(mode=0o755)
        tree, work, out = folders
        export(root, tree)
        build = Build(
            *(source, tree, work, out, ROOT / ".build/uv/bin/uv"),
            architectures=tuple(options.architecture or ARCHITECTURES),
            debian=tuple(options.debian),
        )
        for name in options.only or PARTS:
            PARTS[name](build)
        sums(build)
        if key:
            sign(build, key)
        done = output / f"vigia-{source.version}"
        if done.exists():
            shutil.rmtree(done)
        out.rename(done)
    return done


if __name__ == "__main__":
    sys.exit(main())
