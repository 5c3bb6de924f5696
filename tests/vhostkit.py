"""A node with Open vSwitch on DPDK and a guest at a vhost-user port: what has no device in the kernel.

DPDK runs without huge pages and without a network card. Its packages, and the guest's, are fetched and unpacked, not installed.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from labkit import ROOT
from prometheus_client.parser import text_string_to_metric_families

from vigia.console import Steps
from vigia.host import commands
from vigia.lab import packages
from vigia.lab.neutron import guestfiles
from vigia_testing import eventually

__all__ = ["DEVICE", "PORT", "RATE", "VhostNode"]

NETNS = "vigia-test-vhost"
ADDRESS, GUEST = "10.99.0.1", "10.99.0.2"
PORT, DEVICE = "5f0c2b9e-0d1b-4b4f-9f0a-6a3e7f1d2c3b", "vhu0"
RATE = 125_000
"""What the guest has bought, in bytes per second: less than any machine can carry."""

_AGENTS = "127.73.0.1"
_TOKEN = "0123456789abcdef-vhost"
_PATIENCE = 180.0
_SWITCH = ("openvswitch-switch-dpdk", "librte-mempool-ring23")
_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_SINK = "import socket\ns = socket.create_server(({address!r}, 5000))\nwhile True:\n    c, _ = s.accept()\n    while c.recv(1 << 16): pass\n"


def _switch_root() -> Path:
    """Return where the switch's packages are unpacked, and unpack them once."""
    made_from = f"{' '.join(_SWITCH)} {packages.release()}"
    root = packages.cache() / f"dpdk-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    if not root.exists():
        packages.unpack_closure(_SWITCH, root)
    return root


