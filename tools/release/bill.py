"""The bill of materials, as CycloneDX: every module that is linked, every package that is brought along."""

from __future__ import annotations

import re
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release.build import PROGRAMS, Build
from release.images import debian_packages

__all__ = ["bill"]


def bill(build: Build) -> None:
    """Write it."""
    product = Component(
        name="vigia", version=build.source.version, type=ComponentType.APPLICATION, bom_ref="vigia"
    )
    parts = {c.bom_ref.value: c for c in (*_go(build), *_python(build), *_debian(build))}
    out = Bom(components=parts.values())
    out.metadata.component = product
    out.metadata.timestamp = datetime.fromtimestamp(build.source.epoch, UTC)
    out.serial_number = uuid.uuid5(
        uuid.NAMESPACE_URL, f"vigia:{build.source.version}:{build.source.revision}"
    )
    out.register_dependency(product, parts.values())
    text: str = JsonV1Dot6(out).output_as_string(indent=1)
    build.path(f"vigia-{build.source.version}-sbom.cdx.json").write_text(text + "\n")


def _component(url: PackageURL, hashes: Iterable[str] = ()) -> Component:
    return Component(
        name=f"{url.namespace}/{url.name}" if url.type == "golang" and url.namespace else url.name,
        version=url.version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=url.to_string(),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=h) for h in hashes],
    )


def _go(build: Build) -> Iterable[Component]:
    """Yield what the programs say that is linked into them."""
    for architecture in build.architectures:
        for program in PROGRAMS:
            said = build.run("go", "version", "-m", build.node(architecture) / "usr/bin" / program)
            version = re.search(r": go(\S+)", said)
            if version:
                yield _component(PackageURL("golang", None, "std", version[1]))
            for path, number in re.findall(r"^\tdep\t(\S+)\t(\S+)", said, re.MULTILINE):
                namespace, _, name = path.rpartition("/")
                yield _component(PackageURL("golang", namespace or None, name, number))


def _python(build: Build) -> Iterable[Component]:
    """Yield what the wheels need on Linux, as uv.lock has it."""
    words = [
        "--quiet",
        "--frozen",
        "--no-dev",
        "--no-emit-workspace",
        "--all-packages",
        "--format",
        "pylock.toml",
    ]
    lock = tomllib.loads(build.run(build.uv, "export", *words))
    for package in lock["packages"]:
        source = package.get("sdist", {}).get("hashes", {}).get("sha256")
        yield _component(
            PackageURL("pypi", None, package["name"], package["version"]), [source] if source else []
        )


def _debian(build: Build) -> Iterable[Component]:
    for name, version, architecture in debian_packages(build):
        yield _component(
            PackageURL("deb", "debian", name, version, {"arch": architecture, "distro": "debian-12"})
        )
