"""Images, without daemon or registry: what deploy/docker/Dockerfile says, an OCI archive per architecture.

The Go programs are alone in theirs. The Python services stand on packages of Debian 12 that are unpacked and
not installed, so that those of another architecture need no machine of it.
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import unquote

from release.build import PYTHON, SITE, Build
from release.downloads import site
from release.source import Refused
from vigia.lab.kubernetes.archive import Archive, Content

__all__ = ["debian_packages", "images"]

_PATH = "PATH=/usr/bin:/bin"
_GO = {"probe": "65528:65528", "probe-unprivileged": "65528:65528", "exporter": "0", "enforcer": "0"}
_PYTHON = {"isolation-agent": "65532:65532", "compare": "65531:65531", "identity": "65527:65527"}
_RIGHTS = (10, 12, 13, 21)
"""CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN: what the probe's image has setcap give."""

_DEBIAN = (f"python{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libstdc++6", "ca-certificates")
_LEFT_OUT = re.compile(
    r"(dev|proc|sys|run|tmp|var|boot|home|mnt|opt|root|srv|etc/(?!ssl|ld\.so))\b|usr/share/(?!ca-cert|doc/[^/]+/copyright)"
)
"""Of Debian: devices, documents, what apt and dpkg keep."""


def images(build: Build) -> None:
    """Write an archive of all images for each architecture."""
    for architecture in build.architectures:
        file = build.work / f"images-{architecture}.tar"
        archive = Archive(file, architecture)
        _programs(build, archive)
        _services(build, archive)
        archive.finish()
        name = f"vigia-images-{build.source.version}-linux-{architecture}.tar.gz"
        with (
            file.open("rb") as plain,
            build.path(name).open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=build.source.epoch) as zipped,
        ):
            shutil.copyfileobj(plain, zipped, 1 << 20)
        file.unlink()


def _programs(build: Build, archive: Archive) -> None:
    for image, user in _GO.items():
        program = f"vigia-{image.partition('-')[0]}"
        content: list[Content] = [
            (build.node(archive.architecture) / "usr/bin" / program, f"usr/bin/{program}")
        ]
        layer = archive.layer(content, _RIGHTS if image == "probe" else ())
        archive.image(f"vigia/{image}:{build.source.version}", [layer], [program], user, [_PATH])


def _services(build: Build, archive: Archive) -> None:
    base = archive.layer(
        [(path, path.name) for path in sorted(_debian(build, archive.architecture).iterdir())]
    )
    libraries = archive.layer([(site(build, archive.architecture), "opt/vigia")])
    for image, user in _PYTHON.items():
        module = SITE[image if image in SITE else f"vigia-{image}"]
        start = f"import sys; from {module}.cli import main; sys.exit(main())"
        settings = [_PATH, "PYTHONPATH=/opt/vigia", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"]
        words = [f"/usr/bin/python{PYTHON}", "-c", start]
        archive.image(f"vigia/{image}:{build.source.version}", [base, libraries], words, user, settings)


def debian_packages(build: Build) -> list[tuple[str, str, str]]:
    """Return name, version and architecture of every Debian package in the images."""
    found = []
    for architecture in build.architectures:
        listed = build.work / f"debian-{architecture}.txt"
        for file in listed.read_text().split() if listed.exists() else ():
            name, version, kind = unquote(Path(file).stem).split("_")
            found.append((name, version, kind))
    return sorted(set(found))


def _debian(build: Build, architecture: str) -> Path:
    """Unpack Debian's Python and what it needs, checked by apt as it checks all it downloads."""
    folder, tar = build.work / f"debian-{architecture}", build.work / f"debian-{architecture}.tar"
    listed = build.work / f"debian-{architecture}.txt"
    listed.unlink(missing_ok=True)
    hook = f'cd "$1/var/cache/apt/archives" && ls *.deb > {shlex.quote(str(listed))}'
    build.run(
        *("mmdebstrap", "--quiet", "--variant=extract", f"--architectures={architecture}"),
        *(f"--include={','.join(_DEBIAN)}", f"--extract-hook={hook}"),
        *("bookworm", tar, *(build.debian or _sources())),
    )
    with tarfile.open(tar) as content:
        for entry in content:
            name = entry.name.removeprefix("./")
            if not _LEFT_OUT.match(name) and (entry.isreg() or entry.issym() or entry.isdir()):
                content.extract(entry, folder, filter="fully_trusted")  # as apt has verified it
    authorities = sorted((folder / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = folder / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(path.read_bytes() for path in authorities))
    bundle.chmod(0o644)
    return folder


def _sources() -> list[str]:
    """Return where this machine has Debian 12 from, as lines of sources.list."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    argv = ["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Origin: Debian"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    found = sorted({line for line in lines if line.split()[2].startswith("bookworm")})
    if not found:
        raise Refused(
            "cannot make images: this machine has no Debian 12 to take Python from; say where it is: "
            "--debian 'deb URL bookworm main' (apt-get update first, if this is Debian 12)"
        )
    return found
