"""The Debian packages on a Debian of their own, as docs/how-to/release.md says: install, upgrade, refuse, remove, purge."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nodekit import AGENTS, Node, booted
from releasekit import NEW, OLD, ROOT, architecture, blocks, versions

from vigia_testing import eventually

pytestmark = [pytest.mark.long, pytest.mark.release]

NODE_GUIDE = (ROOT / "docs/how-to/node.md").read_text()
EXPORTER, ENFORCER = "http://127.0.0.1:9872", "http://127.0.0.1:9873"


@dataclass(frozen=True)
class Machine:
    """A node, and the folder of this machine that is its root."""

    node: Node
    root: Path
    packages: dict[str, Path]

    def here(self, *argv: str) -> str:
        """Run a program of this machine in the node's network."""
        words = ["nsenter", f"--target={self.node.pid}", "--net", *argv]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def guide(self, name: str, version: str = "") -> str:
        """Do a block of the guide, in the folder with a version's packages."""
        folder = f"cd /srv/{version} && " if version else ""
        (script,) = blocks(name)
        return self.node.run(folder + script)

    def pids(self) -> dict[str, str]:
        return {a: self.node.shown(a, "MainPID") for a in AGENTS}

    def files(self) -> set[str]:
        return self.node.files()

    def ready(self) -> None:
        self.node.run(f"for p in {' '.join(AGENTS)}; do until $p healthcheck; do sleep 1; done; done")

    def metrics(self, name: str) -> dict[str, float]:
        """Return the series of a metric of the exporter."""
        text = self.here("curl", "--silent", "--fail", "--noproxy", "*", f"{EXPORTER}/metrics")
        lines = re.findall(rf"^{name}(\{{.*\}}) (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in lines}

    def limit(self, term: int) -> tuple[int, str]:
        """Limit the tenant's port as an isolation agent of a term does; return the enforcer's status and answer."""
        token = self.node.run("cat /etc/vigia/enforcer.token").strip()
        body = {
            "id": "0b5f4d0e-6f0e-4c3c-9a55-0d0f5b1f7a11",
            "tenant": "red",
            "protocol": "udp",
            "term": term,
        }
        body |= {"rate_bytes_per_second": 6_000_000, "burst_bytes": 0, "ttl_seconds": 60}
        words = ["--header", f"Authorization: Bearer {token}", "--request", "PUT", "--data", json.dumps(body)]
        words += ["--write-out", "\n%{http_code}", f"{ENFORCER}/v1/ports/6d5a5c3e/limit"]
        answer, _, status = self.here("curl", "--silent", "--noproxy", "*", *words).rpartition("\n")
        return int(status), answer


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages of a node: of this tree, and of the same tree when it had a lower version."""
    return versions(tmp_path_factory.mktemp("release"), "node-packages")


@pytest.fixture
def machine(tmp_path: Path, packages: dict[str, Path]) -> Iterator[Machine]:
    """A node with a tenant's port, and both releases in /srv."""
    root = tmp_path / "node"
    root.mkdir()
    with booted(root) as node:
        found = Machine(node, root, packages)
        for version, folder in packages.items():
            subprocess.run(["cp", "-r", folder, root / "srv" / version], check=True)
        found.here("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "vm0")
        for device in ("tap0", "vm0"):
            found.here("ip", "link", "set", device, "up")
        found.here("ip", "address", "add", "10.9.0.1/24", "dev", "vm0")
        found.here("ip", "neigh", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "vm0")
        yield found


def configured(machine: Machine) -> None:
    """Configure and start the agents as docs/how-to/node.md has it, from where the packages are installed."""
    scripts = re.findall(r"^<!-- test: node -->\n```sh\n(.*?)^```", NODE_GUIDE, re.MULTILINE | re.DOTALL)
    users, configuration, start = scripts
    assert "systemd-sysusers" in users  # which the packages have done
    machine.node.run("getent passwd vigia-probe && getent group vigia && test -d /etc/vigia")
    machine.node.run(configuration)
    machine.node.run(start)


def test_an_upgrade_keeps_configuration_state_and_counters(machine: Machine) -> None:
    machine.guide("install", OLD)
    configured(machine)
    sent, counted = 40, "vigia_port_packets_total"
    ping = f"ping -q -n -c {sent} -i 0.01 -w 3 10.9.0.2 || true"  # nobody answers
    machine.here("sh", "-c", ping)
    eventually(
        lambda: max(machine.metrics(counted).values(), default=0) >= sent, "the port's frames are counted", 60
    )
    before = machine.metrics(counted)
    assert machine.limit(term=7)[0] == 200
    machine.node.run("echo kept > /var/lib/vigia-probe/a-file-of-the-probe")
    sums = (
        "sha256sum /etc/vigia/* /var/lib/vigia-probe/a-file-of-the-probe; "
        "stat -c '%n %a %U %G' /etc/vigia /etc/vigia/* /var/lib/vigia*"
    )
    kept, pids = machine.node.run(sums), machine.pids()

    said = machine.guide("upgrade", NEW)

    assert "cannot" not in said, said
    machine.ready()
    assert machine.node.run(sums) == kept
    assert all(machine.pids()[a] not in ("0", pids[a]) for a in AGENTS), "each runs the new program"
    for agent in AGENTS:
        assert f"{agent} {NEW} (" in machine.node.run(f"/proc/{machine.pids()[agent]}/exe --version 2>&1")
        assert machine.node.shown(agent, "UnitFileState") == "enabled"
    after = machine.metrics(counted)
    assert {k: v for k, v in before.items() if after.get(k, -1) < v} == {}
    status, answer = machine.limit(term=6)
    assert status == 409 and "stale_term" in answer, "what the kernel keeps for the enforcer is there"
    assert machine.limit(term=7)[0] == 200

    machine.guide("install", OLD)  # and back
    machine.ready()
    assert f" {OLD} (" in machine.node.run("vigia-exporter --version 2>&1")
    assert machine.node.run(sums) == kept
    assert {k: v for k, v in before.items() if machine.metrics(counted).get(k, -1) < v} == {}


def test_a_configuration_that_the_new_version_refuses_leaves_the_old_one_running(machine: Machine) -> None:
    machine.guide("install", OLD)
    configured(machine)
    pids = machine.pids()
    machine.node.run("cp /etc/vigia/exporter.yaml /root/good; echo 'nod: x' >> /etc/vigia/exporter.yaml")
    said = machine.guide("upgrade", NEW)
    assert f"cannot restart vigia-exporter: version {NEW} does not take /etc/vigia/exporter.yaml" in said
    assert "nod" in said
    assert machine.pids()["vigia-exporter"] == pids["vigia-exporter"]
    assert machine.pids()["vigia-probe"] != pids["vigia-probe"]
    machine.node.run("cp /root/good /etc/vigia/exporter.yaml; systemctl restart vigia-exporter")
    machine.ready()
    assert f" {NEW} (" in machine.node.run(f"/proc/{machine.pids()['vigia-exporter']}/exe --version 2>&1")


def test_removed_they_leave_configuration_and_state_and_purged_nothing(machine: Machine) -> None:
    pristine, users = machine.files(), machine.node.run("getent passwd; getent group")
    machine.guide("install", NEW)
    assert machine.pids() == dict.fromkeys(AGENTS, "0"), "what has no configuration is not started"
    configured(machine)
    assert machine.node.run("ls /sys/fs/bpf/vigia")
    said = machine.guide("remove")
    assert "cannot" not in said, said
    left = machine.files() - pristine
    assert left and all(f.startswith(("/etc/vigia", "/var/lib/vigia")) for f in left), left
    assert machine.node.run("cat /etc/vigia/enforcer.yaml")
    assert machine.node.run("find /sys/fs/bpf/vigia 2>/dev/null || true").split() in (
        [],
        ["/sys/fs/bpf/vigia"],
    )
    assert machine.node.run("ps -e -o args= 2>/dev/null || cat /proc/[0-9]*/comm").count("vigia") == 0
    assert "clsact" not in machine.here("tc", "qdisc", "show") and "htb" not in machine.here(
        "tc", "qdisc", "show"
    )
    machine.guide("purge")
    assert machine.files() - pristine == set()
    assert pristine - machine.files() == set()
    assert machine.node.run("getent passwd; getent group") == users
    machine.guide("install", NEW)  # nothing stands in the way of another beginning
    configured(machine)


def test_the_guide_has_what_is_run_here() -> None:
    guide = (ROOT / "docs/how-to/release.md").read_text()
    names = ("verify", "install", "command", "upgrade", "remove", "purge")
    assert {n: len(blocks(n)) for n in names} == dict.fromkeys(names, 1)
    assert guide.count("```sh") == len(names)


def test_the_packages_say_what_they_need_and_are(packages: dict[str, Path]) -> None:
    for name, kind in (("vigia-base", "all"), ("vigia-node", architecture())):
        file = packages[NEW] / f"{name}_{NEW}_{kind}.deb"
        fields = ("Package", "Version", "Architecture", "Depends", "Description")
        said = subprocess.run(
            ["dpkg-deb", "--field", file, *fields], capture_output=True, text=True, check=True
        ).stdout
        assert f"Package: {name}\nVersion: {NEW}\nArchitecture: {kind}\n" in said
        listed = subprocess.run(
            ["dpkg-deb", "--contents", file], capture_output=True, text=True, check=True
        ).stdout
        assert all(line.split()[1] == "root/root" for line in listed.splitlines())
        assert "/usr/share/doc/" in listed and "/etc/" not in listed, "configuration is the administrator's"
