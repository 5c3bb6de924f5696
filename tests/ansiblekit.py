"""Running the role of deploy/ansible against a node of the tests' own, as people run it: ansible-playbook, over ssh."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import ROOT
from nodekit import Node

__all__ = ["Play", "Playbook"]

PROGRAM = Path(sys.executable).with_name("ansible-playbook")


@dataclass(frozen=True)
class Play:
    """What a run of a playbook did to the node."""

    status: int
    said: str
    changed: int
    failed: int


@dataclass(frozen=True)
class Playbook:
    """The shipped playbook, with an inventory of one node, which is reached by a program in place of ssh."""

    node: Node
    folder: Path

    def run(self, *options: str, **variables: Any) -> Play:
        """Run it with variables of the role."""
        return self.run_text((ROOT / "deploy/ansible/node.yml").read_text(), *options, **variables)

    def run_text(self, text: str, *options: str, **variables: Any) -> Play:
        playbook, given = self.folder / "node.yml", self.folder / "variables.json"
        playbook.write_text(text)
        given.write_text(json.dumps(variables))
        argv = [
            str(PROGRAM),
            "--inventory",
            str(self._inventory()),
            "--extra-vars",
            f"@{given}",
            *options,
            str(playbook),
        ]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment(),
            cwd=self.folder,
            timeout=1800,
        )
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        recap = re.search(r"^compute1 +: ok=\d+ +changed=(\d+) .*failed=(\d+)", said, re.MULTILINE)
        changed, failed = (int(n) for n in recap.groups()) if recap else (0, 1)
        return Play(done.returncode, said, changed, failed)

    def _environment(self) -> Mapping[str, str]:
        own = {
            "ANSIBLE_HOME": f"{self.folder}/home",
            "ANSIBLE_ROLES_PATH": f"{ROOT}/deploy/ansible/roles",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "LC_ALL": "C.UTF-8",
        }
        return {**os.environ, **own}

    def _inventory(self) -> Path:
        """One node; what is in place of ssh runs the last of its words there."""
        ssh, inventory = self.folder / "ssh", self.folder / "inventory.json"
        if not ssh.exists():
            ssh.write_text(
                f'#!/bin/sh\nfor last; do :; done\nexec {" ".join(self.node.entering)} HOME=/root sh -c "$last"\n'
            )
            ssh.chmod(0o755)
        variables = {
            "ansible_ssh_executable": str(ssh),
            "ansible_ssh_transfer_method": "piped",
            "ansible_ssh_args": "",
            "ansible_host": "compute1",
            "ansible_become": False,  # it is root there
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        groups = {"compute": {"hosts": {"compute1": variables}}}
        inventory.write_text(json.dumps({"all": {"children": groups}}))
        return inventory
