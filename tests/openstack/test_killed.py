"""A cloud of OpenStack whose bringing up was killed.

Apart from the clouds' stories: the last of these is up until its file ends.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from labkit import Machine
from openstackkit import NAME, PATIENCE, down, up

from vigia.lab.neutron.guest import DOMAIN
from vigia_testing import eventually

pytestmark = [pytest.mark.openstack, pytest.mark.long]


GUEST = f"/run/vigia/{NAME}/nodes/node1/libvirt/run/qemu/{DOMAIN}.pid"


@pytest.mark.parametrize(
    ("cloud", "line", "file"),
    [
        ("neutron-ovs", "answers", "/"),
        ("neutron-ovs", "agent", "/"),
        ("neutron-ovn", "plugged", GUEST),  # which is there soonest
    ],
    ids=["database", "agents", "guest"],
)
def test_a_cloud_that_was_killed_on_its_way_leaves_nothing(
    tmp_path: Path, cloud: str, line: str, file: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    before = Machine.now(NAME)
    with subprocess.Popen(up(cloud, tmp_path), stdout=subprocess.PIPE, text=True) as making:
        assert making.stdout is not None
        assert any(line in said for said in making.stdout), "it ended before it was killed"
        eventually(Path(file).exists, f"{file} to be there", PATIENCE)
        making.kill()
    down()
    assert Machine.now(NAME) == before
