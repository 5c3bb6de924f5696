"""The guest of a lab's OpenStack for tests: what libvirt says of it, and what a machine gets from it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from openstackkit import PATIENCE, Cloud

from vigia.host import commands, netns
from vigia.lab.model import Endpoint
from vigia.lab.neutron import guest, guestfiles
from vigia.lab.neutron.guest import Guest

__all__ = ["domain_number", "real_guest", "taking"]


def real_guest(cloud: Cloud) -> Guest:
    """Return the guest with a kernel of its own."""
    if not guestfiles.possible():
        pytest.skip("a guest's kernel is Debian's for x86-64, which this machine is not")
    own = guest.read(cloud.lab)
    assert own is not None, "each of the clouds has one"
    return own


def domain_number(cloud: Cloud, own: Guest) -> int:
    """Return what libvirt counts the guest as, another number for each time that it is started; 0 while none answers."""
    try:
        return int(guest.libvirt(cloud.lab, own).ask("domid", guest.DOMAIN))
    except commands.CommandError:
        return 0


@contextmanager
def taking(machine: Endpoint, port: int) -> Iterator[Callable[[], int]]:
    """Take what one connection to a machine brings until the end of the context; give how many bytes came."""
    came: list[int] = []
    with netns.inside(machine.netns, lambda: socket.create_server(("", port))) as server:
        server.settimeout(PATIENCE)

        def take() -> None:
            connection, _ = server.accept()
            with connection:
                while more := connection.recv(65536):
                    came.append(len(more))

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield lambda: sum(came)
        thread.join(PATIENCE)
