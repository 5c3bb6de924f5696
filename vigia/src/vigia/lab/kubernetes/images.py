"""The lab's images: what deploy/docker/Dockerfile says, made of this machine's programs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from vigia.errors import VigiaError
from vigia.host import commands
from vigia.host.source import source_root
from vigia.lab.kubernetes.archive import Archive, Content
from vigia.lab.kubernetes.places import ClusterPlaces, api_address
from vigia.lab.kubernetes.programs import ClusterPrograms
from vigia.lab.model import Lab

__all__ = ["write", "write_values"]

_REGISTRY = "lab.local"
_PATH = "PATH=/usr/bin:/bin"
_GO = {"probe-unprivileged": "65528:65528", "exporter": "0", "enforcer": "0"}
_PYTHON = {
    "isolation-agent": ("isolation_agent", "65532:65532"),
    "compare": ("vigia_compare", "65531:65531"),
    "identity": ("vigia_identity", "65527:65527"),
}
_DEBIAN = {
    "prometheus": ("prometheus", "65534:65534"),
    "alertmanager": ("prometheus-alertmanager", "65533:65533"),
}
_NAMES = (
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libresolv.so.2",
)  # what finds hosts, loaded when it is needed


def write(lab: Lab, programs: ClusterPrograms) -> str:
    """Write the archive that the nodes import. Returns what was done."""
    places = ClusterPlaces(lab.layout)
    places.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive = Archive(places.images)
    _cluster(archive, programs)
    _parts(archive)
    _python(archive, places.data / "python")
    _monitoring(archive)
    archive.finish()
    return f"made the images: {places.images.stat().st_size >> 20} MiB"


def write_values(lab: Lab) -> None:
    """Write the values by which the chart takes these images, and finds the control plane."""
    values = {
        "image": {"repository": _REGISTRY, "tag": "lab"},
        "prometheus": {"image": f"{_REGISTRY}/prometheus:lab"},
        "alertmanager": {"image": f"{_REGISTRY}/alertmanager:lab"},
        "probe": {"apiServer": {"endpoint": f"{api_address(lab)}:6443"}},
    }
    ClusterPlaces(lab.layout).values.write_text(yaml.safe_dump(values))


def _cluster(archive: Archive, programs: ClusterPrograms) -> None:
    pause = archive.layer([(programs.bin / "pause", "pause")])
    archive.image(f"{_REGISTRY}/pause:1", [pause], ["/pause"], "65535:65535", [_PATH])
    dns = archive.layer([(programs.bin / "coredns", "usr/bin/coredns")])
    archive.image(f"{_REGISTRY}/coredns:1", [dns], ["/usr/bin/coredns"], "65534:65534", [_PATH])
    busybox = programs.root / "bin/busybox"
    if not busybox.exists():
        busybox = programs.root / "usr/bin/busybox"
    box = archive.layer(
        [(busybox, f"bin/{name}") for name in ("busybox", "sh", "nc", "ping", "sleep", "wget", "nslookup")]
    )
    archive.image(f"{_REGISTRY}/busybox:1", [box], ["/bin/sh"], "0", [_PATH])


def _parts(archive: Archive) -> None:
    for name, user in _GO.items():
        program = f"vigia-{name.partition('-')[0]}"
        built = source_root() / "bin" / program
        if not built.is_file():
            raise VigiaError(f"{built} is missing; build it: make build")
        layer = archive.layer([(built, f"usr/bin/{program}")])
        archive.image(f"{_REGISTRY}/{name}:lab", [layer], [program], user, [_PATH])


def _python(archive: Archive, scratch: Path) -> None:
    """Add the Python parts: one environment for all, on the system's interpreter."""
    packages = [word for name in _PYTHON for word in ("--package", _distribution(name))]
    # What uv has built of these before may be of other sources.
    own = (*map(_distribution, _PYTHON), "vigia-internal")
    packages += [word for name in own for word in ("--refresh-package", name)]
    uv = source_root() / ".build/uv/bin/uv"
    argv = [
        str(uv),
        "sync",
        "--quiet",
        "--frozen",
        "--no-dev",
        "--no-editable",
        "--python",
        _python3(),
        *packages,
    ]
    settings = {
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "copy",
        "UV_PROJECT": str(source_root()),
        "UV_PROJECT_ENVIRONMENT": str(scratch),
        "VIRTUAL_ENV": "",
    }
    commands.run(argv, env=settings, timeout=600)
    library = Path(
        commands.run([_python3(), "-c", "import os; print(os.path.dirname(os.__file__))"]).stdout.strip()
    )
    site = next(scratch.glob("lib/python3*/site-packages"))
    objects = [p for folder in (library, site) for p in folder.rglob("*.so*") if p.is_file()]
    interpreter = Path(_python3()).resolve()
    system: list[Content] = [(interpreter, str(interpreter)), (library, str(library))]
    system += [*_system(), *_libraries([interpreter, *objects])]
    layers = [archive.layer(system), archive.layer([(site, "opt/vigia")])]
    for name, (module, user) in _PYTHON.items():
        start = f"import sys; from {module}.cli import main; sys.exit(main())"
        env = [_PATH, "PYTHONPATH=/opt/vigia", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"]
        archive.image(f"{_REGISTRY}/{name}:lab", layers, [str(interpreter), "-c", start], user, env)


def _distribution(name: str) -> str:
    return name if name == "isolation-agent" else f"vigia-{name}"


def _python3() -> str:
    """Return the system's own interpreter, which has no links into this environment."""
    return f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def _monitoring(archive: Archive) -> None:
    for name, (program, user) in _DEBIAN.items():
        found = commands.find(program)
        if found is None:
            raise VigiaError(f"{program} is not installed; install it: apt-get install {program}")
        contents: list[Content] = [(Path(found), f"usr/bin/{name}"), *_system(), *_libraries([Path(found)])]
        shared = Path("/usr/share/prometheus") / name  # Alertmanager's own templates
        contents += [(shared, str(shared))] * shared.is_dir()
        archive.image(
            f"{_REGISTRY}/{name}:lab", [archive.layer(contents)], [f"/usr/bin/{name}"], user, [_PATH]
        )


def _system() -> Iterator[Content]:
    """Certificates of authorities, and how names are found."""
    for path in (Path("/etc/ssl/certs"), Path("/etc/nsswitch.conf")):
        if path.exists():
            yield path, str(path)
    for folder in (Path("/lib/x86_64-linux-gnu"), Path("/lib/aarch64-linux-gnu")):
        for name in _NAMES:
            if (folder / name).exists():
                yield (folder / name).resolve(), str(folder / name)


def _libraries(objects: Iterable[Path]) -> list[Content]:
    """Return the shared libraries that programs and libraries need, each by the name that it is needed by."""
    found: set[str] = set()
    paths = [str(p) for p in objects]
    for begin in range(0, len(paths), 100):
        listed = commands.run(["ldd", *paths[begin : begin + 100]], check=False).stdout
        found |= set(re.findall(r"(/\S+) \(0x", listed))
    return [(Path(path).resolve(), path) for path in sorted(found)]
