"""vigia-probe beside fping, SmokePing's way of running fping, and blackbox_exporter, on the same link.

The measure of all is one: the kernel's stamps of every packet at the near end of the link,
taken by tcpdump. A tool's error is what it reports less what the packets took; a loss is
phantom when the answer is in the capture.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import bench

LinkStamps = dict[str, list[tuple[float, float]]]
"""By target: when each probe left (Unix seconds), and how long its answer took by the link's stamps (us)."""

TARGETS, PERIOD_MS = 10, 100
ROUND = 20
"""Pings of a round of SmokePing, its default."""
NEVER = math.nan
BLACKBOX = "prometheus-blackbox-exporter"
MODULE = "modules: {icmp: {prober: icmp, timeout: 1s, icmp: {preferred_ip_protocol: ip4}}}\n"


@dataclass
class Answers:
    """What a tool said of its probes, and what the link's stamps say of the same."""

    reported: dict[str, list[float]]
    """by target, in the order of sending: us; not a number for one it calls lost"""
    cpu: float
    """seconds"""
    sent_at: dict[str, list[float]] = field(default_factory=dict)
    """by target: Unix times, of a tool that tells them"""
    shown: list[float] = field(default_factory=list)
    """what it exports as round trips, us, where that is less: without the time in the reflector"""


@dataclass
class Taken:
    """One tool's figures of one repetition."""

    tool: str
    busy: bool
    probes: int
    errors_p50: float
    errors_p99: float
    p99: float
    cpu: float
    """us a probe"""
    phantom: int
    """called lost, and answered in the capture"""
    lost: int


def requests(capture: bytes) -> LinkStamps:
    """Return, by target, when each probe left the link's near end (Unix seconds) and what it took (us).

    capture is a pcap file in nanoseconds: ICMP echo, and UDP to port 862. Not a number: no answer came.
    Raises ValueError for another file.
    """
    if capture[:4] != struct.pack("<I", 0xA1B23C4D):
        raise ValueError("the capture is not a pcap file in nanoseconds")
    out: dict[str, dict[tuple[int, ...], tuple[int, float]]] = {}
    place = 24
    while place + 16 <= len(capture):
        seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", capture, place)
        frame = capture[place + 16 : place + 16 + length]
        place += 16 + length
        if (found := probe_of(frame)) is None:
            continue
        answer, target, key = found
        at = seconds * 1_000_000_000 + nanoseconds
        known = out.setdefault(target, {})
        if not answer:
            known.setdefault(key, (at, NEVER))
        elif key in known and math.isnan(known[key][1]):
            known[key] = (known[key][0], (at - known[key][0]) / 1000)
    return {t: sorted((sent / 1e9, rtt) for sent, rtt in known.values()) for t, known in out.items()}


def probe_of(frame: bytes) -> tuple[bool, str, tuple[int, ...]] | None:
    """Return of an Ethernet frame whether it is an answer, its target, and its numbers."""
    if len(frame) < 42 or frame[12:14] != b"\x08\x00" or frame[14] != 0x45:
        return None
    source, sink = (".".join(map(str, frame[i : i + 4])) for i in (26, 30))
    if frame[23] == 1 and frame[34] in {0, 8}:
        answer = frame[34] == 0
        return answer, source if answer else sink, struct.unpack_from(">HH", frame, 38)
    if frame[23] != 17:
        return None
    ports = struct.unpack_from(">HH", frame, 34)
    if 862 not in ports or len(frame) < 70:
        return None
    answer = ports[0] == 862
    # RFC 8762: the answer has the sender's sequence number in its 24th octet.
    (number,) = struct.unpack_from(">I", frame, 42 + (24 if answer else 0))
    return answer, source if answer else sink, (number, ports[1] if answer else ports[0])


def judge(tool: str, busy: bool, said: Answers, link: LinkStamps) -> Taken:
    """Hold what a tool reported against the link's stamps, probe by probe."""
    errors, values, phantom, lost = [], [], 0, 0
    for target, reported in said.reported.items():
        for value, truth in pairs(reported, said.sent_at.get(target), link.get(target, [])):
            if math.isnan(value):
                lost += 1
                phantom += not math.isnan(truth)
            else:
                values.append(value)
                if not math.isnan(truth):
                    errors.append(abs(value - truth))
    probes = len(values) + lost
    return Taken(
        tool,
        busy,
        probes,
        bench.quantile(errors, 0.5),
        bench.quantile(errors, 0.99),
        bench.quantile(said.shown or values, 0.99),
        said.cpu / max(probes, 1) * 1e6,
        phantom,
        lost,
    )


