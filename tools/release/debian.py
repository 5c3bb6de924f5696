"""Debian packages: vigia-base (users, folders), vigia-node (agents), vigia-site (services), vigia-cli.

They are written by dpkg-deb, whose output depends on files and SOURCE_DATE_EPOCH alone with one thread. The
Python services bring what they import, as locked: Debian has other versions of it. Configuration is the
administrator's and in no package, so that an upgrade never asks about it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from release.build import COMMANDS, PROGRAMS, SITE, Build
from release.downloads import commands, site

__all__ = ["cli_packages", "node_packages", "site_packages"]

_HEAD = "#!/bin/sh\n# Made by make release.\nset -e\n"

_BASE = {
    "postinst": """
if [ "$1" = configure ]; then
  systemd-sysusers vigia.conf
  systemd-tmpfiles --create vigia.conf || true # without systemd, /sys/fs/bpf may be missing
fi
""",
    "postrm": """
if [ "$1" = purge ]; then
  rm -rf /etc/vigia /var/lib/vigia
  for user in vigia-probe vigia-compare isolation-agent vigia; do
    rm -rf "/var/lib/$user"
    if getent passwd "$user" > /dev/null; then userdel "$user" 2> /dev/null || true; fi
  done
fi
""",
}

_COMMANDS = {
    "postinst": """
if [ "$1" = configure ]; then py3compile -p vigia-cli /usr/lib/vigia-cli; fi
""",
    "prerm": """
py3clean -p vigia-cli /usr/lib/vigia-cli
""",
}

_SERVICES = {
    "postinst": """
if [ "$1" = configure ]; then
  @COMPILE@
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload > /dev/null || true
    # What runs goes on with the new program, if that takes its configuration; else with the old one.
    @EACH@
      systemctl --quiet is-active "$unit.service" || continue
      if "/usr/bin/$unit" --config "/etc/vigia/$file.yaml" check-config > /dev/null; then
        deb-systemd-invoke restart "$unit.service" > /dev/null || true
      else
        echo "cannot restart $unit: version @VERSION@ does not take /etc/vigia/$file.yaml." >&2
        echo "The old one still runs. Mend what it says above, then: systemctl restart $unit" >&2
      fi
    done
    @ALSO@
  fi
fi
""",
    "prerm": """
