"""Running other programs: errors that can be read, locks that last, daemons that let go."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import vigia
from vigia.errors import VigiaError
from vigia.host import commands, netns
from vigia.host.commands import CommandError
from vigia_testing import DEADLINE


@pytest.fixture
def namespace(root: None) -> Iterator[str]:
    name = f"vigia-test-commands-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


def test_output() -> None:
    done = commands.run(["sh", "-c", "cat; echo warning >&2"], stdin="hello\n")
    assert (done.status, done.stdout, done.stderr) == (0, "hello\n", "warning\n")


def test_a_failure_shows_the_command_and_what_it_said() -> None:
    with pytest.raises(CommandError) as e:
        commands.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"])
    assert str(e.value) == "sh -c 'echo first >&2; echo second >&2; exit 3': exit status 3: first | second"


def test_a_failure_may_be_asked_for() -> None:
    assert commands.run(["false"], check=False).status == 1


def test_a_missing_program() -> None:
    with pytest.raises(CommandError) as e:
        commands.run(["vigia-no-such-program", "--now"])
    assert str(e.value) == "vigia-no-such-program --now: vigia-no-such-program is not installed"


def test_a_program_that_may_not_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("")
    with pytest.raises(CommandError, match=r"cannot be run: .*Permission denied"):
        commands.run([str(program)])


def test_a_time_limit() -> None:
    with pytest.raises(CommandError) as e:
        commands.run(["sleep", "60"], timeout=0.2)
    assert str(e.value) == "sleep 60: still running after 0.2 s, killed"


def test_words_are_never_a_shell_line() -> None:
    assert commands.run(["echo", "$(id); ls | cat"]).stdout == "$(id); ls | cat\n"


def test_the_environment() -> None:
    done = commands.run(["env"], env={"OVS_RUNDIR": "/x"})
    lines = done.stdout.splitlines()
    assert "OVS_RUNDIR=/x" in lines
    assert "LC_ALL=C" in lines, "output is parsed: no translations"
    path = next(line for line in lines if line.startswith("PATH="))
    assert "/usr/sbin" in path.split("=")[1].split(":")


def test_programs_in_sbin_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert commands.find("tc") in ("/usr/sbin/tc", "/sbin/tc")
    assert commands.find("vigia-no-such-program") is None


@pytest.mark.netns
def test_ip_batch_shows_the_line_that_failed(namespace: str) -> None:
    with pytest.raises(CommandError) as e:
        commands.ip_batch(
            ["link set lo up", "link add name v0 type nonsense", "link set lo down"], netns=namespace
        )
    assert str(e.value).startswith(
        f"ip -n {namespace} link add name v0 type nonsense: exit status 1: Error: Unknown device type."
    )
    flags = commands.run(["ip", "-brief", "link", "show", "lo"], netns=namespace).stdout
    assert "UP" in flags, "the lines before the failed one are done, those after it are not"


@pytest.mark.netns
def test_tc_batch_shows_the_line_that_failed(namespace: str) -> None:
    with pytest.raises(
        CommandError, match=f"^tc -n {namespace} qdisc add dev nodev root pfifo: exit status 1: "
    ):
        commands.tc_batch(["qdisc add dev lo root pfifo", "qdisc add dev nodev root pfifo"], netns=namespace)
    assert "pfifo" in commands.run(["tc", "qdisc", "show", "dev", "lo"], netns=namespace).stdout


@pytest.mark.netns
def test_ip_batch_by_force_goes_on(namespace: str) -> None:
    commands.ip_batch(["link set nodev up", "link set lo up"], netns=namespace, force=True)
    assert "UP" in commands.run(["ip", "-brief", "link", "show", "lo"], netns=namespace).stdout


def test_an_empty_batch_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    commands.ip_batch([])
    commands.tc_batch([])


@pytest.mark.netns
def test_inside_a_namespace_only_the_network_is_another(namespace: str) -> None:
    inside = commands.run(["readlink", "/proc/self/ns/net", "/proc/self/ns/mnt"], netns=namespace)
    outside = commands.run(["readlink", "/proc/self/ns/net", "/proc/self/ns/mnt"])
    (net_in, mnt_in), (net_out, mnt_out) = inside.stdout.split(), outside.stdout.split()
    assert net_in != net_out
    assert mnt_in == mnt_out, "pins below /run must be seen"
    assert net_in == f"net:[{netns.inode(namespace)}]"


def test_a_namespace_that_is_not_there(root: None) -> None:
    with pytest.raises(VigiaError) as e:
        commands.run(["true"], netns="vigia-test-absent")
    assert str(e.value) == (
        "network namespace vigia-test-absent does not exist; bring the lab up: vigia lab up"
    )


def descriptors(pid: int) -> list[str]:
    """What a process has open; it may close files meanwhile."""
    out = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            out.append(str(entry.readlink()))
    return out


def test_commands_keep_a_lock_and_daemons_do_not(tmp_path: Path, root: None, namespace: str) -> None:
    """A lock passes on to commands, so nobody works beside one that outlives a killed parent."""
    lock = tmp_path / "lock"
    show = ["sh", "-c", "ls -l /proc/$$/fd"]
    with lock.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        os.set_inheritable(f.fileno(), True)
        assert str(lock) in commands.run(show).stdout
        record = tmp_path / "record"
        commands.start_daemon(["sh", "-c", f"ls -l /proc/$$/fd > {record}"], netns=namespace, env={})
        assert str(lock) not in record.read_text()
        child = commands.spawn(["sleep", "60"], "")
        try:
            assert str(lock) not in descriptors(child.pid)
        finally:
            child.kill()
            child.communicate()


def test_a_spawned_command_gets_its_input_and_gives_its_output() -> None:
    child = commands.spawn(["tr", "a-z", "A-Z"], "vigia")
    assert child.communicate(timeout=DEADLINE) == ("VIGIA", "")


def test_ctrl_c_reaches_this_program_and_not_its_commands() -> None:
    done = commands.run(["ps", "-o", "sid=", "-p", "self"], check=False)
    session = commands.run(["sh", "-c", "ps -o sid= -p $$"])
    assert int(session.stdout) != os.getsid(0), done


@pytest.mark.netns
def test_becoming_another_program(namespace: str) -> None:
    code = (
        "from vigia.host import commands; "
        f"commands.replace_process(['sh', '-c', 'readlink /proc/$$/ns/net; exit 7'], netns={namespace!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (7, f"net:[{netns.inode(namespace)}]")


@pytest.mark.netns
def test_becoming_a_program_that_is_not_there(namespace: str) -> None:
    code = (
        "from vigia import errors\nfrom vigia.host import commands\n"
        f"try: commands.replace_process(['vigia-no-such-program'], netns={namespace!r})\n"
        "except errors.VigiaError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "vigia-no-such-program: cannot be run: No such file or directory\n"


def test_one_module_runs_programs() -> None:
    """Everything else goes through it: no other module starts a process or a shell."""
    source = Path(vigia.__file__).parent
    starting = (
        "subprocess.run(",
        "subprocess.Popen(",
        "os.system(",
        "os.exec",
        "os.spawn",
        "os.popen(",
        "pty.",
    )
    found: Callable[[Path], bool] = lambda p: any(word in p.read_text() for word in starting)  # noqa: E731
    assert [str(p.relative_to(source)) for p in sorted(source.rglob("*.py")) if found(p)] == [
        "host/commands.py"
    ]
    assert "shell=True" not in Path(commands.__file__).read_text()
