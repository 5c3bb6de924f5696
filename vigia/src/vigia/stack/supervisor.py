"""Keeps the processes of a plan running; run as python -m vigia.stack.supervisor FOLDER.

A process that ends is started again, at once the first time and with growing
delays if it goes on ending. One that answers no more (it hangs, or is stopped)
is killed, and started again as well. When the supervisor ends, also by SIGKILL, the
kernel tells its children to end (PR_SET_PDEATHSIG, by setpriv).

SIGABRT comes before SIGKILL, as systemd does with a watchdog: Go programs, and
Python ones with PYTHONFAULTHANDLER, then log where each thread is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from vigia.stack import plan
from vigia.stack.plan import Service

__all__ = ["Supervisor", "main"]

FIRST_DELAY = 0.5
"""Seconds before a process that ended is started again."""

MOST_DELAY = 30.0
SETTLED = 60.0
"""Seconds after which a process counts as working, so that its delay starts over."""

STOP_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""

MAX_LOG = 16 << 20
"""Bytes at which a log file is emptied."""

LOOK = 5.0
"""Seconds from one look whether a process answers to the next, and how long it may take to."""

SOON = 0.5
"""The same while a process does not listen: it may hang as soon as it has begun to."""

LOOKS = 12
"""Looks in a row without an answer after which a process that listens is killed: a minute."""

LOOKS_AT_START = 36
"""The same for one that has not answered yet, or does not listen: it may have much to read before."""

ABORT_GRACE = 2.0
"""Seconds between SIGABRT and SIGKILL."""

LOG_CHECK = 30.0
"""Seconds between two looks at the sizes of logs."""


@dataclass
class _Run:
    """What is known of one service."""

    pid: int | None = None
    started: float = 0.0
    restarts: int = 0
    last_exit: int | None = None


class Supervisor:
    """Runs services until stop is called."""

    def __init__(self, services: list[Service], logs: Path, status: Path, look: float = LOOK) -> None:
        """look is in seconds, as LOOK."""
        self._look = look
        self._services = services
        self._logs = logs
        self._status = status
        self._runs = {s.name: _Run() for s in services}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop all services."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until stopped; returns when every process has ended."""
        self._report()
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(self._keep(service))
            group.create_task(self._trim_logs())

    async def _keep(self, service: Service) -> None:
        run = self._runs[service.name]
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            try:
                run.last_exit = await self._once(service, run)
            except OSError as e:
                self._note(service, f"cannot be started: {e}")
                run.last_exit = 127
            run.pid = None
            if time.time() - run.started > SETTLED:
                delay = FIRST_DELAY
            self._report()
            if self._stopping.is_set():
                return
            self._note(service, f"ended with {run.last_exit}; starting it again in {delay:g} s")
            if await self._wait(delay):
                return
            run.restarts += 1
            delay = min(2 * delay, MOST_DELAY)

    async def _once(self, service: Service, run: _Run) -> int:
        """Run a service to its end and return its exit status."""
        with self._log(service).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                "setpriv",
                "--pdeathsig",
                "TERM",
                *service.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        run.pid, run.started = process.pid, time.time()
        self._report()
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        watching = asyncio.ensure_future(self._watch(service, process))
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        watching.cancel()
        if not ended.done():
            await _end(process, ended)
        return ended.result()

    async def _watch(self, service: Service, process: asyncio.subprocess.Process) -> None:
        """Kill a process that does not answer any more. What it answers does not matter here."""
        silent = absent = 0.0
        patience = LOOKS_AT_START
        while silent < patience and absent < LOOKS_AT_START:
            begin = time.monotonic()
            answers = await _answers(service.address, self._look)
            if answers:
                patience = LOOKS
            step = self._look if answers is not None else min(SOON, self._look)
            silent = silent + 1 if answers is False else 0
            absent = absent + step / self._look if answers is None else 0
            await asyncio.sleep(max(0.0, begin + step - time.monotonic()))
        self._note(service, f"has not answered for {max(silent, absent) * self._look:g} s; killing it")
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGABRT)
            await asyncio.sleep(ABORT_GRACE)
            process.kill()

    async def _wait(self, seconds: float) -> bool:
        """Wait; return True if it is time to stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    async def _trim_logs(self) -> None:
        """Empty logs that have grown large: writers append, so they go on at the start."""
        while not await self._wait(LOG_CHECK):
            for service in self._services:
                log = self._log(service)
                with contextlib.suppress(OSError):
                    if log.stat().st_size > MAX_LOG:
                        os.truncate(log, 0)

    def _log(self, service: Service) -> Path:
        return self._logs / f"{service.name}.log"

    def _note(self, service: Service, text: str) -> None:
        """Write to the log of a service. A full disk is no reason to leave the others alone."""
        with contextlib.suppress(OSError), self._log(service).open("a") as log:
            log.write(f"supervisor: {service.name} {text}\n")

    def _report(self) -> None:
        report = {
            name: {
                "pid": run.pid,
                "started": run.started,
                "restarts": run.restarts,
                "last_exit": run.last_exit,
            }
            for name, run in self._runs.items()
        }
        new = self._status.with_suffix(".new")
        with contextlib.suppress(OSError):  # a full disk: the next report may find room
            new.write_text(json.dumps({"supervisor": os.getpid(), "services": report}, indent=1) + "\n")
            new.replace(self._status)


async def _answers(address: str, seconds: float) -> bool | None:
    """Whether anything comes back from whoever listens there; None if nobody does."""
    host, _, port = address.rpartition(":")
    writer = None
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /-/healthy HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
            return await reader.read(1) != b""
    except ConnectionRefusedError:
        return None
    except OSError:  # TimeoutError is one
        return False
    finally:
        if writer is not None:
            writer.close()


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        done, _ = await asyncio.wait({ended}, timeout=STOP_GRACE)
        if done:
            return


async def _supervise(folder: Path) -> None:
    supervisor = Supervisor(plan.read(folder / "plan.json"), folder / "log", folder / "status.json")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # outlives the terminal it came from
    await supervisor.run()


def main(folder: Path) -> None:
    """Supervise the plan in a folder until SIGTERM."""
    asyncio.run(_supervise(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
