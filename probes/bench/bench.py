"""Compare vigia-probe with fping on one link, in the same run; its schedule with that of a bare timer.

Usage: bench.py [--json FILE] [--repetitions N] [--study NAME]; needs root, fping and bin/vigia-probe.

Two network namespaces are joined by a veth pair. Every figure of vigia-probe stands
beside fping's where fping can do the job, taken in turns, with the number of
repetitions, the spread and the machine's load. Budgets are those of the design.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "bin" / "vigia-probe"
SECONDS = 6
WARM_UP = 2
PATIENCE = 120.0  # seconds for a program to start, to answer or to end: only a fault reaches them
TIMER = Path(__file__).with_name("timer.py")
RATES = (10000, 20000, 40000)
SCRAPED_EVERY = 15  # seconds, as Prometheus does unless told otherwise
BUDGET_RATE, LATE_BUDGET = 10000, 0.1
# Probes a second, as targets and the interval of each in milliseconds.
PRICED = {10: (10, 1000), 60: (60, 1000), 100: (100, 1000), 1000: (100, 100), 10000: (100, 10)}
PRICE_BUDGET = {60: 100.0}  # us
FPING_MOST = 6000  # probes a second: it has 65 535 numbers and keeps each for 10 s
LEFT, RIGHT = f"vigia-bench-{os.getpid()}-l", f"vigia-bench-{os.getpid()}-r"


@dataclass
class Row:
    """One line of the table."""

    what: str
    ours: list[float]
    peer: list[float]
    unit: str
    budget: float | None = None
    budget_ratio: float | None = None  # to the peer's, where the machine decides about the figure

    def ratio(self) -> float | None:
        """Ours by the peer's, of the medians."""
        if not self.peer or not statistics.median(self.peer):
            return None
        return statistics.median(self.ours) / statistics.median(self.peer)

    def met(self) -> bool | None:
        """Whether the median is within the budget."""
        if self.budget_ratio is not None and (ratio := self.ratio()) is not None:
            return ratio <= self.budget_ratio
        return None if self.budget is None else statistics.median(self.ours) <= self.budget

    def limit(self) -> str:
        """The budget as text."""
        return f"ratio {self.budget_ratio:.2f}" if self.budget_ratio else f"{self.budget or 0:g}"


def run(*args: str) -> str:
    """Run a command and return what it printed."""
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout


def inside(ns: str, *args: str) -> list[str]:
    """Return the command that runs args in a network namespace."""
    return ["ip", "netns", "exec", ns, *args]


def address(i: int) -> str:
    """Return the i-th address of the far end."""
    return f"10.77.{1 + i // 250}.{1 + i % 250}"


@contextlib.contextmanager
def link(addresses: int) -> Iterator[None]:
    """Make two namespaces, joined by a link, with so many addresses at the far end."""
    try:
        for ns in (LEFT, RIGHT):
            run("ip", "netns", "add", ns)
            run("ip", "-n", ns, "link", "set", "lo", "up")
        run(
            "ip",
            "link",
            "add",
            "veth0",
            "netns",
            LEFT,
            "type",
            "veth",
            "peer",
            "name",
            "veth0",
            "netns",
            RIGHT,
        )
        run("ip", "-n", LEFT, "addr", "add", "10.77.0.1/16", "dev", "veth0")
        batch = "".join(f"addr add {address(i)}/16 dev veth0\n" for i in range(addresses))
        subprocess.run(["ip", "-n", RIGHT, "-batch", "-"], input=batch, text=True, check=True)
        for ns in (LEFT, RIGHT):
            run("ip", "-n", ns, "link", "set", "veth0", "up")
        yield
    finally:
        for ns in (LEFT, RIGHT):
            subprocess.run(["ip", "netns", "del", ns], capture_output=True, check=False)


