"""IPsec between the two ends of a path: strongSwan at each, ESP with AES-256 and HMAC-SHA2.

ESP is the kernel's where it has it, and strongSwan's own in user space
(kernel-libipsec, ESP in UDP on port 4500) elsewhere.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from vigia.errors import VigiaError
from vigia.host import associations as sas
from vigia.host import commands, netns
from vigia.lab import preflight
from vigia.lab.model import Datapath, Lab, Node, Station
from vigia.lab.naming import Layout
from vigia.lab.preflight import KernelFeature
from vigia_service.patience import Patience

__all__ = ["associations", "check", "datapath", "implementation", "start", "stations"]

_PATIENCE = 30.0
_PROFILES = Path("/sys/kernel/security/apparmor/profiles")
_PLUGINS = (
    "random nonce aesni aes openssl gcm sha1 sha2 hmac kdf gmp curve25519 pem pkcs1 pubkey x509 "
    "{esp}kernel-netlink socket-default vici"
)
_KEY = "0x" + "11" * 32

ESP = KernelFeature(
    "esp4",
    "CONFIG_XFRM_USER, CONFIG_INET_ESP, CONFIG_CRYPTO_CBC, CONFIG_CRYPTO_AES and CONFIG_CRYPTO_HMAC",
    "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 mode tunnel "
    f"enc cbc(aes) {_KEY} auth-trunc hmac(sha256) {_KEY} 128",
)
"""What strongSwan asks of a kernel that has ESP: an association with AES-256 and HMAC-SHA2."""

_DAEMON = """\
charon-systemd {{
  load = {plugins}
  plugins {{
    vici {{
      socket = unix://{directory}/vici
    }}
  }}
  journal {{
    default = -1
  }}
  filelog {{
    log {{
      path = {directory}/charon.log
      default = 1
    }}
  }}
}}
"""

_CONNECTION = """\
connections {{
  lab {{
    version = 2
    local_addrs = {outer}
    remote_addrs = {outer_peer}
    proposals = aes256-sha256-modp2048
    encap = {encap}
    local {{
      auth = psk
      id = {outer}
    }}
    remote {{
      auth = psk
      id = {outer_peer}
    }}
    children {{
      net {{
        local_ts = {inner}/32
        remote_ts = {inner_peer}/32
        esp_proposals = aes256-sha256
        rekey_time = 30m
        start_action = {action}
      }}
    }}
  }}
}}
secrets {{
  ike-lab {{
    id-1 = {outer}
    id-2 = {outer_peer}
    secret = "{secret}"
  }}
}}
"""


def stations(lab: Lab) -> Iterator[tuple[Node, Station]]:
    """Yield the ends of all IPsec paths."""
    for node in lab.nodes:
        for s in node.stations:
            if s.kind == "ipsec":
                yield node, s


def check(profiles: Path = _PROFILES) -> None:
    """Raise VigiaError if strongSwan is missing, or is kept by AppArmor from reading files of the lab."""
    preflight.check_programs(preflight.IPSEC_PACKAGES)
    try:
        confined = [line for line in profiles.read_text().splitlines() if line.endswith("(enforce)")]
    except OSError:
        return  # no AppArmor
    if any("charon-systemd" in line for line in confined):
        raise VigiaError(
            "AppArmor keeps charon-systemd from reading the files of the lab; "
            "run: aa-complain /usr/sbin/charon-systemd, or leave IPsec out"
        )


@cache
def in_kernel() -> bool:
    """Whether the kernel has ESP with these algorithms: tried, in a namespace of its own.

    Raises VigiaError if nothing can be tried.
    """
    preflight.check_features(Layout(f"e{os.getpid() % 10**8}"), ())  # what is tried with can be made
    try:
        preflight.check_features(Layout(f"e{os.getpid() % 10**8}"), (ESP,))
    except VigiaError:
        return False
    return True


def datapath(lab: Lab) -> Datapath:
    """Return where ESP of a lab is done; nothing is tried for a lab without."""
    return "kernel" if any(stations(lab)) and in_kernel() else "userspace"


def implementation() -> str:
    """Return where ESP is done."""
    return "kernel ESP" if in_kernel() else "strongSwan in user space"


def start(lab: Lab) -> None:
    """Start strongSwan at both ends of every IPsec path and wait until they agree. Raises VigiaError."""
    ends = list(stations(lab))
    shared = {s.path: secrets.token_hex(24) for _, s in ends}
    first = {link.nodes[0] for link in lab.links}
    for node, s in sorted(ends, key=lambda end: end[0].name in first):  # who answers, before who asks
        _start_one(_directory(lab, node, s), s, shared[s.path], asks=node.name in first)
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda end: _await(_directory(lab, end[0], end[1]), end[1]), ends))


def _directory(lab: Lab, node: Node, s: Station) -> Path:
    return lab.layout.node(node.name) / s.path


def _start_one(directory: Path, s: Station, secret: str, *, asks: bool) -> None:
    directory.mkdir(mode=0o700, parents=True)
    esp = "" if in_kernel() else "kernel-libipsec "
    daemon = directory / "strongswan.conf"
    daemon.write_text(_DAEMON.format(plugins=_PLUGINS.format(esp=esp), directory=directory))
    config = directory / "swanctl.conf"
    config.touch(mode=0o600)
    config.write_text(
        _CONNECTION.format(
            outer=s.outer,
            outer_peer=s.outer_peer,
            inner=s.address.ip,
            inner_peer=s.peer,
            secret=secret,
            encap="no" if in_kernel() else "yes",
            action="start" if asks else "trap" if in_kernel() else "none",
        )
    )
    commands.ip_batch(["link set lo up", f"addr add {s.address.ip}/32 dev lo"], netns=s.netns)
    env = {"STRONGSWAN_CONF": str(daemon)}
    program = [commands.find("charon-systemd") or "charon-systemd"]
    netns.inside(s.netns, lambda: commands.detach(program, env=env, log=directory / "daemon.log"))
    patience = Patience(_PATIENCE)
    while not (directory / "vici").exists():
        if patience.over():
            raise VigiaError(f"strongSwan of path {s.path} does not answer; see {directory}/daemon.log")
        time.sleep(0.05)
    _swanctl(directory, "--load-all", "--file", str(config))


def _await(directory: Path, s: Station) -> None:
    patience = Patience(_PATIENCE)
    while not associations(directory):
        if patience.over():
            raise VigiaError(
                f"IPsec of path {s.path} did not come up within {_PATIENCE:g} s; see {directory}/charon.log"
            )
        time.sleep(0.1)


def associations(directory: Path) -> frozenset[str]:
    """Return the SPIs of the ESP associations of one end; others mean that it was rekeyed."""
    env = {"STRONGSWAN_CONF": str(directory / "strongswan.conf")}
    return sas.of_strongswan(directory / "vici", env)


def association_sets(lab: Lab) -> Mapping[str, frozenset[str]]:
    """Return the SPIs of every IPsec path, as its first end has them."""
    found: dict[str, frozenset[str]] = {}
    for node, s in stations(lab):
        if s.path not in found:
            found[s.path] = associations(_directory(lab, node, s))
    return found


def _swanctl(directory: Path, *arguments: str) -> str:
    argv = ["swanctl", *arguments, "--uri", f"unix://{directory}/vici"]
    return commands.run(argv, env={"STRONGSWAN_CONF": str(directory / "strongswan.conf")}).stdout
