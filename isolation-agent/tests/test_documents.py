"""The examples of the pages about the agent do what they say, and its tables name what there is."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from isolation_agent.clock import SystemClock
from isolation_agent.config import Auth, Config, Limits, Loop, load_settings
from isolation_agent.decision.guards import GUARDS
from isolation_agent.model.states import Cause, State
from isolation_agent.policy import Guards, Policy, Release, Step
from vigia_testing import DEADLINE, eventually

from .support.process import AgentProcess
from .support.world import World

ROOT = Path(__file__).parents[2]
README = ROOT / "isolation-agent/README.md"
GUIDE = ROOT / "docs/how-to/isolation-agent.md"
REFERENCE = ROOT / "docs/reference/isolation-agent.md"
BLOCK = re.compile(r"<!-- test: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks() -> dict[str, str]:
    return dict(BLOCK.findall(GUIDE.read_text() + REFERENCE.read_text()))


def shell(script: str, directory: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={"PATH": f"{Path(__file__).parents[2]}/.venv/bin:/usr/local/bin:/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def example(tmp_path: Path) -> Iterator[World]:
    """The guide's files and tokens, and enforcers that answer to them."""
    found = blocks()
    shell(found["tokens"], tmp_path)
    made = World(tmp_path, SystemClock())
    made.enforcer.flood("lb1-red-110")
    made.add_node("lb2")
    (tmp_path / "enforcer.token").write_text("enforcer-token-0123456789abcdef\n")
    shell("umask 077; openssl rand -hex 32 > webhook.token; openssl rand -hex 32 > api.token", tmp_path)
    for name in ("agent.yaml", "policies.yaml", "message.json"):
        (tmp_path / name).write_text(found[name])
    yield made
    made.close()


def test_every_block_is_used() -> None:
    assert set(blocks()) == {
        "tokens", "agent.yaml", "policies.yaml", "check", "start", "alertmanager", "prelude", "message.json", "send",
        "list", "show", "revert", "killswitch", "rest", "put",
    }  # fmt: skip
    fences = re.findall(r"^```(?:sh|yaml)$", GUIDE.read_text(), re.MULTILINE)
    assert len(fences) == len(re.findall(r"<!-- test: (?!message)", GUIDE.read_text())), "one is not executed"


def test_example_files_are_valid(example: World) -> None:
    settings = load_settings(example.dir / "agent.yaml")
    assert [p.name for p in settings.policies.policies] == ["udp-flood", "udp-flood-lab"]
    output = shell(blocks()["check"], example.dir)
    assert output.startswith("agent.yaml: OK, 2 policies")


def test_alertmanager_accepts_its_side(tmp_path: Path) -> None:
    """With a receiver for everything else, as every configuration of Alertmanager has one."""
    example = yaml.safe_load(blocks()["alertmanager"])
    (token,) = re.findall(r"credentials_file: (\S+?)}", blocks()["alertmanager"])
    assert token.endswith("webhook.token")
    example["route"]["receiver"] = "people"
    example["receivers"].append({"name": "people"})
    (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(example))
    assert "SUCCESS" in shell("amtool check-config alertmanager.yml", tmp_path)


def with_addresses(example: World) -> str:
    """The guide's configuration, on a free port and with the enforcers of the test."""
    config = (example.dir / "agent.yaml").read_text().replace("127.0.0.1:9874", "127.0.0.1:0")
    for node, enforcer in example.enforcers.items():
        config = config.replace(f"http://127.77.0.{node[-1]}:9873", enforcer.url)
    return config


def test_policies_can_be_put(example: World) -> None:
    (example.dir / "agent.yaml").write_text(with_addresses(example) + "policies_by: api\n")
    agent = AgentProcess(example.dir / "agent.yaml")
    try:
        agent.wait_until_ready()
        prelude = blocks()["prelude"].replace("http://127.0.0.1:9874", str(agent.http.base_url))
        put = json.loads(shell(prelude + blocks()["put"], example.dir))
        assert [p["name"] for p in put["policies"]] == ["udp-flood"]
    finally:
        agent.stop()


