"""A timer and nothing else: how late the machine itself wakes a thread that wants to run every millisecond.

Usage: timer.py SECONDS; prints JSON with how many ticks were due and how many of them came over 1 ms late.
Real-time priority 1, as vigia-probe's sender has it, where the system allows it.
"""

import contextlib
import json
import os
import sys
import time

TICK = 1_000_000
LATE = 1_000_000


def main() -> None:
    """Count until the time is over; ticks that were missed are late ticks."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    due = time.monotonic_ns()
    end = due + int(float(sys.argv[1]) * 1e9)
    late = total = 0
    while due < end:
        due += TICK
        wait = due - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        total += 1
        late += time.monotonic_ns() - due > LATE
    json.dump({"late": late, "total": total}, sys.stdout)


if __name__ == "__main__":
    main()
