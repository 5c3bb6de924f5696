"""What runbooks, and the pages of troubles and questions, tell people to type exists: programs, options, queries, pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import promql_parser
import pytest
from alertkit import programs_of, rules, serves, too_short
from commandkit import ANY, OURS, SERVICES, accepted, parts_of
from labkit import VIGIA

import vigia_catalog
from vigia_dashboards.expressions import check, labels_of, substituted
from vigia_dashboards.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("*.md"))
RUNBOOKS += [ROOT / "docs/troubleshooting.md", ROOT / "docs/faq.md"]
ALERTS = {rule["alert"]: rule for rule in rules("alert")}

HELP: Mapping[str, list[str]] = {
    "awk": ["awk", "-W", "version"],
    "chronyc": ["chronyc", "--version"],
    "conntrack": ["conntrack", "--version"],
    "curl": ["curl", "--help", "all"],
    "ethtool": ["ethtool", "--help"],
    "ip": ["ip", "-s", "link", "show", "dev", "lo"],
    "kill": ["kill", "-l", "HUP"],
    "nstat": ["nstat", "-a"],
    "ovs-appctl": ["ovs-appctl", "--help"],
    "ovs-vsctl": ["ovs-vsctl", "--help"],
    "pidof": ["sh", "-c", "pidof sh; exit"],
    "promtool": ["promtool", "query", "instant", "--help"],
    "sort": ["sort", "--version"],
    "sysctl": ["sysctl", "--version"],
    "tail": ["tail", "--version"],
    "tc": ["tc", "-s", "qdisc", "show", "dev", "lo"],
    "timedatectl": ["timedatectl", "--version"],
    "top": ["top", "-H", "-b", "-n", "1", "-p", "1"],
    "uniq": ["uniq", "--version"],
}
"""Programs of the system that runbooks may name, and a run that harms nothing and shows that they are there."""

FRAGMENTS = {"by (tenant)", "docker compose", "dry_run: true", "make demo", "role: source", "tripped: false"}
"""Parts of a query or of a configuration file, and commands that other tests run."""


def spans(page: Path) -> Iterator[str]:
    """Every piece of code of a page, line ends as blanks."""
    for text in re.findall(r"`([^`]+)`", page.read_text()):
        yield " ".join(text.split())


CODE = sorted({(page.stem, code) for page in RUNBOOKS for code in spans(page)})
COMMANDS = [(p, c) for p, c in CODE if c.split()[0] in {*OURS, *HELP, ANY}]
REQUESTS = [(p, c) for p, c in CODE if re.match(r"(GET|POST|PUT) /|/-?/?[a-z0-9-]+/?[a-z0-9/-]*$", c)]
QUERIES = [
    (p, c)
    for p, c in CODE
    if (p, c) not in COMMANDS
    and (p, c) not in REQUESTS
    and re.search(r"vigia_|node_[a-z]|\(|^up\b|:[a-z0-9]+_", c)
]
QUERIES = [(p, c) for p, c in QUERIES if c not in FRAGMENTS]


def test_every_piece_of_code_with_a_blank_is_understood() -> None:
    """What none of the tests below looks at would go unchecked."""
    seen = {*COMMANDS, *REQUESTS, *QUERIES}
    assert not [x for x in CODE if " " in x[1] and x not in seen and x[1] not in FRAGMENTS]
    assert len(COMMANDS) > 25 and len(QUERIES) > 30 and len(REQUESTS) >= 5


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda x: x.replace("/", "-")[:60])
def test_commands_exist(page: str, command: str) -> None:
    for words in parts_of(command):
        if words[0] == "cat":
            continue
        if words[0] not in {*OURS, ANY}:
            exists_here(words)
            continue
        for program in SERVICES if words[0] == ANY else [words[0]]:
            accepted(program, words[1:])


def exists_here(words: list[str]) -> None:
    program = words[0]
    assert program in HELP, f"{program}: say in HELP how to see that it is there"
    assert shutil.which(program), f"{program} is missing; run tools/bootstrap.sh test"
    done = subprocess.run(HELP[program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (HELP[program], done.stderr)
    if program == "ovs-appctl":
        switch = Path("/usr/sbin/ovs-vswitchd").resolve().read_bytes()
        assert words[1].encode() in switch, f"ovs-vswitchd does not know {words[1]}"
    if program in ("curl", "ethtool", "ovs-vsctl"):
        said = done.stdout + done.stderr
        for option in (w for w in words[1:] if re.fullmatch(r"-[a-zA-Z]|--[a-z-]+", w)):
            assert re.search(rf"(?m)(^|[\s,|]){re.escape(option)}\b", said), f"{program} has no {option}"
        if program == "ovs-vsctl":
            assert re.search(rf"(?m)^\s+{words[1]}\b", said), f"ovs-vsctl has no {words[1]}"


@pytest.mark.parametrize(("page", "query"), QUERIES, ids=lambda x: x.replace("/", "-")[:60])
def test_queries_parse_and_use_what_the_catalogue_declares(page: str, query: str) -> None:
    label = re.fullmatch(r"([a-z_]+)=\"([^\"]*)\"", query)
    if label:
        with_it = [m for m in vigia_catalog.load().values() if label[1] in m.labels]
        assert any(label[2] in m.values.get(label[1], (label[2],)) for m in with_it), "no metric has it"
        return
    promql_parser.parse(substituted(query))
    if "__name__" in query:
        return  # counts series of every name
    check(query)
    assert not too_short(query)


@pytest.mark.parametrize(("page", "request_"), REQUESTS, ids=lambda x: x.replace("/", "-")[:60])
def test_pages_and_calls_exist(page: str, request_: str) -> None:
    method, _, path = request_.rpartition(" ")
    if path.startswith(("/run/", "/sys/")):
        return  # a folder
    if path.startswith("/d/"):
        assert path.removeprefix("/d/") in {p.uid for p in PAGES}
        return
    programs = programs_of(ALERTS[page]) if page in ALERTS else {*SERVICES} - {"vigia-identity"}
    served = {program for program in programs if serves(program, method or "GET", path)}
    assert served, f"{request_} is served by none of {sorted(programs)}, which the alert is about"


@pytest.mark.parametrize(
    ("program", "served", "not_served"),
    [
        ("vigia-probe", "GET /-/ready", "GET /v1/actual"),
        ("vigia-probe", "GET /debug/targets", "POST /debug/targets"),
        ("vigia-exporter", "GET /debug/ports", "GET /debug/targets"),
        ("vigia-enforcer", "POST /v1/reconcile", "POST /v1/hosts/NODE:reconcile"),
        ("vigia-compare", "GET /v1/comparisons", "GET /v1/actions"),
        ("isolation-agent", "POST /v1/actions/ID:revert", "POST /v1/actions/ID:undo"),
    ],
)
def test_requests_are_looked_for_at_one_program(program: str, served: str, not_served: str) -> None:
    assert serves(program, *served.split())
    assert not serves(program, *not_served.split())


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda p: p.stem)
def test_single_words_that_look_like_metrics_are(page: Path) -> None:
    for word in spans(page):
        if re.fullmatch(r"vigia_[a-z0-9_]+", word):
            assert labels_of(word) is not None or any(
                name.startswith(word) for name in vigia_catalog.load()
            ), word


def test_the_help_of_ours_is_that_of_this_tree() -> None:
    assert Path(sys.executable).parent == VIGIA.parent
    assert all(path.is_file() for path in OURS.values()), "run make build"