def test_tour_of_the_api(example: World) -> None:
    found = blocks()
    assert found["start"].split() == ["isolation-agent", "--config", "agent.yaml"]
    (example.dir / "agent.yaml").write_text(with_addresses(example))
    agent = AgentProcess(example.dir / "agent.yaml")
    try:
        eventually(lambda: agent.http.get("/-/ready").status_code == 200, "ready")
        prelude = found["prelude"].replace("http://127.0.0.1:9874", str(agent.http.base_url))

        def tour(*names: str) -> str:
            return shell("\n".join([prelude, *(found[n] for n in names)]), example.dir)

        def state() -> str:
            listed = json.loads(tour("list"))["actions"]
            return str(listed[0]["state"]) if listed else ""

        assert json.loads(tour("send")) == {"stored": 1, "refused": [], "refused_total": 0}
        eventually(lambda: state() == "active", "the action is active")
        shown = json.loads(tour("show"))
        # Whoever gets no processor for ten seconds sees it extended as well.
        told = [t["event"] for t in shown["timeline"] if t["event"] != "extended"]
        assert told[-1] == "limit_verified"
        reverted = tour("show", "revert").splitlines()[-1]
        assert json.loads(reverted)["revert_requested_by"] == "api@127.0.0.1"
        eventually(lambda: state() == "", "no action is active any more")
        switched = [json.loads(line)["on"] for line in tour("killswitch").splitlines()]
        assert switched == [True, True, False]
        rest = tour("rest")
        assert '"event":"action.active"' in rest
        assert '"reloaded":true' in rest
        assert "healthy\nready\n" in rest
        assert 'vigia_isolation_reaction_seconds_count{stage="verify"} 1.0' in rest
    finally:
        agent.stop()


def test_the_tables_of_keys_name_every_field() -> None:
    """They are made from the models; here it is seen that none is left out."""
    rows = set(
        re.findall(r"^\| `(\S+)` \|", (ROOT / "docs/reference/configuration.md").read_text(), re.MULTILINE)
    )
    for model, prefix in (
        (Config, ""),
        (Limits, "limits."),
        (Loop, "controller."),
        (Auth, "auth."),
        (Policy, "policies[]."),
        (Release, "policies[].release."),
        (Step, "policies[].step."),
        (Guards, "guards."),
    ):
        for name in model.model_fields:
            assert {f"{prefix}{name}", f"{prefix}{name}[]"} & rows, (prefix, name)


def test_tables_name_every_guard_state_and_cause_in_order() -> None:
    text = REFERENCE.read_text()
    table = text[text.index("| guard | stops") : text.index("A suppressed action")]
    assert re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:] if line)) == [
        g.name for g in GUARDS
    ]
    states = text[text.index("| state | meaning") : text.index("An action is over")]
    assert re.findall(r"^\| `(\w+)` \|", states, re.MULTILINE) == [s.value for s in State]
    causes = text[text.index("An action is over") :].split("\n\n")[0]
    assert {c.value for c in Cause} <= set(re.findall(r"`(\w+)`", causes))


def test_the_rooms_of_the_source_are_named() -> None:
    source = README.parent / "src/isolation_agent"
    table = README.read_text().split("## Source")[1].split("\n## ")[0]
    rooms = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rooms) == sorted(p.parent.name for p in source.glob("*/__init__.py"))


def test_timeline_events_in_the_source_are_documented() -> None:
    text = REFERENCE.read_text()
    source = "".join(p.read_text() for p in (README.parent / "src").rglob("*.py"))
    used = set(re.findall(r'Entry\(\s*"(\w+)"', source)) | {
        "extended",
        "reapplied",
        "adopted",
        "limit_applied",
    }
    assert len(used) > 15
    assert not {event for event in used if f"`{event}`" not in text}


def test_the_page_of_isolation_tests_names_tests_that_exist() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs/reference/isolation-tests.md").read_text()
    rows = re.findall(r"^\| (T\d+) \|", page, re.MULTILINE)
    assert rows == [f"T{n}" for n in range(1, 26)], "every attack of the list has its row"
    go = "".join(
        f.read_text()
        for folder in ("internal/bpf", "isolation-agent/enforcer")
        for f in (root / folder).rglob("*_test.go")
    )
    python = "".join(f.read_text() for f in Path(__file__).parent.rglob("test_*.py"))
    named = set(re.findall(r"\b(?:Test[A-Z]|Fuzz[A-Z]|test_)\w+\b(?!\.py)", page))
    gone = [n for n in named if f"func {n}(" not in go and f"def {n}(" not in python]
    assert gone == [], "these tests have other names or are gone"
