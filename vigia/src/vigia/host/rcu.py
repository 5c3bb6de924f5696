"""The kernel's switch for RCU grace periods that end at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vigia.host import commands

SWITCH = Path("/sys/kernel/rcu_expedited")

# It turns the switch back when its standard input ends, also because the caller was killed.
_KEEPER = 'echo 1 > "$0" && echo on && read -r _; echo 0 > "$0"'


@contextmanager
def expedited(switch: Path = SWITCH) -> Iterator[bool]:
    """Let many namespaces and links come and go quickly; yields whether grace periods are expedited by this.

    The kernel waits for a grace period, some 10 ms, for each. Expedited ones interrupt every
    processor, so that nothing should be measured meanwhile. Where the switch may not be
    written, or an administrator has it on, nothing happens.
    """
    try:
        off = switch.read_text().strip() == "0"
        if off:
            switch.write_text("0")
    except OSError:
        off = False
    if not off:
        yield False
        return
    keeper = commands.keep(["sh", "-c", _KEEPER, str(switch)])
    assert keeper.stdin is not None and keeper.stdout is not None  # noqa: S101 - for the type checker
    try:
        yield keeper.stdout.readline() == "on\n"
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
