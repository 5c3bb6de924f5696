"""libvirt on a node: libvirtd, its files all below the lab's directory, and a domain as Nova describes it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from vigia.lab.model import Node
from vigia.lab.naming import Layout
from vigia.lab.neutron.places import NeutronPlaces
from vigia.lab.neutron.services import Supervised, run, start, until

__all__ = ["PACKAGES", "Domain", "Libvirt"]

PACKAGES = ("libvirt-clients", "libvirt-daemon")

_FOLDERS = ("cache", "etc", "lib", "log", "run")
_USER = "libvirt-qemu"
"""Debian's libvirtd asks for it at its start, whoever is to run guests."""

_FILES = {
    "etc/libvirtd.conf": 'auth_unix_ro = "none"\nauth_unix_rw = "none"\n',
    # Guests are root's, as all of a lab is, and nothing of the machine's is asked for: control groups, huge
    # pages, AppArmor, a daemon for logs.
    "etc/qemu.conf": """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = [ ]
hugetlbfs_mount = [ ]
namespaces = [ ]
stdio_handler = "file"
""",
    "places/etc/passwd": f"root:x:0:0::/:/bin/sh\n{_USER}:x:64055:64055::/:/bin/false\n",
    "places/etc/group": f"root:x:0:\n{_USER}:x:64055:\n",
}
_PLACES = ("etc/libvirt", "run/libvirt", *(f"var/{name}/libvirt" for name in ("cache", "lib", "log")))
"""Where libvirt.sh mounts the folders: the machine may have none of these."""

_DOMAIN = """\
<domain type="qemu">
  <name>{name}</name>
  <uuid>{workload}</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:name>{shown}</nova:name>
      <nova:flavor name="vigia">
        <nova:memory>{memory}</nova:memory>
        <nova:disk>0</nova:disk>
        <nova:swap>0</nova:swap>
        <nova:ephemeral>0</nova:ephemeral>
        <nova:vcpus>1</nova:vcpus>
      </nova:flavor>
      <nova:owner>
        <nova:user uuid="{user}">admin</nova:user>
        <nova:project uuid="{project}">{tenant}</nova:project>
      </nova:owner>
      <nova:ports>
        <nova:port uuid="{port}">
          <nova:ip type="fixed" address="{address}" ipVersion="4"/>
        </nova:port>
      </nova:ports>
    </nova:instance>
  </metadata>
  <memory unit="MiB">{memory}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{command_line}</cmdline>
  </os>
  <features>
    <acpi/>
  </features>
  <cpu mode="maximum"/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <controller type="usb" model="none"/>
    <interface type="bridge">
      <mac address="{mac}"/>
      <source bridge="{bridge}"/>{plugging}
      <target dev="{device}"/>
      <model type="virtio"/>
      <driver name="qemu">{offloads}</driver>
      <mtu size="{mtu}"/>
      <rom enabled="no"/>
    </interface>
    <serial type="unix">
      <source mode="bind" path="{console}"/>
    </serial>
    <memballoon model="none"/>
  </devices>
</domain>
"""
_BY_SWITCH = """
      <virtualport type="openvswitch">
        <parameters interfaceid="{port}"/>
      </virtualport>"""
_NO_OFFLOADS = """
        <host csum="off" gso="off" tso4="off" tso6="off" ecn="off" ufo="off"/>
        <guest csum="off" tso4="off" tso6="off" ecn="off" ufo="off"/>
      """


@dataclass(frozen=True)
class Domain:
    """A guest at one port, and whose it is."""

    name: str
    """libvirt's; Nova counts its own: instance-00000001."""
    shown: str
    """What its tenant calls it."""
    workload: str
    tenant: str
    project: str
    user: str
    port: str
    device: str
    mac: str
    address: str
    bridge: str
    switched: bool
    """By Open vSwitch, not by a Linux bridge."""
    offloads: bool
    """Whether frames may leave it without checksums, and longer than the network's."""
    mtu: int
    memory: int
    """MiB."""
    kernel: Path
    initrd: Path
    command_line: str
    console: Path
    """Socket of its serial line."""

    def xml(self) -> str:
        """Return the domain as Nova writes it, but for its kernel and its lack of disks."""
        words = {key: html.escape(str(value)) for key, value in vars(self).items()}
        words["plugging"] = _BY_SWITCH.format(port=words["port"]) if self.switched else ""
        words["offloads"] = "" if self.offloads else _NO_OFFLOADS
        return _DOMAIN.format_map(words)


@dataclass(frozen=True)
class Libvirt:
    """libvirt of a node."""

    layout: Layout
    node: Node
    root: Path
    """Below which its packages are unpacked."""

    @property
    def directory(self) -> Path:
        """Configuration, domains, sockets and logs."""
        return NeutronPlaces(self.layout).libvirt(self.node.name)

    def prepare(self) -> None:
        """Make libvirt's folders, and write its configuration."""
        for name in (*_FOLDERS, *(f"places/{place}" for place in _PLACES)):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        for name, content in _FILES.items():
            (self.directory / name).write_text(content)

    def start(self) -> None:
        """Start libvirtd, and wait until it answers. Guests go on without it, and it finds them again."""
        self.prepare()
        places = NeutronPlaces(self.layout)
        env = {
            "ROOT": str(self.root),
            "LIBVIRT": str(self.directory),
            "OVS_RUNDIR": str(self.layout.ovs(self.node.name)),  # ovs-vsctl's, which it plugs guests by
        }
        files = ["--config", f"{self.directory}/etc/libvirtd.conf", "--pid-file", f"{self.directory}/run/pid"]
        start(places, Supervised(self.node.name, self.node.netns, ["libvirtd", *files], env))
        until(
            places, f"libvirtd of {self.node.name}", lambda: self._virsh("version", check=False) is not None
        )

    def boot(self, domain: Domain) -> None:
        """Define a domain and start it; libvirt makes its device and plugs it."""
        file = self.directory / f"{domain.name}.xml"
        file.write_text(domain.xml())
        self.ask("define", str(file))
        self.ask("start", domain.name)

    def ask(self, *words: str) -> str:
        """Return what virsh answers. Raises CommandError."""
        return self._virsh(*words) or ""

    def _virsh(self, *words: str, check: bool = True) -> str | None:
        uri = f"qemu+unix:///system?socket={self.directory}/run/libvirt-sock"
        argv = ["virsh", "--quiet", "--connect", uri, *words]
        done = run(NeutronPlaces(self.layout), argv, env={"ROOT": str(self.root)}, check=check)
        return done.stdout if done.status == 0 else None
