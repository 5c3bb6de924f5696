"""Churn: what fails is said, and the next is done. The soak itself: against a real lab and stack (long)."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labkit import VIGIA, Machine, claim, run_vigia

from vigia.errors import OptionError, VigiaError
from vigia.lab import state
from vigia.lab.model import Lab
from vigia.lab.naming import Layout
from vigia.soak import churn, run
from vigia.soak.churn import Churn
from vigia.soak.record import ChurnEvent
from vigia.stack.places import Places
from vigia_testing import eventually

LAB = "soakt"


def test_what_fails_is_an_event_and_the_next_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = run.lab_named(LAB)
    said: list[ChurnEvent] = []
    done = Churn(lab, "userspace", Places(Layout(LAB, tmp_path)), said.append, 600.0)
    stop = threading.Event()
    for name in ("TARGET_SECONDS", "RELOAD_SECONDS"):
        monkeypatch.setattr(churn, name, 20.0)

    def port() -> str:
        if len(said) > 20:
            stop.set()
        return "plugged"

    def broken() -> str:
        raise VigiaError("refused")

    class At:
        """A clock that goes on by what is waited for."""

        now = 0.0

        def wait(self, seconds: float) -> bool:
            self.now += seconds
            return stop.is_set()

    clock = At()
    monkeypatch.setattr(done, "port", port)
    monkeypatch.setattr(done, "target", broken)
    monkeypatch.setattr(done, "reload", lambda: "reloaded")
    monkeypatch.setattr(done, "flood", lambda stop: "flooded")
    monkeypatch.setattr(churn.time, "monotonic", lambda: clock.now)
    done.run(clock)  # type: ignore[arg-type]
    counts = Counter((e.what, e.ok) for e in said)
    assert counts["target", False] > 0
    assert counts["reload", True] > 0
    assert {e.detail for e in said if not e.ok} == {"refused"}


def test_a_soak_has_a_lab_of_its_own(demo: Lab) -> None:
    lab = run.lab_named("soak")
    assert lab.name == "soak"
    addresses = {str(n.agent) for n in lab.nodes} | {str(lab.topology.stack_address)}
    assert len(addresses) == 3
    assert not addresses & ({str(n.agent) for n in demo.nodes} | {str(demo.topology.stack_address)})
    assert [n.name for n in lab.nodes] == [n.name for n in demo.nodes]
    for name in ("test", "Soak", "", "../x"):
        with pytest.raises(OptionError, match="is not the name of a lab"):
            run.lab_named(name)


def test_a_lab_that_is_no_soaks_is_left_alone(
    demo: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = run.lab_named("demo")
    monkeypatch.setattr(state, "read", lambda layout: state.State("up", demo, "userspace", 1.0))
    with pytest.raises(VigiaError, match="lab demo is up and not a soak's; give --lab another name"):
        run._refuse_others(lab)
    monkeypatch.setattr(state, "read", lambda layout: state.State("up", lab, "userspace", 1.0))
    run._refuse_others(lab)


def test_options_are_refused_before_anything_is_done(
    vigia: Callable[..., Any], root: None, tmp_path: Path
) -> None:
    for arguments, said in (
        (("--hours", "0"), "write above 0"),
        (("--hours", "nan"), "out of range"),
        (("--flood-every", "1s"), "write 3m to 1d"),
        (("--sample-every", "5"), "is not a duration"),
        (("--lab", "Demo"), "is not the name of a lab"),
    ):
        done = vigia("soak", *arguments, "--output", str(tmp_path / "new"))
        assert done.status == 2, arguments
        assert said in done.stderr
    done = vigia("soak", "report", str(tmp_path))
    assert done.status == 1
    assert "name the --output of one" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.long
def test_a_soak_of_a_lab_is_killed_and_the_next_removes_it(root: None, tmp_path: Path) -> None:
    run_vigia("down", "--lab", claim(LAB))
    before = Machine.now(LAB)
    first = tmp_path / "first"
    process = subprocess.Popen(
        [VIGIA, "soak", "--hours", "1", "--lab", LAB, "--sample-every", "1s", "--output", str(first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    try:
        samples = first / "samples.jsonl"
        eventually(
            lambda: process.poll() is not None or (samples.exists() and samples.read_text().count("\n") >= 3),
            "samples of the first soak",
            300,
        )
        assert process.poll() is None, process.stdout.read()
        beside = run_vigia("soak", "--hours", "1", "--lab", LAB, "--output", str(tmp_path / "beside"))
        assert beside.status == 1
        assert f"another command (process {process.pid})" in beside.stderr
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert Machine.now(LAB).namespaces != before.namespaces
    shown = run_vigia("soak", "report", str(first), "--json")
    assert shown.json["passed"] is False, "too short"

    second = tmp_path / "second"
    options = ("--hours", "0.045", "--lab", LAB, "--sample-every", "2s", "--output", str(second), "--json")
    done = run_vigia("soak", *options, timeout=900)
    assert f"removed lab {LAB}" in done.stderr
    events = [json.loads(line) for line in (second / "events.jsonl").read_text().splitlines()]
    assert [e for e in events if not e["ok"]] == []
    assert {e["what"] for e in events} == {"port", "target", "reload", "flood"}
    assert "was limited and released" in next(e["detail"] for e in events if e["what"] == "flood")
    report = done.json
    assert report["restarts"] == 0
    assert report["gaps"] == {}
    judged = {(s["quantity"], s["subject"]) for s in report["slopes"]}
    assert {
        ("memory_bytes", "prometheus"),
        ("goroutines", "vigia-probe@node1"),
        ("bpf_maps", "vigia-enforcer@node2"),
        ("descriptors", "ovs-vswitchd@node1"),
        ("wal_bytes", "prometheus"),
        ("database_bytes", "isolation-agent"),
        ("namespaces", "lab"),
        ("qdiscs", "node1"),
    } <= judged
    assert {q for q, s in judged if s.startswith("rules vigia-")} == {"missed_iterations", "rule_share"}
    lines = (second / "samples.jsonl").read_text().splitlines()
    first_sample, last_sample = (
        json.loads(line)["values"]["node1"]["links"] for line in (lines[0], lines[-1])
    )
    assert last_sample - first_sample in (0, 1), "at most one port of the churn is plugged"
    assert Machine.now(LAB) == before
