"""A node's three fast pages together: what is on them, and that they are as few series as the budget says."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import httpx
import pytest
from labkit import need_root

from vigia_catalog import FAST_PAGE, MAIN_PAGE, part_metrics
from vigia_testing import DEADLINE, eventually

ROOT = Path(__file__).resolve().parents[2]
HOST = str(IPv4Address("127.2.0.0") + os.getpid())
"""Loopback of this run alone."""

PORTS = 50
FLOODED = ("p03", "p17", "p42")
LOSSY = 40
ADDRESSES = {"probe": f"{HOST}:9871", "exporter": f"{HOST}:9872", "enforcer": f"{HOST}:9873"}
TOKEN = "a-token-of-the-tests-0123456789"

# What the tenants' ends of the ports send: 6 000 datagrams a second each, to ever other ports of one
# destination, until standard input ends, and for ten minutes at most.
_FLOOD = """
import select, socket, struct, sys, time
ends = []
for device in sys.argv[1:]:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((device, 0))
    ends.append(s)
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 128, 0, 0, 64, 17, 0, socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2"))
head = bytes.fromhex("020000000002" "020000000001" "0800") + ip
port, end = 0, time.monotonic() + 600
while time.monotonic() < end and not select.select([sys.stdin], [], [], 0.05)[0]:
    for s in ends:
        for _ in range(300):
            port = (port + 7919) % 60000
            s.send(head + struct.pack("!HHHH", 4000, 1024 + port, 108, 0) + bytes(100))
