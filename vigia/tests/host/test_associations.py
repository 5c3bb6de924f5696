"""What ip xfrm prints of IPsec associations, read; the node agents' tests have those of a real strongSwan."""

from __future__ import annotations

from pathlib import Path

import pytest

from vigia.host import associations, commands


def test_kernel_associations_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ip xfrm state prints them; a machine without ESP in its kernel has none to show."""
    printed = """src 192.0.2.1 dst 192.0.2.2
\tproto esp spi 0xc1a2b3c4 reqid 1 mode tunnel
\treplay-window 32 flag af-unspec
src 192.0.2.2 dst 192.0.2.1
\tproto esp spi 0x0000beef reqid 1 mode tunnel
src 192.0.2.2 dst 192.0.2.1
\tproto comp spi 0x00001234 reqid 1 mode tunnel
"""
    monkeypatch.setattr(commands, "run", lambda *a, **k: commands.CommandResult(0, printed, ""))
    assert associations.in_kernel(None) == {"c1a2b3c4", "0000beef"}
    monkeypatch.undo()
    assert associations.all_of(["vigia-no-such-namespace"], [tmp_path / "none"]).keys() <= {""}