class Daemon:
    """A running vigia-probe whose metrics are read over the namespace's loopback."""

    def __init__(self, ns: str, config: str, folder: Path, cpu: int | None) -> None:
        self.ns = ns
        path = folder / f"{ns}-{time.monotonic_ns()}.yaml"
        path.write_text(config)
        pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        # The metrics listener is outside of the namespaces, so the sockets enter them.
        # They are below those that the kernel gives out, and above those that tests in Go take.
        self.port = 32380 + os.getpid() % 190 * 2 + (1 if ns == RIGHT else 0)
        self.process = subprocess.Popen(
            [
                *pin,
                str(PROBE),
                "--config",
                str(path),
                "--web.listen-address",
                f"127.0.0.1:{self.port}",
                "--log.level",
                "error",
            ]
        )

    def get(self, path: str) -> str:
        """Read a page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE) as page:
            text: str = page.read().decode()
        return text

    def ready(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self.get("/-/healthy")
                return
            time.sleep(0.05)
        raise SystemExit("bench: vigia-probe does not answer")

    def total(self, name: str) -> float:
        """Add up a family's values."""
        return sum(
            float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics"), re.M)
        )

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(PATIENCE)


def config_sender(targets: int, interval_ms: float, size: int = 64) -> str:
    """Return the configuration of the near end."""
    lines = [
        "node: a",
        "series: all",
        "paths: [{name: p, dataplane: veth, encap: none, mode: none, security: none, layer: underlay,"
        " placement: local}]",
        f"classes: [{{name: c, protocol: stamp, size: {size}, interval: {interval_ms:g}ms, deadline: 1s}}]",
        "targets:",
    ]
    lines += [
        f'  - {{dst: b{i}, path: p, tenant: _infra, probe: c, netns: {LEFT}, address: "{address(i)}:862"}}'
        for i in range(targets)
    ]
    return "\n".join(lines) + "\n"


def config_reflector() -> str:
    """Return the configuration of the far end."""
    listener = f'{{netns: {RIGHT}, address: "0.0.0.0:862"}}'
    return f"node: b\nreflector: {{listeners: [{listener}], allow: [10.77.0.0/16], max_rate: 1000000}}\n"


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process's threads so far, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


@contextlib.contextmanager
def probing(
    folder: Path, targets: int, interval_ms: float, cpus: tuple[int | None, int | None] = (None, None)
) -> Iterator[tuple[Daemon, Daemon]]:
    """Run both ends and warm them up."""
    far = Daemon(RIGHT, config_reflector(), folder, cpus[1])
    near = None
    try:
        far.ready()
        near = Daemon(LEFT, config_sender(targets, interval_ms), folder, cpus[0])
        near.ready()
        time.sleep(WARM_UP)
        yield near, far
    finally:
        if near:
            near.stop()
        far.stop()


