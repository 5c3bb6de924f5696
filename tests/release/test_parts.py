"""The steps of a release by themselves: archives, environments, scripts of packages, checksums, signatures."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packageurl import PackageURL
from release import debian, downloads, images
from release.bill import _component
from release.build import PROGRAMS, SITE, Build, packed
from release.signature import NAMESPACE, SUMS, check_key, sign, sums
from release.source import Refused, Source, run
from releasekit import ROOT, WHO, key

SOURCE = Source("0.2.0-rc.1", "0123456789ab", 1769860800)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A build whose tree is this one."""
    for name in ("work", "out"):
        (tmp_path / name).mkdir()
    return Build(SOURCE, ROOT, tmp_path / "work", tmp_path / "out", ROOT / ".build/uv/bin/uv", ("amd64",))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An ssh-agent of the test's own."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            assert process.poll() is None
        yield {"SSH_AUTH_SOCK": str(socket)}
    finally:
        process.terminate()
        process.wait()


def test_an_archive_is_of_what_is_in_its_files_alone(tmp_path: Path) -> None:
    """Not of their order, times, owners, or rights beyond that to execute."""
    made = []
    for number, modes in enumerate([(0o644, 0o755), (0o600, 0o700)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, mode in zip(("b", "a"), modes, strict=True):
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
            os.utime(folder / name, (number, number))
        files = [(folder / name, f"x/{name}") for name in ("ab" if number else "ba")]
        made.append(packed(tmp_path / f"{number}.tar.gz", files, SOURCE.epoch).read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "0.tar.gz") as tar:
        assert [(m.name, m.mode, m.mtime) for m in tar] == [
            ("x/a", 0o755, SOURCE.epoch),
            ("x/b", 0o644, SOURCE.epoch),
        ]


def test_an_environment_does_not_say_how_it_was_installed(tmp_path: Path) -> None:
    about = tmp_path / "thing-1.dist-info"
    (tmp_path / "thing/tests").mkdir(parents=True)
    about.mkdir()
    (tmp_path / "bin").mkdir()
    for file in ("bin/thing", "thing/__init__.py", "thing/tests/test_it.py", ".lock"):
        (tmp_path / file).touch()
    (about / "direct_url.json").write_text('{"url": "file:///somewhere"}')
    (about / "RECORD").write_text(
        "bin/thing,,\nthing/__init__.py,,\nthing/tests/test_it.py,,\n"
        "thing-1.dist-info/direct_url.json,,\nthing-1.dist-info/RECORD,,\n"
    )
    downloads._tidy(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"thing/__init__.py", "thing-1.dist-info/RECORD"}
    assert (about / "RECORD").read_text() == "thing/__init__.py,,\nthing-1.dist-info/RECORD,,\n"


def scripts(build: Build) -> dict[str, dict[str, str]]:
    node = dict(zip(PROGRAMS, ("probe", "exporter", "enforcer"), strict=True))
    return {
        "base": dict(debian._BASE),
        "node": debian._scripts(
            build, node, detach=f"vigia-exporter uninstall\n  {debian._UNPLUG}", commands=(debian.PLUG,)
        ),
        "site": debian._scripts(build, {name: name for name in SITE}, compiled="/usr/lib/vigia-site"),
        "cli": dict(debian._COMMANDS),
    }


@pytest.mark.parametrize("package", ["base", "node", "site", "cli"])
def test_scripts_of_packages_are_of_the_shell_and_whole(build: Build, package: str) -> None:
    for name, text in scripts(build)[package].items():
        assert not re.search(r"@[A-Z]+@", text), f"{name} has a mark that nobody filled in"
        argv = ["sh", "-n", "-c", debian._HEAD + text]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_every_service_of_a_package_is_stopped_and_its_state_purged(build: Build) -> None:
    for package, names in (("node", PROGRAMS), ("site", tuple(SITE))):
        text = scripts(build)[package]
        for name in names:
            assert f"{name}.service" in text["prerm"]
            assert f"/var/lib/{name}" in text["postrm"]
            assert (ROOT / f"deploy/systemd/{name}.service").exists()


def test_the_unit_of_plug_is_a_nodes_and_what_it_plugged_goes_with_it(build: Build, tmp_path: Path) -> None:
    text = scripts(build)["node"]
    assert "for unit in vigia-plug; do" in text["postinst"] and "vigia-plug.service" in text["prerm"]
    assert "/etc/default/$unit" in text["postrm"] and " vigia-plug" in text["postrm"]
    assert text["prerm"].index("disable --now") < text["prerm"].index("vigia-probe plug --remove")
    # Run with programs that note how they were called: as with settings of the operator, without, and with nothing plugged.
    said, state = tmp_path / "said", tmp_path / "run/state.json"
    probe = tmp_path / "bin/vigia-probe"
    probe.parent.mkdir()
    for settings, left, status, wanted in (
        ("ARGS=--netns-prefix=own-", True, 0, "plug --remove --netns-prefix=own-\n"),
        ("", True, 0, "plug --remove\n"),
        ("", True, 1, "plug --remove\n"),
        ("", False, 0, ""),
    ):
        probe.write_text(f'#!/bin/sh\necho "$*" >> {said}\nexit {status}\n')
        probe.chmod(0o755)
        state.parent.mkdir(exist_ok=True)
        state.unlink(missing_ok=True)
        if left:
            state.write_text("{}")
        said.write_text("")
        (tmp_path / "defaults").write_text(settings)
        script = debian._UNPLUG.replace("/run/vigia-plug", str(state.parent))
        script = script.replace("/etc/default/vigia-plug", str(tmp_path / "defaults"))
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            env={"PATH": f"{probe.parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, said.read_text()) == (0, wanted), done.stderr
        assert state.exists() == (left and status == 1)
        assert ("go with a reboot" in done.stderr) == (status == 1)


def test_another_compiler_is_refused(build: Build, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module vigia\n\ntoolchain go1.1.1\n")
    other = Build(SOURCE, tmp_path, build.work, build.out, build.uv)
    with pytest.raises(Refused, match=r"releases are built with go1\.1\.1; set GOTOOLCHAIN=go1\.1\.1"):
        other.node("amd64")
    assert list(build.work.iterdir()) == []


def test_a_program_that_is_missing_or_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot run no-such-program: it is not installed"):
        run(["no-such-program"], tmp_path)
    with pytest.raises(Refused, match="cannot run sh -c echo why >&2; exit 3:\nwhy"):
        run(["sh", "-c", "echo why >&2; exit 3"], tmp_path)


def test_what_a_step_runs_sees_nothing_of_the_caller(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOFLAGS", "PYTHONPATH", "MAKEFLAGS"):
        monkeypatch.setenv(name, "x")
    seen = dict(line.split("=", 1) for line in build.run("env").splitlines() if "=" in line)
    assert {seen[n] for n in ("GOFLAGS", "PYTHONPATH", "MAKEFLAGS")} == {""}
    assert (seen["SOURCE_DATE_EPOCH"], seen["TZ"]) == (str(SOURCE.epoch), "UTC")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *(
            (n, False)
            for n in ("dev/null", "var/lib/dpkg/status", "etc/passwd", "usr/share/man/x", "usr/share/doc/a/b")
        ),
        *(
            (n, True)
            for n in ("usr/bin/python3.11", "etc/ssl/openssl.cnf", "lib/x", "usr/share/doc/a/copyright")
        ),
        ("usr/share/ca-certificates/mozilla/x.crt", True),
    ],
)
def test_what_of_debian_an_image_has(name: str, kept: bool) -> None:
    assert (images._LEFT_OUT.match(name) is None) is kept


def test_a_machine_without_debian_is_told_what_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(Refused, match="--debian 'deb URL bookworm main'"):
        images._sources()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (PackageURL("golang", "github.com/cilium", "ebpf", "v0.22.0"), "github.com/cilium/ebpf"),
        (PackageURL("golang", None, "std", "1.26.8"), "std"),
        (PackageURL("pypi", None, "numpy", "2.4.6"), "numpy"),
        (PackageURL("deb", "debian", "libc6", "2.36-9"), "libc6"),
    ],
)
def test_components_have_the_names_that_people_know(url: PackageURL, name: str) -> None:
    assert _component(url).name == name


def verified(build: Build, public: Path) -> bool:
    signers = build.work / "allowed_signers"
    signers.write_text(f'{WHO} namespaces="{NAMESPACE}" {public.read_text()}')
    argv = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", WHO, "-n", NAMESPACE]
    argv += ["-s", build.path(f"{SUMS}.sig")]
    content = build.path(SUMS).read_bytes()
    return subprocess.run(argv, input=content, capture_output=True, check=False).returncode == 0


def test_checksums_are_of_all_files_and_not_of_themselves(build: Build, tmp_path: Path) -> None:
    for name in ("b.deb", "a.whl"):
        build.path(name).write_text(name)
    first = sums(build).read_text()
    sign(build, key(tmp_path))
    assert sums(build).read_text() == first
    assert [line.split("  ")[1] for line in first.splitlines()] == ["a.whl", "b.deb"]
    argv = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(argv, cwd=build.out, capture_output=True, check=False).returncode == 0


def test_a_key_may_be_in_an_agent(
    build: Build, tmp_path: Path, agent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    private = key(tmp_path)
    monkeypatch.setenv("SSH_AUTH_SOCK", agent["SSH_AUTH_SOCK"])
    subprocess.run(["ssh-add", "-q", private], check=True)
    private.unlink()
    public = private.with_suffix(".pub")
    check_key(public)
    sums(build)
    sign(build, public)
    assert verified(build, public)
    build.path(SUMS).write_text("another")
    assert not verified(build, public)