@dataclass
class VhostNode:
    """The node while it is up."""

    folder: Path
    stack: ExitStack
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def up(cls, folder: Path) -> Iterator[VhostNode]:
        """Bring the node up, and take it away with all that runs on it."""
        with ExitStack() as stack:
            node = cls(folder, stack)
            commands.ip_batch([f"netns add {NETNS}"])
            stack.callback(commands.ip_batch, [f"netns del {NETNS}"])
            (folder / "bpf").mkdir()
            commands.run(["mount", "-t", "bpf", "bpf", str(folder / "bpf")])
            stack.callback(commands.run, ["umount", str(folder / "bpf")])
            node._start_switch()
            node._start_guest()
            node._write_configurations()
            for program in ("exporter", "enforcer"):
                node.start_agent(program)
            yield node

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl; return what it prints."""
        return commands.run(["ovs-vsctl", f"--db=unix:{self.folder}/db.sock", *words]).stdout.strip()

    def policing(self) -> int:
        """Return what the switch polices the port to, in kbit/s; 0 is nothing."""
        return int(self.vsctl("get", "Interface", DEVICE, "ingress_policing_rate"))

    def arrived(self) -> int:
        """Return the bytes that the guest's neighbour has received."""
        argv = ["cat", "/sys/class/net/br0/statistics/rx_bytes"]
        return int(
            commands.run(
                [
                    "nsenter",
                    f"--net=/run/netns/{NETNS}",
                    "unshare",
                    "--mount",
                    "sh",
                    "-c",
                    f"mount -t sysfs sysfs /sys && {' '.join(argv)}",
                ]
            ).stdout
        )

    def flood(self) -> None:
        """Have the guest send as fast as it can, for the rest of its life, to a neighbour that takes everything."""
        self._run("sink", ["/usr/bin/python3", "-c", _SINK.format(address=ADDRESS)])
        self._type(f"while :; do nc {ADDRESS} 5000 < /dev/zero; sleep 1; done &")

    def answers(self) -> bool:
        """Whether the guest answers an echo."""
        argv = ["ping", "-n", "-q", "-c", "1", "-W", "2", GUEST]
        return commands.run(argv, netns=NETNS, check=False).status == 0

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask the enforcer, as the isolation agent does."""
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        return httpx.request(method, f"http://{_AGENTS}:9873{path}", json=body, headers=headers, timeout=20.0)

    def limit(self, ttl: float) -> httpx.Response:
        """Hold the port to what was bought."""
        body = {
            "id": "0b5f4d0e-6f0e-4c3c-9a55-0d0f5b1f7a11",
            "tenant": "red",
            "protocol": "all",
            "rate_bytes_per_second": RATE,
            "burst_bytes": 0,
            "ttl_seconds": ttl,
        }
        return self.ask("PUT", f"/v1/ports/{PORT}/limit", body)

    def state(self) -> Mapping[str, Any]:
        """Return what the enforcer says of the port; empty while it does not know it."""
        found = [p for p in self.ask("GET", "/v1/state").json().get("ports", []) if p["port"] == PORT]
        return found[0] if found else {}

    def exported(self, name: str, **labels: str) -> float:
        """Return the sum of the exporter's series of the port with a name and labels."""
        text = httpx.get(f"http://{_AGENTS}:9872/metrics", timeout=20.0).text
        wanted = {"port": PORT, **labels}.items()
        samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
        return sum(s.value for s in samples if s.name == name and wanted <= s.labels.items())

    def start_agent(self, program: str) -> None:
        """Start vigia-exporter or vigia-enforcer, and wait until it is ready."""
        at = f"{_AGENTS}:{9872 if program == 'exporter' else 9873}"
        argv = [str(ROOT / f"bin/vigia-{program}"), f"--config={self.folder / program}.yaml"]
        log = self.folder / f"{program}.log"
        child = commands.start([*argv, f"--web.listen-address={at}"], log=log)
        self.agents[program] = child
        self._ends(child)

        def ready() -> bool:
            try:
                return httpx.get(f"http://{at}/-/ready").is_success
            except httpx.HTTPError:
                return False

        eventually(ready, lambda: log.read_text()[-2000:], _PATIENCE)

    def _start_switch(self) -> None:
        root = _switch_root()
        commands.run(["ovsdb-tool", "create", str(self.folder / "conf.db"), _SCHEMA])
        database = ["ovsdb-server", str(self.folder / "conf.db"), f"--remote=punix:{self.folder}/db.sock"]
        self._run("ovsdb-server", [*database, f"--unixctl={self.folder}/db.ctl"])
        eventually((self.folder / "db.sock").exists, "ovsdb-server", _PATIENCE)
        self.vsctl("--no-wait", "init")
        (drivers,) = root.glob("usr/lib/*/dpdk/pmds-*")
        extra = f"--no-huge --legacy-mem -m 512 --no-pci --file-prefix={NETNS} -d /usr/{drivers.relative_to(root / 'usr')}"
        options = {"dpdk-init": "true", "dpdk-extra": f'"{extra}"', "dpdk-lcore-mask": "0x1"}
        self.vsctl(
            "--no-wait", "set", "Open_vSwitch", ".", *(f"other_config:{k}={v}" for k, v in options.items())
        )
        # Debian has it beside the usual one, under another name.
        program = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
        self._run("switch", [program, f"unix:{self.folder}/db.sock"], root)
        bridge = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"]
        server = f"options:vhost-server-path={self.folder}/{DEVICE}.sock"
        port = [
            "add-port",
            "br0",
            DEVICE,
            "--",
            "set",
            "Interface",
            DEVICE,
            "type=dpdkvhostuserclient",
            server,
        ]
        known = [f"external_ids:iface-id={PORT}", "external_ids:vigia-tenant=red"]
        self.vsctl("--timeout=60", *bridge, "--", *port, *known)
        lines = [f"addr add {ADDRESS}/24 dev br0", "link set br0 up", "link set lo up"]
        commands.ip_batch(lines, netns=NETNS)
        # The switch takes no frames whose checksums are left to the device.
        commands.run(["ethtool", "-K", "br0", "tx", "off"], netns=NETNS)

    def _start_guest(self) -> None:
        guestfiles.prepare(Steps(io.StringIO()))
        guestfiles.write(self.folder)
        argv = [
            "qemu-system-x86_64",
            *("-accel", "tcg", "-cpu", "max", "-m", "192", "-display", "none", "-no-reboot"),
            # The switch reads and writes the guest's memory.
            *("-object", "memory-backend-memfd,id=memory,size=192M,share=on", "-numa", "node,memdev=memory"),
            *("-chardev", f"socket,id=console,path={self.folder}/console.sock,server=on,wait=off"),
            *("-serial", "chardev:console"),
            *("-chardev", f"socket,id=vhost,path={self.folder}/{DEVICE}.sock,server=on,wait=off"),
            *("-netdev", "vhost-user,id=net0,chardev=vhost"),
            # Without KVM QEMU 7.2 cannot hand interrupts of MSI-X to another process.
            *("-device", "virtio-net-pci,netdev=net0,mac=fa:16:3e:00:00:09,romfile=,vectors=0"),
            *(
                "-kernel",
                str(self.folder / guestfiles.KERNEL),
                "-initrd",
                str(self.folder / guestfiles.INITRD),
            ),
            *("-append", f"console=ttyS0 quiet panic=-1 address={GUEST}/24 mtu=1450"),
        ]
        self._run("guest", argv, guestfiles.root())
        eventually(self.answers, lambda: (self.folder / "guest.log").read_text()[-2000:], _PATIENCE)

    def _write_configurations(self) -> None:
        (self.folder / "token").write_text(f"{_TOKEN}\n")
        (self.folder / "token").chmod(0o600)
        common = {
            "node": "vhost",
            "netns": NETNS,
            "ovsdb": f"unix:{self.folder}/db.sock",
            "bpf": {"pin_dir": str(self.folder / "bpf/node"), "max_ports": 8},
        }
        exporter = {**common, "openflow": {"every": "5s"}}
        contract = {"tenant": "red", "guarantee": f"{RATE * 8}bit", "ceiling": "100Mbit"}
        enforcer = {**common, "token_file": str(self.folder / "token"), "contracts": [contract]}
        for name, content in (("exporter", exporter), ("enforcer", enforcer)):
            (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(content))

    def _run(self, name: str, argv: Sequence[str], root: Path | None = None) -> None:
        """Run a program in the node's namespace until the end, with files of packages above /usr if it needs them."""
        env = {"OVS_RUNDIR": str(self.folder), "OVS_LOGDIR": str(self.folder), "OVS_DBDIR": str(self.folder)}
        words = ["env", *(f"{k}={v}" for k, v in env.items()), *argv]
        if root is not None:
            overlay = f"mount --make-rprivate / && mount -t overlay -o lowerdir={root}/usr:/usr overlay /usr"
            words = ["unshare", "--mount", "sh", "-c", f'{overlay} && exec "$@"', "sh", *words]
        child = commands.start(words, log=self.folder / f"{name}.log", netns=NETNS)
        self._ends(child)

    def _ends(self, child: subprocess.Popen[bytes]) -> None:
        def end() -> None:
            child.kill()
            child.wait()

        self.stack.callback(end)

    def _type(self, command: str) -> None:
        """Type a command, once the guest's shell answers: what comes before that is lost in part."""
        eventually(lambda: self._does("true", 5.0), "the guest's shell", _PATIENCE)
        assert self._does(command, _PATIENCE)

    def _does(self, command: str, seconds: float) -> bool:
        try:
            guestfiles.say(self.folder / "console.sock", command, seconds)
        except OSError:
            return False
        return True