def fping(targets: int, period_ms: int, seconds: float, *more: str) -> subprocess.Popen[str]:
    """Start fping at the near end."""
    hosts = [address(i) for i in range(targets)]
    gap = f"{period_ms / targets * 0.8:.3f}"
    count = str(int(seconds * 1000 / period_ms))
    return subprocess.Popen(
        inside(
            LEFT, "fping", "-q", "-i", gap, "-p", str(period_ms), "-t", "1000", *more, "-C", count, *hosts
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fping_result(process: subprocess.Popen[str]) -> tuple[list[float], int, float]:
    """Return RTTs in microseconds, how many probes were lost, and the processor time."""
    err, cpu = fping_said(process)
    values = [v for line in err.splitlines() if " : " in line for v in line.split(" : ", 1)[1].split()]
    return [float(v) * 1000 for v in values if v != "-"], values.count("-"), cpu


def fping_said(process: subprocess.Popen[str]) -> tuple[str, float]:
    """Wait for an fping; return its standard error and its processor time."""
    err = process.stderr.read() if process.stderr else ""
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return err, usage.ru_utime + usage.ru_stime


def quantile(values: list[float], q: float) -> float:
    """Return an order statistic."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


SLOWEST = 3


def rtts(near: Daemon, since_ns: int) -> tuple[list[float], list[float]]:
    """Return RTTs by kernel stamps and those of an application in microseconds, of what was sent since.

    Says which probes were the slowest and on which leg; without any that has all
    stamps there is no figure, and the verdicts tell why.
    """
    records = [json.loads(line) for line in near.get("/debug/records").splitlines()]
    answered = [r for r in records if r["outcome"] == "received" and r["t1"] >= since_ns]
    good = sorted((r for r in answered if "rtt_ns" in r), key=lambda r: float(r["rtt_ns"]))
    verdicts = dict(Counter(r["verdict"] for r in answered))
    if not good:
        raise SystemExit(
            f"bench: no probe has all stamps of the kernel: {len(records)} records, verdicts {verdicts}"
        )
    unfit = near.total('vigia_probe_quarantined_total{[^}]*reason="steal"[^}]*}')
    sys.stderr.write(
        f"  verdicts {verdicts}, while the hypervisor took the processors {unfit:g}; the slowest:\n"
    )
    for r in good[-SLOWEST:]:
        legs = [r["t2"] - r["t1"], r["t3"] - r["t2"], r["t4"] - r["t3"]]
        there, residence, back = (leg / 1000 for leg in legs)
        where = f"there {there:.1f}, reflector {residence:.1f}, back {back:.1f} us"
        sys.stderr.write(f"    {r['dst']} #{r['sequence']}: {where}\n")
    return [r["rtt_ns"] / 1000 for r in good], [r["application_ns"] / 1000 for r in answered]


def bench_cpu(folder: Path, n: int) -> list[Row]:
    """Processor time per probe at 200 targets x 10/s, and phantom loss at that 2 000/s."""
    # The design's 20 us, where fping took 18 without send stamps.
    ours = Row("CPU per probe, 200 x 10/s", [], [], "us", budget_ratio=20 / 18)
    far_row = Row("CPU per probe, our reflector", [], [], "us")
    loss = Row("loss at 2 000/s, unexplained by nstat", [], [], "probes", 0)
    mismatch = Row("accounting mismatch", [], [], "probes", 0)
    halting = Row("CPU per probe, processors may halt", [], [], "us")
    with awake(*range(os.cpu_count() or 1)):
        for _ in range(n + 2):
            one_cpu(folder, ours, far_row, loss, mismatch)
    one_cpu(folder, halting, Row("", [], [], ""), loss, mismatch)
    return [ours, halting, far_row, loss, mismatch]


def bench_price(folder: Path, n: int) -> list[Row]:
    """The processor time of a probe by how many there are a second: a daemon's own time is shared by them."""
    rows = []
    idle = Row("CPU without probes", [], [], "us/s")
    for _ in range(n):
        far = Daemon(RIGHT, config_reflector(), folder, None)
        try:
            far.ready()
            time.sleep(WARM_UP)
            idle.ours.append(spent(far.process.pid, 2 * SECONDS)[0] * 1e6)
        finally:
            far.stop()
    for rate in PRICED:
        near_row = Row(f"CPU per probe at {rate}/s", [], [], "us", PRICE_BUDGET.get(rate))
        far_row = Row(f"CPU per probe at {rate}/s, our reflector", [], [], "us")
        for _ in range(n):
            one_price(folder, rate, near_row, far_row)
        rows += [near_row, far_row]
    return [idle, *rows]


def one_price(folder: Path, rate: int, near_row: Row, far_row: Row) -> None:
    """Take each once, ours and fping's, of the same time."""
    targets, interval = PRICED[rate]
    seconds = 3 * SECONDS if rate <= 100 else SECONDS
    with probing(folder, targets, interval) as (near, far):
        sent = near.total("vigia_probe_sent_total")
        since = time.monotonic()
        used = spent_together([near.process.pid, far.process.pid], seconds)
        sent = (near.total("vigia_probe_sent_total") - sent) / (time.monotonic() - since)
    near_row.ours.append(used[0] / sent * 1e6)
    far_row.ours.append(used[1] / sent * 1e6)
    if rate > FPING_MOST:
        return
    peer = fping(targets, interval, seconds + 2 * WARM_UP)
    time.sleep(WARM_UP)
    near_row.peer.append(spent(peer.pid, seconds)[0] / rate * 1e6)
    fping_result(peer)


def spent(pid: int, seconds: float) -> list[float]:
    """Return the processor seconds that a process takes a second, for a while."""
    return spent_together([pid], seconds)


def spent_together(pids: list[int], seconds: float) -> list[float]:
    """Return the processor seconds that processes take a second, for the same while."""
    start, since = [cpu_seconds(p) for p in pids], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - since
    return [(cpu_seconds(p) - s) / passed for p, s in zip(pids, start, strict=True)]


def one_cpu(folder: Path, ours: Row, far_row: Row, loss: Row, mismatch: Row) -> None:
    """Take each once, ours and fping's."""
    before = drops()
    with probing(folder, 200, 100) as (near, far):
        # Reading the metrics costs processor time, too, so it is done outside.
        sent, since = near.total("vigia_probe_sent_total"), time.monotonic()
        start = [cpu_seconds(d.process.pid) for d in (near, far)]
        time.sleep(SECONDS)
        used = [cpu_seconds(d.process.pid) - s for d, s in zip((near, far), start, strict=True)]
        rate = (near.total("vigia_probe_sent_total") - sent) / (time.monotonic() - since)
        probes = rate * SECONDS
        lost = near.total("vigia_probe_lost_total")
        mismatch.ours.append(near.total("vigia_probe_accounting_mismatch"))
    ours.ours.append(used[0] / probes * 1e6)
    far_row.ours.append(used[1] / probes * 1e6)
    loss.ours.append(max(lost - (drops() - before), 0))
    before = drops()
    values, missing, cpu = fping_result(fping(200, 100, SECONDS))
    ours.peer.append(cpu / (len(values) + missing) * 1e6)
    loss.peer.append(max(missing - (drops() - before), 0))


def drops() -> int:
    """Return how many datagrams full buffers dropped, in both namespaces."""
    total = 0
    for ns in (LEFT, RIGHT):
        out = subprocess.run(
            inside(ns, "nstat", "-asz", "UdpRcvbufErrors"), capture_output=True, text=True, check=True
        )
        total += sum(int(v) for v in re.findall(r"UdpRcvbufErrors\s+(\d+)", out.stdout))
    return total


SPINNER = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    pass
"""


@contextlib.contextmanager
def awake(*cpus: int) -> Iterator[None]:
    """Keep processors from halting, with work that any other thread comes before (SCHED_IDLE).

    The host gives a virtual processor that halts to others, and wakes it late; what a
    wake-up costs then says more about the host than about the program.
    """
    spinners = [subprocess.Popen([sys.executable, "-c", SPINNER, str(cpu)]) for cpu in cpus]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@contextlib.contextmanager
def pressure(on: bool) -> Iterator[None]:
    """Keep every processor busy twice over."""
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1) if on else 0)
    ]
    try:
        yield
    finally:
        for b in burners:
            b.kill()
            b.wait()


def bench_noise(folder: Path, n: int) -> list[Row]:
    """The RTT's 99th percentile, idle and under full CPU pressure."""
    rows = []
    for name, busy in (("idle", False), ("CPU saturated", True)):
        kernel = Row(f"RTT p99, {name}, kernel stamps", [], [], "us", 50 if busy else None)
        application = Row(f"RTT p99, {name}, application (reflector included)", [], [], "us")
        own = {stage: Row(f"own delay, mean, {name}, {stage}", [], [], "us") for stage in ("send", "read")}
        for _ in range(n):
            with pressure(busy):
                with probing(folder, 10, 10) as (near, _):
                    since = time.time_ns()  # not what the start was like
                    time.sleep(SECONDS / 2)
                    k, a = rtts(near, since)
                    for stage, row in own.items():
                        row.ours.append(own_delay(near, stage))
                values, _, _ = fping_result(fping(10, 10, SECONDS / 2))
            kernel.ours.append(quantile(k, 0.99))
            application.ours.append(quantile(a, 0.99))
            kernel.peer.append(quantile(values, 0.99))
            application.peer.append(quantile(values, 0.99))
        rows += [kernel, application, *own.values()]
    return rows


def own_delay(near: Daemon, stage: str) -> float:
    """Return the mean of what vigia-probe itself adds, in microseconds."""
    found = [
        float(re.findall(rf'^vigia_probe_own_delay_seconds_{part}{{stage="{stage}"}} (\S+)$', text, re.M)[0])
        for text in [near.get("/metrics")]
        for part in ("sum", "count")
    ]
    return found[0] / max(found[1], 1) * 1e6


def bench_rate(folder: Path, n: int) -> list[Row]:
    """The share of probes that leave more than 1 ms late from one core, and the highest rate with few."""
    rows = []
    highest = Row(f"highest rate with at most {LATE_BUDGET} % late, of those tried", [], [], "/s")
    # fping stops at 6 553/s: it has 65 535 numbers and keeps each for 10 s.
    for rate in RATES:
        budget = LATE_BUDGET if rate == BUDGET_RATE else None
        row = Row(f"lag above 1 ms at {rate}/s on one core", [], [], "%", budget)
        with awake(*range(os.cpu_count() or 1)):
            sent = [one_rate(folder, rate, row) for _ in range(n)]
        row.what += f" ({statistics.median(sent):.0f}/s sent)"
        rows.append(row)
        if statistics.median(row.ours) <= LATE_BUDGET:
            highest.ours = [statistics.median(sent)]
    halting = Row(f"lag above 1 ms at {BUDGET_RATE}/s, the core may halt", [], [], "%")
    for _ in range(n):
        one_rate(folder, BUDGET_RATE, halting)
    return [rows[0], halting, *rows[1:], highest]


def one_rate(folder: Path, rate: int, row: Row) -> float:
    """Take the share once, ours and a bare timer's; return how many probes left a second."""
    # Before and not beside: the sender's own work would make the timer late.
    timer = json.loads(run("taskset", "-c", "0", sys.executable, str(TIMER), str(SCRAPED_EVERY)))
    with probing(folder, rate // 100, 10, (0, 1)) as (near, _):
        before, since = lags(near), time.monotonic()
        time.sleep(SCRAPED_EVERY)
        after, seconds = lags(near), time.monotonic() - since
    late, total = after[0] - before[0], after[1] - before[1]
    row.peer.append(100 * timer["late"] / timer["total"])
    row.ours.append(100 * late / max(total, 1))
    return total / seconds


def lags(near: Daemon) -> tuple[float, float]:
    """Return how many probes left more than 1 ms late, and how many left."""
    text = near.get("/metrics")
    name = "vigia_probe_schedule_lag_seconds"
    total = sum(float(v) for v in re.findall(rf"^{name}_count(?:{{[^}}]*}})? (\S+)$", text, re.M))
    early = sum(float(v) for v in re.findall(rf'^{name}_bucket{{[^}}]*le="0.001"}} (\S+)$', text, re.M))
    return total - early, total


def bench_memory(folder: Path) -> list[Row]:
    """Resident memory at 1 000 targets x 1/s."""
    row = Row("RSS at 1 000 targets", [], [], "MB")
    with probing(folder, 1000, 1000) as (near, _):
        time.sleep(SECONDS)
        row.ours.append(rss_mb(near.process.pid))
    process = fping(1000, 1000, SECONDS)
    time.sleep(SECONDS / 2)
    # The child of ip netns exec is fping itself: it replaces ip.
    row.peer.append(rss_mb(process.pid))
    fping_result(process)
    return [row]


def raise_priority(nice: int) -> None:
    """Take precedence over other work here, also where each session is a group (autogroup, sched(7))."""
    os.nice(nice)
    with contextlib.suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(nice))


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def cell(values: list[float]) -> str:
    """Show median and spread."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def show(rows: list[Row], load: list[float]) -> None:
    """Print the table."""
    header = ("figure", "vigia-probe", "peer", "ratio", "budget", "n")
    table = [header]
    for r in rows:
        ratio, met = r.ratio(), r.met()
        budget = "-" if met is None else f"{r.limit()} {'met' if met else 'MISSED'}"
        table.append(
            (
                f"{r.what} [{r.unit}]",
                cell(r.ours),
                cell(r.peer),
                "-" if ratio is None else f"{ratio:.2f}",
                budget,
                str(len(r.ours)),
            )
        )
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    for line in table:
        say("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip())
    say(
        "\nmedian (least to most) of n; the peer is fping, of lag a bare timer on the same core just before;"
        f" load average {load[0]:.1f} before, {load[1]:.1f} after,"
        f" {os.cpu_count()} processors"
    )


def study(name: str, folder: Path, args: argparse.Namespace) -> int:
    """Measure what make bench asks for, and print or write it as JSON."""
    import limits  # noqa: PLC0415 - they use this module
    import peers  # noqa: PLC0415

    if name == "peers":
        found: object = peers.figures(peers.take(folder, args.repetitions, args.rounds), args.rounds)
    elif name == "growth":
        found = limits.growth(folder, args.sizes, args.repetitions)
    else:
        found = limits.floor(folder, args.repetitions)
    text = json.dumps({name: found, "load": os.getloadavg()[0]}, indent=1)
    if args.json:
        args.json.write_text(text)
    else:
        say(text)
    return 0


def main() -> int:
    """Measure and print; the exit code tells whether a budget was missed."""
    parser = argparse.ArgumentParser(description="Compare vigia-probe with fping on one link.")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--nice", type=int, default=-15, help="priority of everything, against other work here"
    )
    parser.add_argument("--only", choices=["cpu", "price", "noise", "rate", "memory"], action="append")
    parser.add_argument(
        "--study",
        choices=["peers", "growth", "floor"],
        help="beside every peer; by the number of targets; beside bare system calls: one JSON document",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of 20 probes to a target, by each tool")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[10, 100, 1000, 5000],
        help="targets, for the growth",
    )
    args = parser.parse_args()
    needed = ("ip", "taskset", "tcpdump") if args.study else ("fping", "ip", "nstat", "taskset")
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing or not PROBE.exists():
        sys.stderr.write(
            f"bench: needs root, {PROBE} (make build) and: {' '.join(missing) or 'nothing else'}" + "\n"
        )
        return 2
    benches = {
        "cpu": lambda f: bench_cpu(f, args.repetitions),
        "price": lambda f: bench_price(f, args.repetitions),
        "noise": lambda f: bench_noise(f, args.repetitions),
        "rate": lambda f: bench_rate(f, args.repetitions),
        "memory": bench_memory,
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is cleaned up
    raise_priority(args.nice)
    load = [os.getloadavg()[0]]
    rows: list[Row] = []
    prices: list[Row] = []
    most = max(args.sizes) if args.study == "growth" else 1000
    with link(most), tempfile.TemporaryDirectory() as folder:
        if args.study:
            return study(args.study, Path(folder), args)
        for name, bench in benches.items():
            if args.only and name not in args.only:
                continue
            sys.stderr.write(f"bench: {name}\n")
            found = bench(Path(folder))
            for row in found:
                sys.stderr.write(f"  {row.what}: {cell(row.ours)} {row.unit}, peer {cell(row.peer)}\n")
            (prices if name == "price" else rows).extend(found)
    load.append(os.getloadavg()[0])
    for title, table in (("price per probe", prices), ("", rows)):
        if table:
            say(title)
            show(table, load)
    rows += prices
    if args.json:
        args.json.write_text(json.dumps({"rows": [asdict(r) for r in rows], "load": load}, indent=2))
    return int(any(r.met() is False for r in rows))


if __name__ == "__main__":
    sys.exit(main())