def pairs(
    reported: Sequence[float], sent_at: Sequence[float] | None, link: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Match what was reported with the link's round trips: by time of sending if told, else by order."""
    if sent_at is None:
        whole = len(reported) == len(link)  # else nobody knows which is which
        yield from zip(reported, [rtt for _, rtt in link] if whole else [NEVER] * len(reported), strict=True)
        return
    moments = [at for at, _ in link]
    for value, at in zip(reported, sent_at, strict=True):
        i = bisect.bisect(moments, at)
        near = min(
            (j for j in (i - 1, i) if 0 <= j < len(link)), key=lambda j: abs(moments[j] - at), default=None
        )
        yield value, link[near][1] if near is not None and abs(moments[near] - at) < 0.01 else NEVER


@contextlib.contextmanager
def captured(folder: Path) -> Iterator[Callable[[], LinkStamps]]:
    """Capture the link's near end; the result reads what was captured, and ends the capture."""
    file = folder / f"{time.monotonic_ns()}.pcap"
    words = [
        "tcpdump",
        "-i",
        "veth0",
        "-s",
        "96",
        "-B",
        "16384",
        "--time-stamp-precision=nano",
        "--immediate-mode",
        "-U",
        "-Z",
        "root",
    ]
    tap = subprocess.Popen(
        bench.inside(bench.LEFT, *words, "-w", str(file), "icmp or udp port 862"),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = tap.stderr.readline() if tap.stderr else ""
        if "listening" not in said:
            raise SystemExit(f"bench: cannot capture: {said.strip()}")

        def read() -> LinkStamps:
            time.sleep(0.5)
            tap.terminate()
            tap.wait(bench.PATIENCE)
            return requests(file.read_bytes())

        yield read
    finally:
        if tap.poll() is None:
            tap.kill()
        tap.communicate()
        file.unlink(missing_ok=True)


def ours(folder: Path, rounds: int) -> tuple[Answers, LinkStamps]:
    """Let vigia-probe send; what counts is all between its kernel stamps, as in the capture."""
    with bench.probing(folder, TARGETS, PERIOD_MS) as (near, _), captured(folder) as read:
        time.sleep(0.2)
        since, start = time.time_ns(), bench.cpu_seconds(near.process.pid)
        time.sleep(rounds * ROUND * PERIOD_MS / 1000)
        cpu, until = bench.cpu_seconds(near.process.pid) - start, time.time_ns()
        time.sleep(1.2)  # the deadline of the last
        link = read()
        records = [json.loads(line) for line in near.get("/debug/records").splitlines()]
    mine = sorted((r for r in records if since <= r.get("t1", 0) < until), key=lambda r: int(r["t1"]))
    said = Answers({}, cpu)
    for record in mine:
        target = bench.address(int(record["dst"][1:]))
        answered = record["outcome"] == "received" and "t4" in record
        said.reported.setdefault(target, []).append(
            (record["t4"] - record["t1"]) / 1000 if answered else NEVER
        )
        said.sent_at.setdefault(target, []).append(record["t1"] / 1e9)
        if "rtt_ns" in record:
            said.shown.append(record["rtt_ns"] / 1000)
    return said, link


def by_fping(folder: Path, rounds: int) -> tuple[Answers, LinkStamps]:
    """Let one fping send all probes."""
    with captured(folder) as read:
        said = fping_answers(bench.fping(TARGETS, PERIOD_MS, rounds * ROUND * PERIOD_MS / 1000))
        return said, read()


def by_smokeping(folder: Path, rounds: int) -> tuple[Answers, LinkStamps]:
    """Run fping as SmokePing's FPing probe does: a new process for a round, with its words and defaults."""
    total = Answers({}, 0.0)
    hosts = [bench.address(i) for i in range(TARGETS)]
    words = ["-C", str(ROUND), "-q", "-B1", "-r1", "-4", "-i10", f"-p{PERIOD_MS}"]
    with captured(folder) as read:
        for _ in range(rounds):
            argv = bench.inside(bench.LEFT, "fping", *words, *hosts)
            child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            said = fping_answers(child)
            total.cpu += said.cpu
            for target, values in said.reported.items():
                total.reported.setdefault(target, []).extend(values)
        return total, read()


def fping_answers(process: subprocess.Popen[str]) -> Answers:
    """Wait for an fping -C and return what it reported."""
    err, cpu = bench.fping_said(process)
    said = Answers({}, cpu)
    for line in err.splitlines():
        if " : " in line:
            target, values = line.split(" : ", 1)
            found = [NEVER if v == "-" else float(v) * 1000 for v in values.split()]
            said.reported.setdefault(target.strip(), []).extend(found)
    return said


def by_blackbox(folder: Path, rounds: int) -> tuple[Answers, LinkStamps]:
    """Scrape blackbox_exporter for each probe, as Prometheus does, at the same rate."""
    config, port = folder / "blackbox.yml", 30000 + int(time.monotonic_ns() // 1000) % 20000
    config.write_text(MODULE)
    argv = [
        BLACKBOX,
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    server = subprocess.Popen(
        bench.inside(bench.LEFT, *argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    scraper = None
    try:
        with captured(folder) as read:
            words = [
                str(Path(__file__)),
                str(port),
                str(rounds * ROUND),
                str(PERIOD_MS),
                *map(bench.address, range(TARGETS)),
            ]
            scraper = subprocess.Popen(
                bench.inside(bench.LEFT, sys.executable, *words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            if scraper.stdout:
                scraper.stdout.readline()  # it answers
            start = bench.cpu_seconds(server.pid)
            out, _ = scraper.communicate("go\n")
            cpu = bench.cpu_seconds(server.pid) - start
            found = json.loads(out)
            said = Answers(
                {t: [NEVER if v is None else v for v in values] for t, values in found.items()}, cpu
            )
            return said, read()
    finally:
        for child in (scraper, server):
            if child and child.poll() is None:
                child.kill()
            if child:
                child.wait()


def scrape(port: int, probes: int, period: float, targets: Sequence[str]) -> dict[str, list[float | None]]:
    """Scrape each target's probe in its turn, and return what blackbox_exporter says they took, us."""

    def once(target: str) -> float | None:
        url = f"http://127.0.0.1:{port}/probe?module=icmp&target={target}"
        with urllib.request.urlopen(url, timeout=bench.PATIENCE) as page:  # noqa: S310 - our own http URL
            text = page.read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        if float(values["probe_success"]) != 1:
            return None
        return float(values['probe_icmp_duration_seconds{phase="rtt"}']) * 1e6

    deadline = time.monotonic() + bench.PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthy", timeout=bench.PATIENCE).close()
            break
        time.sleep(0.1)
    bench.say("ready")
    sys.stdout.flush()
    sys.stdin.readline()
    out: dict[str, list[float | None]] = {t: [] for t in targets}
    begin, gap = time.monotonic(), period / len(targets)
    for i, target in enumerate(itertools.islice(itertools.cycle(targets), probes * len(targets))):
        time.sleep(max(0.0, begin + i * gap - time.monotonic()))
        out[target].append(once(target))
    return out


TOOLS: dict[str, Callable[[Path, int], tuple[Answers, LinkStamps]]] = {
    "vigia-probe": ours,
    "fping": by_fping,
    "SmokePing's method": by_smokeping,
    "blackbox_exporter": by_blackbox,
}
NEEDS = {"fping": ("fping",), "SmokePing's method": ("fping",), "blackbox_exporter": (BLACKBOX,)}
"""Programs of each peer, which are Debian's packages of the same name."""


def missing(tool: str) -> str:
    """Return how to get a peer that is not there, or nothing."""
    lacking = [p for p in NEEDS.get(tool, ()) if shutil.which(p) is None]
    return f"missing: apt-get install {' '.join(lacking)}" if lacking else ""


def take(folder: Path, repetitions: int, rounds: int) -> list[Taken]:
    """Measure every tool that is there in turns, with processors free and with all of them taken."""
    out = []
    for busy, _, (tool, run) in itertools.product((False, True), range(repetitions), TOOLS.items()):
        if missing(tool):
            continue
        with bench.pressure(busy):
            out.append(judge(tool, busy, *run(folder, rounds)))
        sys.stderr.write(f"  {out[-1]}\n")
    return out


def figures(taken: Sequence[Taken], rounds: int) -> list[dict[str, object]]:
    """Return a line for each figure and peer: what, unit, ours, peer, theirs, note."""
    probes = rounds * ROUND * TARGETS
    wanted: list[tuple[str, str, bool, Callable[[Taken], float]]] = []
    for busy, state in (
        (False, "processors free"),
        (True, "both cores taken" if os.cpu_count() == 2 else "all cores taken"),
    ):
        wanted += [
            (f"error of a round trip, p50, {state}", "µs", busy, lambda t: t.errors_p50),
            (f"error of a round trip, p99, {state}", "µs", busy, lambda t: t.errors_p99),
            (f"reported round trip, p99, {state}", "µs", busy, lambda t: t.p99),
            (f"processor time of a probe at 100/s, {state}", "µs", busy, lambda t: t.cpu),
            (f"phantom losses of {probes}, {state}", "probes", busy, lambda t: float(t.phantom)),
        ]
    out: list[dict[str, object]] = []
    for (what, unit, busy, value), peer in itertools.product(wanted, list(TOOLS)[1:]):
        mine, theirs = (
            [value(t) for t in taken if t.busy == busy and t.tool == name] for name in ("vigia-probe", peer)
        )
        out.append(
            {"what": what, "unit": unit, "ours": mine, "peer": peer, "theirs": theirs, "note": missing(peer)}
        )
    return out


def main() -> None:
    """Be the scraper of by_blackbox: PORT PROBES PERIOD_MS TARGET..."""
    port, probes, period, *targets = sys.argv[1:]
    bench.say(json.dumps(scrape(int(port), int(probes), int(period) / 1000, targets)))


if __name__ == "__main__":
    main()
