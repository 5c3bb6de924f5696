"""Images without a daemon: an OCI archive written from files of this machine.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Archive", "Content"]

Content = tuple[Path, str]
"""A file or folder of this machine, and what it is called in the image."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CAPABILITIES_ARE_EFFECTIVE = 0x02000001
"""The first word of struct vfs_cap_data (linux/capability.h): revision 2, in force from the start."""

_SKIPPED = frozenset({"__pycache__"})


@dataclass(frozen=True)
class Layer:
    """A layer that is in the archive."""

    digest: str
    size: int


@dataclass
class Archive:
    """An archive that grows by layers and images; the same files make the same bytes."""

    path: Path
    architecture: str = "amd64"
    """Of the processor, as OCI calls it."""
    _manifests: list[dict[str, Any]] = field(default_factory=list)
    _blobs: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tar = tarfile.open(self.path, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by finish

    def layer(self, contents: Iterable[Content], capabilities: Sequence[int] = ()) -> Layer:
        """Add a layer with these files, root's, and an empty /tmp for all.

        Capabilities are numbers of capabilities(7), which every file gives to who executes it.
        """
        with io.BytesIO() as out:
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                _Tree(tar, capabilities).write(contents)
            raw = out.getvalue()
        return Layer(self._blob(raw), len(raw))

    def image(
        self, name: str, layers: Sequence[Layer], entrypoint: Sequence[str], user: str, env: Sequence[str]
    ) -> None:
        """Add an image of layers that are in the archive."""
        config = {
            "architecture": self.architecture,
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "User": user, "Env": list(env)},
            "rootfs": {"type": "layers", "diff_ids": [one.digest for one in layers]},
        }
        described = json.dumps(config).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "digest": self._blob(described), "size": len(described)},
                "layers": [{"mediaType": _LAYER, "digest": one.digest, "size": one.size} for one in layers],
            }
        ).encode()
        self._manifests.append(
            {
                "mediaType": _MANIFEST,
                "digest": self._blob(manifest),
                "size": len(manifest),
                "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
            }
        )

    def finish(self) -> None:
        """Write the list of images."""
        self._add("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        self._add("index.json", json.dumps({"schemaVersion": 2, "manifests": self._manifests}).encode())
        self._tar.close()

    def _blob(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._blobs:
            self._blobs.add(digest)
            self._add(f"blobs/sha256/{digest}", content)
        return f"sha256:{digest}"

    def _add(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        self._tar.addfile(entry, io.BytesIO(content))


class _Tree:
    """A layer's files: folders before what is in them, each once."""

    def __init__(self, tar: tarfile.TarFile, capabilities: Sequence[int]) -> None:
        self._tar = tar
        self._headers: dict[str, str] = {}
        if capabilities:
            permitted = sum(1 << number for number in capabilities)
            value = struct.pack(
                "<IIIII", _CAPABILITIES_ARE_EFFECTIVE, permitted & 0xFFFFFFFF, 0, permitted >> 32, 0
            )
            self._headers["SCHILY.xattr.security.capability"] = value.decode("utf-8", "surrogateescape")
        self._there: set[str] = set()

    def write(self, contents: Iterable[Content]) -> None:
        for source, name in contents:
            self._add(source, name.strip("/"))
        self._folder("tmp", 0o1777)

    def _add(self, source: Path, name: str) -> None:
        self._folders_of(name)
        if source.is_dir() and not source.is_symlink():
            for child in sorted(source.iterdir()):
                if child.name not in _SKIPPED:
                    self._add(child, f"{name}/{child.name}")
            return
        if name in self._there:
            return
        self._there.add(name)
        entry = self._tar.gettarinfo(source, name)
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        if entry.islnk():  # another name of a file that may be in no layer
            entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", source.stat().st_size
        if entry.isreg():
            entry.pax_headers = self._headers
            with source.open("rb") as content:
                self._tar.addfile(entry, content)
        else:
            self._tar.addfile(entry)

    def _folders_of(self, name: str) -> None:
        parts = name.split("/")
        for end in range(1, len(parts)):
            self._folder("/".join(parts[:end]), 0o755)

    def _folder(self, name: str, mode: int) -> None:
        if name in self._there:
            return
        self._there.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(entry)