"""


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEADLINE)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A node of 50 ports with the three programs: the name of the tenants' namespace, their device by port."""
    need_root()
    folder = tmp_path_factory.mktemp("fast")
    with contextlib.ExitStack() as stack:
        inside, guests = (f"vigia-test-fast-{side}-{os.getpid()}" for side in ("n", "g"))
        for name in (inside, guests):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
            run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        lines = [f"link add t{i:02} up type veth peer name e{i:02} netns {guests}" for i in range(PORTS)]
        lines += [  # an uplink, and behind it a router that drops all
            "link add up0 up type veth peer name up1",
            "link set up1 up",
            "addr add 10.99.0.1/24 dev up0",
            "neigh add 10.99.0.2 lladdr 02:00:00:00:00:99 dev up0 nud permanent",
            "route add default via 10.99.0.2",
        ]
        (folder / "links").write_text("\n".join(lines))
        run("ip", "-n", inside, "-batch", str(folder / "links"))
        (folder / "ends").write_text("\n".join(f"link set e{i:02} up" for i in range(PORTS)))
        run("ip", "-n", guests, "-batch", str(folder / "ends"))
        pins = folder / "bpf"
        pins.mkdir()
        run("mount", "-t", "bpf", f"vigia-test-{os.getpid()}", str(pins))
        stack.callback(run, "umount", str(pins))
        write(folder, inside)
        for program, address in ADDRESSES.items():
            log = stack.enter_context((folder / f"{program}.log").open("wb"))
            process = subprocess.Popen(
                [
                    str(ROOT / "bin" / f"vigia-{program}"),
                    f"--config={folder / program}.yaml",
                    f"--web.listen-address={address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait, DEADLINE)
            stack.callback(process.terminate)
        for program in ADDRESSES:
            eventually(
                lambda p=program: status(p, "/-/ready") == 200,
                lambda p=program: (folder / f"{p}.log").read_text(),
            )
        yield {f"p{i:02}": f"e{i:02}" for i in range(PORTS)} | {"": guests}


def write(folder: Path, inside: str) -> None:
    """Write what the programs read: a tenant of each port, and 40 targets that nobody answers."""
    ports = "".join(
        f"  - {{device: t{i:02}, port: p{i:02}, tenant: tenant-{i % 10}}}\n" for i in range(PORTS)
    )
    (folder / "ports.yaml").write_text(f"version: 1\nports:\n{ports}")
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(f"{TOKEN}\n")
    common = f"node: n1\nnetns: {inside}\nports_file: {folder}/ports.yaml\nbpf: {{pin_dir: {folder}/bpf/node, max_ports: 64}}\n"
    (folder / "exporter.yaml").write_text(common)
    bought = "".join(f"  - {{tenant: tenant-{i}, guarantee: 8Mbit, ceiling: 100Mbit}}\n" for i in range(10))
    (folder / "enforcer.yaml").write_text(f"{common}token_file: {folder}/token\ncontracts:\n{bought}")
    targets = "".join(
        f'  - {{dst: n{i}, path: direct, tenant: tenant-{i % 10}, probe: c, netns: {inside}, address: "10.99.1.{i + 1}:862"}}\n'
        for i in range(LOSSY)
    )
    (folder / "probe.yaml").write_text(
        "node: n1\n"
        "paths: [{name: direct, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: remote}]\n"
        "classes: [{name: c, protocol: stamp, size: 64, interval: 100ms, deadline: 200ms}]\n"
        f"targets:\n{targets}"
    )


def status(program: str, path: str) -> int:
    try:
        return httpx.get(f"http://{ADDRESSES[program]}{path}", trust_env=False, timeout=DEADLINE).status_code
    except httpx.HTTPError:
        return 0


def page(program: str, path: str) -> list[str]:
    """Return every series of a page."""
    answer = httpx.get(f"http://{ADDRESSES[program]}{path}", trust_env=False, timeout=DEADLINE)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return [line.rpartition(" ")[0] for line in answer.text.splitlines() if not line.startswith("#")]


def fast() -> list[str]:
    return [series for program in ADDRESSES for series in page(program, FAST_PAGE)]


def by_port(series: list[str]) -> Counter[str]:
    return Counter(m[1] for s in series if (m := re.search(r'[{,]port="([^"]+)"', s)))


@contextlib.contextmanager
def flood(node: dict[str, str]) -> Iterator[None]:
    """Have the tenants of three ports flood."""
    devices = [node[p] for p in FLOODED]
    # Less than a third of this is no flood: it comes before what else the machine does.
    first = ["nice", "-n", "-15"]
    command = [*first, "ip", "netns", "exec", node[""], sys.executable, "-c", _FLOOD, *devices]
    sender = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert sender.stdin is not None
        sender.stdin.close()
        sender.wait(DEADLINE)


def limit(port: str) -> None:
    body = {
        "id": f"11111111-1111-4111-8111-0000000000{port[1:]}",
        "tenant": f"tenant-{int(port[1:]) % 10}",
        "protocol": "udp",
        "rate_bytes_per_second": 1_000_000,
        "burst_bytes": 0,
        "ttl_seconds": 60,
    }
    answer = httpx.put(
        f"http://{ADDRESSES['enforcer']}/v1/ports/{port}/limit",
        json=body,
        headers={"Authorization": f"Bearer {TOKEN}"},
        trust_env=False,
        timeout=DEADLINE,
    )
    assert answer.status_code == 200, answer.text


def shows_what_it_has_to(program: str) -> bool:
    """Compare the metrics that a flooded node's program shows with the catalogue.

    What the catalogue has on the fast page is there, and what it has on both is on the other as well.
    """
    declared = {m.name: m for m in part_metrics(program)}
    there = {s.partition("{")[0] for s in page(program, FAST_PAGE)}
    main = {s.partition("{")[0] for s in page(program, MAIN_PAGE)}
    expected = {name for name, m in declared.items() if m.on_fast_page}
    # Of targets that nobody answers no round trip was judged; who is not in a mesh does not vote.
    votes = {name for name in expected if "unreachable" in name}
    # No link of this node is full.
    expected -= {"vigia_probe_recent_slow_ratio", "vigia_isolation_taken_bytes_per_second", *votes}
    return there == expected and there & main == {n for n in there if MAIN_PAGE in declared[n].pages}


def test_a_node_of_which_three_ports_tell_is_within_its_budget(node: dict[str, str]) -> None:
    eventually(
        lambda: "vigia_exporter_flood_watched_ports" in fast() and len(page("probe", FAST_PAGE)) >= 5,
        "the programs have seen the ports and the losses",
    )
    assert not by_port(fast()), "quiet ports have series"
    worst: list[str] = []

    def limited(what: Callable[[], bool]) -> bool:
        """Look at what is so while there are limits, which live for a minute unless they are ordered again."""
        for port in FLOODED:
            limit(port)
        return what()

    def everything() -> bool:
        nonlocal worst
        now = fast()
        worst = max(worst, now, key=len)
        return by_port(now) == dict.fromkeys(FLOODED, 3)

    with flood(node):
        eventually(lambda: set(by_port(page("exporter", FAST_PAGE))) == set(FLOODED), "the floods to be seen")
        eventually(lambda: limited(everything), lambda: f"three series of each port that floods: {worst}")
        for program in ADDRESSES:
            shown = partial(limited, partial(shows_what_it_has_to, program))
            eventually(shown, f"what the catalogue has of {program}")
    assert len(worst) <= 3 * len(FLOODED) + 10, worst
    eventually(lambda: not by_port(page("exporter", FAST_PAGE)), "the floods to be over")
