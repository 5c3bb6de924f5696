"""docs/how-to/node.md, upgrade.md and remove.md, done as they say: on a Debian of its own, whose systemd runs the units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import VIGIA
from nodekit import AGENTS, ENDPOINT, TAP, Node, booted, here
from pagekit import blocks as blocks_of
from pagekit import page

from vigia_testing import eventually

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/how-to/node.md").read_text()


def blocks(name: str) -> list[str]:
    """Return the guide's blocks of commands with a name."""
    return re.findall(
        rf"^<!-- test: {re.escape(name)} -->\n```sh\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with booted(tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture(scope="module")
def installed(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The node after all that the guide says, but TLS."""
    tree = tmp_path_factory.mktemp("tree")
    for block in (*blocks("install"), *blocks("copy")):
        here(node, re.sub(r"/tmp/\S+", str(tree), block), ROOT, tree.parent)  # noqa: S108 - the guide says so
    for block in blocks("node"):
        node.run(block)
    return node


def test_the_guide_has_what_is_run_here() -> None:
    counts = {
        name: len(blocks(name)) for name in ("install", "copy", "node", "certificates", "node with TLS")
    }
    assert counts == {"install": 1, "copy": 1, "node": 3, "certificates": 1, "node with TLS": 1}
    assert GUIDE.count("```sh") == sum(counts.values())


@pytest.mark.parametrize("program", AGENTS)
def test_the_unit_runs_and_reloads(installed: Node, program: str) -> None:
    assert installed.shown(program, "ActiveState") == "active"
    assert installed.shown(program, "UnitFileState") == "enabled"
    pid = installed.shown(program, "MainPID")
    installed.run(f"systemctl reload {program}; until {program} healthcheck; do sleep 1; done")
    assert installed.shown(program, "MainPID") == pid
    assert installed.shown(program, "NRestarts") == "0"


@pytest.mark.parametrize("program", AGENTS)
def test_the_program_has_the_rights_of_its_unit(installed: Node, program: str) -> None:
    pid = installed.shown(program, "MainPID")
    status = dict(line.split(":", 1) for line in installed.run(f"cat /proc/{pid}/status").splitlines())
    wanted = installed.shown(program, "CapabilityBoundingSet").split()
    held = installed.run(f"awk '/^CapBnd/ {{ print $2 }}' /proc/{pid}/status").strip()
    assert bin(int(held, 16)).count("1") == len(wanted) <= 4
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    user = installed.run(f"stat -c %U /proc/{pid}").strip()
    assert user == ("vigia-probe" if program == "vigia-probe" else "root")


def test_ports_and_contracts_are_read_where_identity_writes_them(installed: Node) -> None:
    """As docs/how-to/openstack.md has it where vigia-identity runs on the node itself."""
    kept = installed.run("cat /etc/vigia/exporter.yaml")
    installed.run(
        "runuser -u vigia -- mkdir -m 750 /var/lib/vigia/hosts; mv /etc/vigia/ports.yaml /var/lib/vigia/hosts/node.yaml; "
        "chown vigia:vigia /var/lib/vigia/hosts/node.yaml; chmod 640 /var/lib/vigia/hosts/node.yaml; "
        "sed -i 's,^ports_file:.*,ports_file: /var/lib/vigia/hosts/node.yaml,' /etc/vigia/exporter.yaml /etc/vigia/enforcer.yaml"
    )
    try:
        for program in ("vigia-exporter", "vigia-enforcer"):
            installed.run(f"systemctl restart {program}; until {program} healthcheck; do sleep 1; done")
            said = installed.run(f"systemctl status --no-pager --full --lines=50 {program} || true")
            assert "permission denied" not in said, said
            groups = installed.run(f"cat /proc/{installed.shown(program, 'MainPID')}/status")
            assert (
                installed.run("getent group vigia").split(":")[2]
                in groups.partition("Groups:")[2].split("\n")[0]
            )
    finally:
        installed.run(
            "mv /var/lib/vigia/hosts/node.yaml /etc/vigia/ports.yaml; rmdir /var/lib/vigia/hosts; "
            "chown root:vigia /etc/vigia/ports.yaml; "
            "sed -i 's,^ports_file:.*,ports_file: /etc/vigia/ports.yaml,' /etc/vigia/exporter.yaml /etc/vigia/enforcer.yaml; "
            "systemctl restart vigia-exporter vigia-enforcer; "
            "for p in vigia-exporter vigia-enforcer; do until $p healthcheck; do sleep 1; done; done"
        )
    assert installed.run("cat /etc/vigia/exporter.yaml") == kept


def watched(node: Node, program: str, seconds: int) -> None:
    """Have systemd's watchdog wait for so long, and start the program again."""
    settings = f"[Service]\\nWatchdogSec={seconds}s\\nTimeoutAbortSec=4s\\n"
    node.run(
        f"mkdir -p /run/systemd/system/{program}.service.d; "
        f"printf '{settings}' > /run/systemd/system/{program}.service.d/soon.conf; "
        f"systemctl daemon-reload; systemctl restart {program}; until systemctl is-active {program}; do sleep 1; done"
    )


def is_told(node: Node, program: str) -> None:
    """Wait until a program has told systemd's watchdog several times that it works."""
    told: set[str] = set()

    def several() -> bool:
        told.add(node.shown(program, "WatchdogTimestampMonotonic"))
        return len(told) > 4

    eventually(several, lambda: f"the watchdog to be told; it was at {sorted(told)}", 300)


def is_started_again(node: Node, program: str) -> None:
    """Stop a program for ever: systemd's watchdog has another take its place, which works."""
    # On a busy machine the watchdog may have another take its place by itself: whichever runs is stopped.
    stop = f'p=$(systemctl show --property=MainPID --value {program}); test "$p" != 0 && kill -STOP "$p" && echo "$p"'
    pid = eventually(lambda: node.run(f"({stop}) 2> /dev/null || true").strip(), "it is stopped", 300)
    eventually(lambda: node.shown(program, "MainPID") not in ("0", pid), "it is started again", 300)
    assert int(node.shown(program, "NRestarts")) >= 1
    eventually(lambda: node.shown(program, "ActiveState") == "active", "it runs", 300)


def test_endpoints_of_probes_are_plugged_by_a_unit_of_their_own(installed: Node) -> None:
    """Others see the namespaces that it makes, and they outlive it."""
    (start,) = re.findall(
        r"<!-- test: vigia-plug -->\n```sh\n(.*?)```",
        (ROOT / "docs/how-to/openstack.md").read_text(),
        re.DOTALL,
    )
    installed.run(
        "install -d -o vigia -g vigia -m 750 /var/lib/vigia/probes; cd /var/lib/vigia/probes; "
        f"printf '%s' '{ENDPOINT}' > $(hostname).yaml; chown vigia:vigia *; chmod 640 *; {start}"
    )
    eventually(
        lambda: "/run/netns/vigia-probe-vxlan" in installed.run("cat /proc/mounts"),
        lambda: installed.run("systemctl status --no-pager --full vigia-plug || true"),
    )
    made = eventually(lambda: installed.run(f"cat {TAP} || true").strip(), "its device is there")
    pid = installed.shown("vigia-plug", "MainPID")
    status = dict(line.split(":", 1) for line in installed.run(f"cat /proc/{pid}/status").splitlines())
    assert bin(int(status["CapBnd"].strip(), 16)).count("1") == 2
    assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
    watched(installed, "vigia-plug", 40)
    is_told(installed, "vigia-plug")
    assert installed.shown("vigia-plug", "NRestarts") == "0", "it tells the watchdog that it works"
    watched(installed, "vigia-plug", 10)
    is_started_again(installed, "vigia-plug")
    installed.run(
        "rm -r /run/systemd/system/vigia-plug.service.d; systemctl daemon-reload; systemctl stop vigia-plug"
    )
    assert installed.run(f"cat {TAP}").strip() == made, "it stays, and is not made anew"
    assert "/run/netns/vigia-probe-vxlan" in installed.run("cat /proc/mounts")
    installed.run(
        "systemctl start vigia-plug; printf 'version: 1\\nendpoints: []\\n' > /var/lib/vigia/probes/$(hostname).yaml"
    )
    eventually(lambda: not installed.run(f"cat {TAP} 2> /dev/null || true"), "it is taken away")
    installed.run(f"printf '%s' '{ENDPOINT}' > /var/lib/vigia/probes/$(hostname).yaml")
    eventually(
        lambda: installed.run(f"cat {TAP} 2> /dev/null || true"), "it is back, until the node is removed"
    )


def test_secrets_are_nobody_elses(installed: Node) -> None:
    assert installed.run("stat -c %a:%U /etc/vigia/enforcer.token").strip() == "600:root"
    assert installed.run("stat -c %a:%U:%G /etc/vigia").strip() == "750:root:vigia"


def test_a_wrong_configuration_is_refused_before_anything_is_stopped(installed: Node) -> None:
    said = installed.run(
        "cp /etc/vigia/exporter.yaml /tmp/good; echo 'nod: x' > /etc/vigia/exporter.yaml; "
        "systemctl reload vigia-exporter; vigia-exporter check-config --config=/etc/vigia/exporter.yaml || true; "
        "cp /tmp/good /etc/vigia/exporter.yaml; systemctl reload vigia-exporter; "
        "until vigia-exporter healthcheck; do sleep 1; done"
    )
    assert "nod" in said
    assert installed.shown("vigia-exporter", "NRestarts") == "0"


def test_an_upgrade_replaces_the_programs_and_keeps_what_they_put_into_the_kernel(
    installed: Node, tmp_path: Path
) -> None:
    """The new tree is of the same version, which nothing here depends on."""
    upgrade = blocks_of(page("how-to/upgrade.md"))
    before = {program: installed.shown(program, "MainPID") for program in AGENTS}
    pins = installed.run("ls -R /sys/fs/bpf/vigia")
    for name in ("install", "copy"):
        here(installed, upgrade[name].replace("/tmp/vigia-node", str(tmp_path / "tree")), ROOT, tmp_path)  # noqa: S108
    installed.run(upgrade["node"])
    for program in AGENTS:
        assert installed.shown(program, "ActiveState") == "active"
        assert installed.shown(program, "MainPID") not in ("0", before[program])
    assert pins and installed.run("ls -R /sys/fs/bpf/vigia") == pins
    assert installed.run("stat -c %a:%U /etc/vigia/enforcer.token").strip() == "600:root"


def test_an_upgrade_stops_before_a_file_that_is_refused(installed: Node) -> None:
    before = installed.shown("vigia-exporter", "MainPID")
    installed.run("cp /etc/vigia/exporter.yaml /tmp/good; echo 'nod: x' > /etc/vigia/exporter.yaml")
    try:
        assert "nod" in installed.run(blocks_of(page("how-to/upgrade.md"))["node"])
        assert installed.shown("vigia-exporter", "MainPID") == before
        assert installed.shown("vigia-exporter", "ActiveState") == "active"
    finally:
        installed.run("cp /tmp/good /etc/vigia/exporter.yaml")


def test_tls_as_the_guide_has_it(installed: Node, tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/vigia").symlink_to(VIGIA)
    here(installed, blocks("certificates")[0], tmp_path, tmp_path)
    installed.run(blocks("node with TLS")[0])
    for program in AGENTS:
        web = f"--web.config.file=/etc/vigia/tls/{program}.web.yml"
        installed.run(f"until {program} healthcheck {web}; do sleep 1; done")
        plain = installed.run(f"{program} healthcheck 2>&1 || echo refused")
        assert plain.splitlines()[-1] == "refused"
    keys = installed.run("ls -l /etc/vigia/tls/").splitlines()
    assert not [line for line in keys if "ca.key" in line]
    assert all(line.startswith("-rw-------") for line in keys if line.endswith(".key"))


@pytest.mark.parametrize("program", AGENTS)
def test_a_program_that_is_stopped_is_started_again(installed: Node, program: str) -> None:
    """By systemd's watchdog, here sooner than the unit says."""
    watched(installed, program, 4)
    is_started_again(installed, program)
    installed.run(
        f"rm -r /run/systemd/system/{program}.service.d; systemctl daemon-reload; systemctl restart {program}"
    )


def test_nothing_is_left_of_a_node_that_is_removed(installed: Node) -> None:
    installed.run(blocks_of(page("how-to/remove.md"))["node"])
    assert "vigia-probe-" not in installed.run("cat /proc/mounts"), "endpoints of probes"
    left = installed.run("find / -xdev -iname '*vigia*' -not -path '/proc/*' -not -path '/tmp/*'")
    assert left.strip() == ""
    assert {*installed.run("ls /sys/fs/bpf").split()} <= {"maps.debug", "progs.debug"}, "the kernel's own"
    users = installed.run("cut -d: -f1 /etc/passwd /etc/group").split()
    assert not [u for u in users if u.startswith("vigia") or u == "isolation-agent"]
    assert "vigia" not in installed.run(
        "ps -e -o args= 2>/dev/null || cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    )
