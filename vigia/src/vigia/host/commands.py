"""The one module that runs other programs.

Every command is an argument list, never a shell string, has a time limit, and
fails with an error that shows the command and what it wrote to stderr.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from vigia.errors import VigiaError
from vigia.host import netns as namespaces

__all__ = [
    "CommandError",
    "CommandResult",
    "bridge_batch",
    "detach",
    "find",
    "ip_batch",
    "replace_process",
    "run",
    "spawn",
    "start",
    "start_daemon",
    "tc_batch",
]

TIMEOUT = 30.0
"""Seconds after which a command that has not ended is killed."""

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on every user's PATH


@dataclass(frozen=True)
class CommandResult:
    """What a command left behind."""

    status: int
    stdout: str
    stderr: str


class CommandError(VigiaError):
    """A command that could not run, ran too long, or ended with a status other than 0."""

    def __init__(self, argv: Sequence[str], problem: str, stderr: str = "") -> None:
        said = " | ".join(line.strip() for line in stderr.splitlines() if line.strip())
        super().__init__(f"{shlex.join(argv)}: {problem}" + (f": {said}" if said else ""))
        self.stderr = stderr


def find(program: str) -> str | None:
    """Return where a program is: on PATH or in the system's sbin folders."""
    return shutil.which(program, path=_path())


def run(  # noqa: PLR0913 - as subprocess.run
    argv: Sequence[str],
    *,
    netns: str | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    check: bool = True,
) -> CommandResult:
    """Run a command to its end, inside a network namespace if one is named.

    Inheritable descriptors are passed on: a lock that is held stays held until
    the command has ended, even if this process is killed. Raises CommandError,
    for a status other than 0 only if check is set.
    """
    return _run(argv, netns, stdin, env, timeout, check, keep_descriptors=True)


def start_daemon(argv: Sequence[str], *, netns: str, env: Mapping[str, str]) -> None:
    """Run a command that goes to the background by itself; it inherits no descriptor."""
    _run(argv, netns, "", env, TIMEOUT, True, keep_descriptors=False)


def _run(  # noqa: PLR0913 - what both of its callers say
    argv: Sequence[str],
    netns: str | None,
    stdin: str,
    env: Mapping[str, str] | None,
    timeout: float,
    check: bool,
    keep_descriptors: bool,
) -> CommandResult:
    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env=_environment(env),
            close_fds=not keep_descriptors,
            start_new_session=True,  # Ctrl-C is for this program, which then cleans up
        )

    try:
        done = call() if netns is None else namespaces.inside(netns, call)
    except FileNotFoundError as e:
        raise CommandError(argv, f"{argv[0]} is not installed") from e
    except subprocess.TimeoutExpired as e:
        raise CommandError(argv, f"still running after {timeout:g} s, killed") from e
    except OSError as e:
        raise CommandError(argv, f"cannot be run: {e}") from e
    if check and done.returncode != 0:
        raise CommandError(argv, f"exit status {done.returncode}", done.stderr)
    return CommandResult(done.returncode, done.stdout, done.stderr)


_BATCH_LINE = re.compile(r"Command failed -:(\d+)")


def ip_batch(lines: Sequence[str], *, netns: str | None = None, force: bool = False) -> None:
    """Run ip(8) commands in one process. Raises CommandError that shows the failed line.

    With force, the other lines are run in spite of failures, which are not reported.
    """
    _batch("ip", lines, netns, force)


def tc_batch(lines: Sequence[str], *, netns: str | None = None) -> None:
    """Run tc(8) commands in one process. Raises CommandError that shows the failed line."""
    _batch("tc", lines, netns, False)


def bridge_batch(lines: Sequence[str], *, netns: str | None = None) -> None:
    """Run bridge(8) commands in one process. Raises CommandError that shows the failed line."""
    _batch("bridge", lines, netns, False)


def _batch(program: str, lines: Sequence[str], netns: str | None, force: bool) -> None:
    if not lines:
        return
    argv = [program, *(["-force"] if force else []), "-batch", "-"]
    done = run(argv, netns=netns, stdin="".join(f"{line}\n" for line in lines), check=False)
    if done.status == 0 or force:
        return
    failed = _BATCH_LINE.search(done.stderr)
    line = lines[int(failed[1]) - 1] if failed else "-batch -"
    where = [program, *(["-n", netns] if netns else []), *line.split()]
    raise CommandError(where, f"exit status {done.status}", _BATCH_LINE.sub("", done.stderr))


def spawn(argv: Sequence[str], stdin: str = "", *, netns: str | None = None) -> subprocess.Popen[str]:
    """Start a command whose output is read later; the caller waits for it or kills it.

    Raises CommandError if it cannot be started.
    """

    def call() -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(None),
            start_new_session=True,
        )

    try:
        child = call() if netns is None else namespaces.inside(netns, call)
    except OSError as e:
        raise CommandError(argv, f"cannot be run: {e.strerror}") from e
    assert child.stdin is not None  # noqa: S101 - for the type checker: PIPE was asked for
    child.stdin.write(stdin)
    child.stdin.close()
    child.stdin = None
    return child


def keep(argv: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command that runs until its standard input is closed, also because the caller was killed.

    Raises CommandError if it cannot be started.
    """
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(None),
            start_new_session=True,
        )
    except OSError as e:
        raise CommandError(argv, f"cannot be run: {e.strerror}") from e


def start(argv: Sequence[str], *, log: Path, netns: str | None = None) -> subprocess.Popen[bytes]:
    """Start a command that runs beside this one and writes to log. Raises CommandError.

    The caller ends it.
    """

    def call() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(None),
                start_new_session=True,
            )

    try:
        return call() if netns is None else namespaces.inside(netns, call)
    except OSError as e:
        raise CommandError(argv, f"cannot be run: {e.strerror}") from e


def detach(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
    """Start a command that outlives this one, in a session of its own, and return its process.

    It inherits no descriptor and writes to log. Raises CommandError.
    """
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(env),
                start_new_session=True,
            )
    except OSError as e:
        raise CommandError(argv, f"cannot be run: {e.strerror}") from e
    child.returncode = 0  # nobody waits for it here, and that is meant
    return child.pid


def replace_process(argv: list[str], *, netns: str | None = None) -> NoReturn:
    """Become another command, inside a network namespace if one is named. Raises CommandError."""
    try:
        if netns is not None:
            namespaces.enter(netns)
        os.execvpe(argv[0], argv, {**os.environ, "PATH": _path()})  # noqa: S606 - no shell wanted
    except OSError as e:
        raise CommandError(argv, f"cannot be run: {e.strerror}") from e


def _path() -> str:
    path = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([path, *(d for d in _SBIN if d not in path.split(os.pathsep))])


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PATH": _path(), "LC_ALL": "C", **(extra or {})}