if [ "$1" = remove ]; then
  if [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now @UNITS@ || true
  fi
  @DETACH@
fi
@CLEAN@
""",
    "postrm": """
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload > /dev/null || true
fi
if [ "$1" = purge ]; then
  rm -rf @STATE@
  for unit in @NAMES@; do rm -f "/etc/default/$unit"; done
fi
""",
}


PLUG = "vigia-plug"
"""The unit of a command of vigia-probe, which has no file of settings to be checked."""

_UNPLUG = """if [ -e /run/vigia-plug/state.json ]; then
    ARGS=
    if [ -r /etc/default/vigia-plug ]; then . /etc/default/vigia-plug; fi
    if vigia-probe plug --remove $ARGS; then rm -rf /run/vigia-plug
    else echo "cannot take away all endpoints of probes; those of the kernel go with a reboot" >&2; fi
  fi"""
"""Takes away what the command has plugged, in a shell."""

_RESTART = """for unit in @PLAIN@; do
      systemctl --quiet is-active "$unit.service" || continue
      deb-systemd-invoke restart "$unit.service" > /dev/null || true
    done"""
"""Has units that run go on with the new program."""

_PYTHON = ("libc6 (>= 2.28)", "libstdc++6", "python3 (>= 3.11~)", "python3 (<< 3.12~)")
"""What compiled parts of Python packages need of Debian 12."""


@dataclass(frozen=True)
class Package:
    """What goes into one package."""

    name: str
    architecture: str
    summary: str
    text: str
    depends: Sequence[str]
    root: Path
    recommends: str = ""
    scripts: Mapping[str, str] = field(default_factory=dict)


def node_packages(build: Build) -> None:
    """Write the packages of a node, and the one that all need."""
    _write(build, _base(build))
    for architecture in build.architectures:
        _write(build, _node(build, architecture))


def site_packages(build: Build) -> None:
    """Write the package of a site for each architecture."""
    for architecture in build.architectures:
        _write(build, _site(build, architecture))


def cli_packages(build: Build) -> None:
    """Write the package of the vigia command for each architecture."""
    for architecture in build.architectures:
        _write(build, _cli(build, architecture))


def _base(build: Build) -> Package:
    node = build.node(build.architectures[0])
    root = build.work / "vigia-base"
    for name in ("usr/lib/sysusers.d/vigia.conf", "usr/lib/tmpfiles.d/vigia.conf"):
        _copy(node / name, root / name)
    return Package(
        "vigia-base",
        "all",
        "users and folders of Vigia",
        "System users, /etc/vigia and /var/lib/vigia, which the agents of a node and the\n"
        " services of a site have in common.",
        ["systemd", "passwd"],
        root,
        scripts=_BASE,
    )


def _node(build: Build, architecture: str) -> Package:
    node, root = build.node(architecture), build.work / f"vigia-node-{architecture}"
    for name in PROGRAMS:
        _copy(node / "usr/bin" / name, root / "usr/bin" / name)
    _units(build, root, (*PROGRAMS, PLUG))
    detach = (
        "vigia-exporter uninstall > /dev/null || "
        'echo "cannot remove the programs at ports; they go with a reboot" >&2'
    )
    return Package(
        "vigia-node",
        architecture,
        "network observability and isolation: a node's agents",
        "vigia-probe measures the paths between nodes, vigia-exporter tells what tenants'\n"
        " ports carry and drop, vigia-enforcer keeps what tenants bought. Static programs.",
        [f"vigia-base (= {build.source.debian})"],
        root,
        scripts=_scripts(
            build,
            dict(zip(PROGRAMS, ("probe", "exporter", "enforcer"), strict=True)),
            detach=f"{detach}\n  {_UNPLUG}",
            commands=(PLUG,),
        ),
    )


def _site(build: Build, architecture: str) -> Package:
    root = build.work / f"vigia-site-{architecture}"
    _python(root, site(build, architecture), "vigia-site", {n: f"{m}.cli" for n, m in SITE.items()})
    _units(build, root, SITE)
    shared = root / "usr/share/vigia"
    for path in sorted(build.tree.glob("alert-rules/*.rules.yml")):
        _copy(path, shared / "alert-rules" / path.name)
    for path in sorted(build.tree.glob("dashboards/json/*.json")):
        _copy(path, shared / "dashboards" / path.name)
    examples = root / "usr/share/doc/vigia-site/examples"
    for name in ("compare/compare.yaml", "isolation-agent/policies.yaml", "prometheus/prometheus.yml"):
        _copy(build.tree / "deploy" / name, examples / Path(name).name)
    return Package(
        "vigia-site",
        architecture,
        "network observability and isolation: a site's services",
        "isolation-agent turns alerts into limits at tenants' ports, vigia-compare says which\n"
        " path is better, vigia-identity names tenants and owners of ports. Alert rules and\n"
        " dashboards are in /usr/share/vigia.",
        [f"vigia-base (= {build.source.debian})", *_PYTHON],
        root,
        scripts=_scripts(
            build,
            {"isolation-agent": "isolation-agent", "vigia-compare": "compare", "vigia-identity": "identity"},
            compiled="/usr/lib/vigia-site",
        ),
    )


def _cli(build: Build, architecture: str) -> Package:
    root = build.work / f"vigia-cli-{architecture}"
    _python(root, commands(build, architecture), "vigia-cli", COMMANDS)
    return Package(
        "vigia-cli",
        architecture,
        "network observability and isolation: the vigia command",
        "vigia top, vigia status and vigia explain show what a site is like and why, vigia doctor\n"
        " what a machine lacks, kubectl-vigia the same of a cluster. Labs, the demo and campaigns\n"
        " need the source tree.",
        list(_PYTHON),
        root,
        "iproute2, libpango-1.0-0, libpangoft2-1.0-0",  # what doctor tries the kernel with; reports as PDF
        _COMMANDS,
    )


def _python(root: Path, packages: Path, name: str, programs: Mapping[str, str]) -> None:
    """Bring Python packages in a folder that only these programs, by the module of main(), look into."""
    shutil.copytree(packages, root / "usr/lib" / name)
    for program, module in programs.items():
        start = root / "usr/bin" / program
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text(
            f'#!/usr/bin/python3 -I\nimport sys\n\nsys.path.insert(0, "/usr/lib/{name}")\n'
            f"from {module} import main\n\nsys.exit(main())\n"
        )
        start.chmod(0o755)


def _units(build: Build, root: Path, names: Sequence[str] | Mapping[str, str]) -> None:
    for name in names:
        unit = f"{name}.service"
        _copy(build.tree / "deploy/systemd" / unit, root / "usr/lib/systemd/system" / unit)


def _scripts(
    build: Build,
    files: Mapping[str, str],
    detach: str = "",
    compiled: str = "",
    commands: Sequence[str] = (),
) -> dict[str, str]:
    """Return the maintainer's scripts of services, by the configuration file of each; commands have none."""
    pairs = " ".join(f"{unit}:{file}" for unit, file in files.items())
    package = "vigia-site" if compiled else "vigia-node"
    values = {
        "@COMPILE@": f"py3compile -p {package} {compiled}" if compiled else ":",
        "@CLEAN@": f"py3clean -p {package} {compiled}" if compiled else ":",
        "@DETACH@": detach or ":",
        "@EACH@": f"for pair in {pairs}; do unit=${{pair%%:*}} file=${{pair#*:}}",
        "@ALSO@": _RESTART.replace("@PLAIN@", " ".join(commands)) if commands else ":",
        "@UNITS@": " ".join(f"{unit}.service" for unit in (*files, *commands)),
        "@NAMES@": " ".join((*files, *commands)),
        "@STATE@": " ".join(f"/var/lib/{unit}" for unit in files),
        "@VERSION@": build.source.version,
    }
    out = dict(_SERVICES)
    for mark, value in values.items():
        out = {name: text.replace(mark, value) for name, text in out.items()}
    return out


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _write(build: Build, package: Package) -> None:
    """Have dpkg-deb write a package."""
    root, version = package.root, build.source.debian
    doc = root / "usr/share/doc" / package.name
    for source, name in (("LICENSE", "copyright"), ("CHANGELOG.md", "CHANGELOG.md")):
        _copy(build.tree / source, doc / name)
    if package.name == "vigia-base":
        _copy(build.tree / "README.md", root / "usr/share/doc/vigia/README.md")  # which the units name
    for path in sorted(root.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    size = sum((p.stat().st_size + 1023) // 1024 for p in root.rglob("*") if p.is_file())
    control = root / "DEBIAN"
    control.mkdir(mode=0o755)
    recommends = f"Recommends: {package.recommends}\n" if package.recommends else ""
    (control / "control").write_text(
        f"Package: {package.name}\nVersion: {version}\nArchitecture: {package.architecture}\n"
        f"Maintainer: Vigia <vigia@example.org>\nSection: net\nPriority: optional\nInstalled-Size: {size}\n"
        f"Depends: {', '.join(package.depends)}\n{recommends}"
        f"Description: {package.summary}\n {package.text}\n"
    )
    for name, text in package.scripts.items():
        (control / name).write_text(_HEAD + text.lstrip("\n"))
        (control / name).chmod(0o755)
    file = build.path(f"{package.name}_{version}_{package.architecture}.deb")
    build.run("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "-z1", "--build", root, file)
