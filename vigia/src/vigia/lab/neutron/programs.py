"""The programs of OpenStack, OVN, MariaDB and RabbitMQ: Debian packages, unpacked once and not installed.

They see their own /usr above the machine's, in a mount namespace that ends with them (enter.sh).
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from vigia.console import Steps
from vigia.lab import packages

__all__ = ["PACKAGES", "find", "prepare"]

PACKAGES = (
    "keystone",
    "mariadb-server",
    "neutron-linuxbridge-agent",
    "neutron-openvswitch-agent",
    "neutron-server",
    "ovn-central",
    "ovn-host",
    "python3-pymysql",
    "rabbitmq-server",
    "uwsgi-plugin-python3",
)
"""With what they depend on: of one release of Debian, also where the machine has other versions of some."""


def find() -> Path:
    """Return the root of the programs, whether it is there or not. Raises VigiaError."""
    made_from = f"{platform.machine()} {' '.join(PACKAGES)} {packages.release()}"
    return packages.cache() / f"openstack-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"


def prepare(steps: Steps) -> None:
    """Fetch and unpack what is not there yet. Raises VigiaError."""
    root = find()
    if not root.exists():
        with steps.step("unpacking OpenStack's packages (180 MB to fetch)", expected=150) as done:
            done.append(f"unpacked {packages.unpack_closure(PACKAGES, root)} Debian packages below {root}")
