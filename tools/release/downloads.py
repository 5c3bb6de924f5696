"""Programs, chart and wheels."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from release.build import ARCHITECTURES, PROGRAMS, PYTHON, SITE, Build, packed

__all__ = ["chart", "commands", "programs", "site", "wheels"]


def programs(build: Build) -> None:
    """Write an archive of static programs and their units for each architecture."""
    for architecture in build.architectures:
        node = build.node(architecture)
        folder = f"vigia-{build.source.version}-linux-{architecture}"
        files = [(node / "usr/bin" / name, f"{folder}/bin/{name}") for name in PROGRAMS]
        files += [
            (unit, f"{folder}/systemd/{unit.name}") for unit in (build.tree / "deploy/systemd").iterdir()
        ]
        files += [
            (build.tree / name, f"{folder}/{name}") for name in ("LICENSE", "CHANGELOG.md", "SECURITY.md")
        ]
        packed(build.path(f"{folder}.tar.gz"), files, build.source.epoch)


def chart(build: Build) -> None:
    """Write the chart as helm package would, but for the time of its files."""
    root = build.tree / "deploy/helm/vigia"
    lines = (root / ".helmignore").read_text().splitlines()
    ignored = tuple(line for line in lines if line and not line.startswith("#"))
    files = [(path, name) for path, name in _below(root, "") if not name.startswith(ignored)]
    packed(
        build.path(f"vigia-chart-{build.source.version}.tgz"),
        [(path, f"vigia/{name}") for path, name in files],
        build.source.epoch,
    )


def _below(folder: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder and what its links lead to."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from _below(path, f"{prefix}{path.name}/")
        else:
            yield path, prefix + path.name


def wheels(build: Build) -> None:
    """Write a wheel for every Python package, and what they depend on, by hash."""
    for wheel in _wheels(build):
        shutil.copyfile(wheel, build.path(wheel.name))
    build.path(f"vigia-{build.source.version}-requirements.txt").write_text(
        _requirements(build, "--all-packages")
    )


def _wheels(build: Build) -> list[Path]:
    """Return the project's own wheels, made when they are first asked for."""
    folder = build.work / "wheels"
    if not folder.exists():
        fixed = ["--quiet", "--wheel", "--all-packages", "--no-create-gitignore"]
        build.run(build.uv, "build", *fixed, "--out-dir", folder)
    return sorted(folder.glob("*.whl"))


def _requirements(build: Build, *which: str) -> str:
    words = ["--quiet", "--frozen", "--no-dev", "--no-emit-workspace", "--no-header", "--no-annotate"]
    return build.run(build.uv, "export", *words, *which)


def site(build: Build, architecture: str) -> Path:
    """Return a folder with the Python services and all that they import, for Debian 12 of an architecture."""
    return _environment(build, architecture, "site", SITE)


def commands(build: Build, architecture: str) -> Path:
    """Return a folder with the vigia command and all that it imports, for Debian 12 of an architecture."""
    return _environment(build, architecture, "commands", {"vigia": "vigia"})


def _environment(build: Build, architecture: str, kind: str, packages: Mapping[str, str]) -> Path:
    """Return a folder with packages, by name and module, and what they import, as it is locked."""
    folder = build.work / f"{kind}-{architecture}"
    if folder.exists():
        return folder
    locked = build.work / f"{kind}.txt"
    locked.write_text(_requirements(build, *(word for name in packages for word in ("--package", name))))
    own = [w for w in _wheels(build) if w.name.partition("-")[0] in (*packages.values(), "vigia_internal")]
    fixed: list[str | Path] = ["--target", folder, "--python-version", PYTHON, "--python-platform"]
    fixed += [
        f"{ARCHITECTURES[architecture]}-manylinux_2_28",
        "--only-binary",
        ":all:",
        "--link-mode",
        "copy",
    ]
    build.run(build.uv, "pip", "install", "--quiet", *fixed, "--require-hashes", "-r", locked)
    build.run(build.uv, "pip", "install", "--quiet", *fixed, "--no-deps", *own)
    _tidy(folder)
    return folder


def _tidy(folder: Path) -> None:
    """Remove what says where and how it was installed, and the tests of libraries."""
    for unwanted in ("bin", ".lock"):
        path = folder / unwanted
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for tests in sorted(folder.rglob("tests")):
        if tests.is_dir():
            shutil.rmtree(tests)
    for name in ("direct_url.json", "uv_cache.json", ".lock"):
        for path in folder.rglob(name):
            path.unlink()
    for record in folder.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text(
            "".join(line for line in lines if (folder / line.split(",")[0].strip('"')).exists())
        )
