"""docs/tutorial/first-ten-minutes.md, done as a newcomer does it: every command, address and query of the page."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest
from demokit import LAB, STACK, TUTORIAL, Demo
from labkit import ROOT, VIGIA, Ran, run_vigia
from pagekit import blocks, fences

from vigia_testing import eventually

pytestmark = pytest.mark.e2e

README = (ROOT / "README.md").read_text()
BLOCKS = blocks(TUTORIAL)
PAGES = sorted(set(re.findall(r"<(http://127\.0\.0\.1:\d+/[^>]*)>", TUTORIAL)))


def words_of(name: str) -> list[list[str]]:
    """The commands of a block, with the words that a newcomer types after ``vigia``."""
    commands = [shlex.split(line) for line in BLOCKS[name].splitlines()]
    assert all(c[0] == ".venv/bin/vigia" for c in commands), name
    return [c[1:] for c in commands]


def follow(name: str, **put: str) -> list[Ran]:
    """Run a block on the test's own lab; words can be put in place of others."""
    done = []
    for words in words_of(name):
        at = next((i for i, w in enumerate(words) if not re.fullmatch(r"[a-z]+", w)), len(words))
        at = min(at, 2 if words[0] in ("lab", "stack") else 1)
        chosen = [put.get(w, w) for w in [*words[:at], "--lab", LAB, *words[at:]]]
        done.append(run_vigia(*chosen))
        assert done[-1].status == 0, (chosen, done[-1].stdout, done[-1].stderr)
    return done


def test_every_block_is_followed() -> None:
    source = Path(__file__).read_text()
    followed = set(re.findall(r'(?:follow|words_of)\("([\w ]+)"', source)) | {
        "demo",
        "token",
        "queries",
        "down",
    }
    assert followed == set(BLOCKS)
    assert fences(TUTORIAL) == (len(BLOCKS), len(BLOCKS)), "a block without the name of its test"
    assert (BLOCKS["demo"], BLOCKS["down"]) == ("make demo\n", "make down\n")
    target = re.search(r"^demo:.*\n\t@(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target and target[1] == "$(VENV)/vigia demo", "the fixture runs what make demo runs"


def test_the_run_that_it_shows_is_what_people_see(demo: Demo) -> None:
    texts = [t["text"] for t in demo.report["timeline"]]
    for page in (TUTORIAL, README):
        shown = page[page.index("What happened:") :].partition("```")[0]
        assert [line.split(" s  ", 1)[1] for line in shown.splitlines() if "Z " in line] == texts
    assert all(f"{p['phase']} " in TUTORIAL for p in demo.report["victim"])
    shown = re.findall(r"^   *\d+\.\d\d s  (\w+)", TUTORIAL, re.MULTILINE)
    steps = re.findall(r"^ *\d+\.\d\d s  (\w+)", demo.run.stderr, re.MULTILINE)
    assert set(shown) <= set(steps), "steps that nobody sees any more"


def test_every_page_that_it_opens_is_there(demo: Demo) -> None:
    assert len(PAGES) == 6
    for url in PAGES:
        answer = httpx.get(
            url.replace("127.0.0.1", STACK), trust_env=False, timeout=60, follow_redirects=True
        )
        assert answer.status_code == 200, url
        assert answer.headers["Content-Type"].startswith("text/html"), url


def test_the_token_is_where_it_says(demo: Demo) -> None:
    cat, file = BLOCKS["token"].replace("/demo/", f"/{LAB}/").split()
    assert cat == "cat"
    token = Path(file).read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    url = f"http://{STACK}:9874/v1/overview"
    assert httpx.get(url, headers=headers, trust_env=False, timeout=60).json()["ready"] is True


def test_the_terminal_answers(demo: Demo) -> None:
    (status,) = follow("status")
    assert "everything is healthy" in status.stdout
    (top,) = follow("top")
    assert {"red", "blue"} <= set(re.findall(r"\w+", top.stdout))
    (explained,) = follow("explain")
    assert "red" in explained.stdout and "node1-red-110" in explained.stdout
    # What is recorded once a minute has to be there for some windows.
    eventually(
        lambda: run_vigia("compare", "--lab", LAB, "--since", "15m", "--metric", "rtt").status == 0,
        "windows",
        240,
    )
    (compared,) = follow("compare")
    assert "linuxbridge-vxlan" in compared.stdout


def actions(demo: Demo) -> list[dict[str, object]]:
    """The isolation agent's actions, newest first."""
    token = demo.where.api_token.read_text().strip()
    url = f"http://{STACK}:9874/v1/actions"
    answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60)
    found: list[dict[str, object]] = answer.json()["actions"]
    return found


def test_a_flood_by_hand_is_limited_and_released(demo: Demo) -> None:
    before = {a["number"] for a in actions(demo)}
    ((command, *options),) = words_of("flood")
    flood = subprocess.Popen([VIGIA, command, "--lab", LAB, *options], stdout=subprocess.DEVNULL)
    try:

        def limited() -> list[dict[str, object]]:
            new = [a for a in actions(demo) if a["number"] not in before]
            return [a for a in new if a["tenant"] == "red" and a["state"] in ("active", "stepped_up")]

        (action,) = eventually(limited, "red to be limited")
    finally:
        assert flood.wait(120) == 0
    over = ("reverted", "expired")

    def state() -> object:
        return next(a["state"] for a in actions(demo) if a["number"] == action["number"])

    eventually(lambda: state() in over, "the limit to be lifted", 240)
    assert state() == "reverted", "on evidence"
    (explained,) = follow("explain again", **{"2": str(action["number"])})
    assert "red" in explained.stdout


def test_one_can_look_inside(demo: Demo) -> None:
    done = follow("look")
    assert len(done) == 3
    assert " 0% packet loss" in done[1].stdout


def test_the_queries_have_answers(demo: Demo) -> None:
    queries = BLOCKS["queries"].splitlines()
    assert len(queries) >= 5
    for query in queries:
        eventually(lambda q=query: demo.query(q), query)
