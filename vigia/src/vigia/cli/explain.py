"""vigia explain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vigia.cli.options import json_option, lab_option
from vigia.errors import OptionError, VigiaError

if TYPE_CHECKING:
    from vigia.explain.action import Action
    from vigia.explain.nodes import Found
    from vigia.stack.agent import IsolationAgent
    from vigia_prometheus.answers import Alert
    from vigia_prometheus.client import Prometheus

__all__ = ["explain"]

_ACTIONS = 3
"""Actions of an alert that are explained."""


@click.command()
@click.argument("what", metavar="ACTION|ALERT|PATH")
@lab_option
@click.option(
    "--url", "urls", multiple=True, metavar="URL", help="Probe to ask; repeatable. Default: all of the lab."
)
@click.option(
    "--prometheus",
    metavar="URL",
    help="Server that knows the probes and the alerts; default: the Prometheus of the lab's stack.",
)
@click.option(
    "--agent", metavar="URL", help="Isolation agent that knows the actions; default: that of the lab's stack."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the token to show the isolation agent; goes with --agent.",
)
@click.option("--src", metavar="NODE", help="Only records of this node's probe.")
@click.option("--dst", metavar="NODE", help="Only records of targets on this node.")
@click.option("--tenant", help="Only records of this tenant.")
@click.option("--probe", metavar="CLASS", help="Only records of this class of probes.")
@click.option(
    "--last",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    help="So many records of each target.",
)
@json_option
def explain(  # noqa: PLR0913 - one argument per option
    what: str,
    name: str,
    urls: tuple[str, ...],
    prometheus: str | None,
    agent: str | None,
    token_file: Path | None,
    last: int,
    as_json: bool,
    **labels: str | None,
) -> None:
    """Explain what happened, why, and on what evidence.

    ACTION is the number or the id of an isolation action: what was seen, who decided, what the limit did, how
    it ended. ALERT is the name of a firing alert, for example VigiaPathLoss: since when, of whom, what to do,
    and the actions that it asked for. PATH is the name of a path.

    Of a path, and of an alert of paths, it prints what the probes recorded when it turned bad, beside the
    last good record: the hops that packets still passed, the path MTU, the class of service that arrived,
    the state of the host.
    """
    from vigia.explain.action import ACTION

    if (agent is None) != (token_file is None):
        raise OptionError("--agent and --token-file go together; without both the lab's agent is asked")
    of_agent = _Agent(name, agent, token_file)
    if ACTION.fullmatch(what):
        _explain_action(of_agent, what, as_json)
        return
    selection = {k: v for k, v in labels.items() if v is not None}
    asked = _Asked(what, name, selection, [_base(u) for u in urls], prometheus, last, as_json)
    if not _explain_alert(asked, of_agent):
        _explain_moments(asked)


@dataclass(frozen=True)
class _Agent:
    """The isolation agent of a lab, or the one that is named."""

    lab: str
    url: str | None
    token_file: Path | None

    def open(self) -> IsolationAgent:
        """Return the agent, not asked yet. Raises VigiaError."""
        from vigia.lab import state
        from vigia.stack import places
        from vigia.stack.agent import IsolationAgent
        from vigia.stack.places import Places
        from vigia_config.urls import base_url

        if self.url is None or self.token_file is None:
            lab = state.running(self.lab).lab
            return IsolationAgent(places.stack_address(lab, 9874), Places(lab.layout).api_token)
        try:
            url = base_url(self.url, "an isolation agent", "http://127.0.0.1:9874")
        except ValueError as e:
            raise OptionError(f'--agent "{self.url}" {e}') from e
        return IsolationAgent(url, self.token_file)


@dataclass
class _Asked:
    """What is to be explained by records of probes, and who has them."""

    what: str
    lab: str
    selection: dict[str, str]
    addresses: list[str]
    prometheus: str | None
    last: int
    as_json: bool
    selections: list[dict[str, str]] = field(default_factory=list)
    alert: dict[str, Any] = field(default_factory=dict)
    """What JSON says of an alert beside records: its series, and its actions, null if nobody answered."""

    def server(self) -> Prometheus:
        """Return the Prometheus that knows the probes and the alerts."""
        return _server(self.lab, self.prometheus)


def _explain_action(of_agent: _Agent, what: str, as_json: bool) -> None:
    from vigia import console
    from vigia.explain import action

    with of_agent.open() as isolation:
        found = isolation.named(what)
    if as_json:
        console.print_json(found)
    else:
        _print_blocks([action.explain(_parsed(found))])


def _explain_alert(asked: _Asked, of_agent: _Agent) -> bool:
    """Say what an alert says, and whose records tell more; return whether that was all. A path is none."""
    from vigia.explain import nodes

    asked.selections = [asked.selection | {"path": asked.what}]
    if nodes.ALERT.fullmatch(asked.what) is None:
        return False
    with asked.server() as server:
        asked.selections = [dict(found) | asked.selection for found in nodes.alerts(server, asked.what)]
        firing = _firing(server, asked.what)
    if not asked.selections and not firing:
        raise VigiaError(
            f"{server.url} knows no firing alert {asked.what}; write the name of one that fires, of a path, "
            "or the number of an action"
        )
    of_a_path = any("path" in s for s in asked.selections)
    actions: list[dict[str, Any]] | None = None
    problem = ""
    if firing and (of_agent.url is not None or asked.prometheus is None):
        actions, problem = _asked_for(of_agent, asked.what)
    if asked.as_json:
        asked.alert = {"alerts": [_as_json(a) for a in firing], "actions": actions}
        if problem:
            click.echo(f"vigia: {problem}", err=True)
        if firing and not of_a_path:
            _print_json(asked, [], [])
        return bool(firing) and not of_a_path
    if firing:
        _print_blocks(_told(firing, actions or [], problem))
        if of_a_path:
            click.echo()
    return bool(firing) and not of_a_path


def _explain_moments(asked: _Asked) -> None:
    from vigia.explain import nodes

    addresses = asked.addresses
    if not addresses and asked.prometheus is not None:
        with asked.server() as server:
            addresses = nodes.probes(server)
    if not addresses and asked.prometheus is None:
        addresses = _of_the_lab(asked.lab)
    if not addresses:
        raise VigiaError(f"{asked.prometheus} scrapes no vigia-probe; name one: --url http://NODE:9871")
    found = nodes.ask(addresses, asked.selections, limit=100)
    for problem in found.problems:
        click.echo(f"vigia: cannot ask a probe: {problem}", err=True)
    _keep_last(found, asked.last)
    if asked.as_json:
        _print_json(asked, [m for _, m in found.moments], [m for _, m in found.good])
        return
    if not found.moments and not found.good:
        raise VigiaError(_unknown(asked, found.asked))
    _print(found, asked.what)


def _print_json(asked: _Asked, moments: list[Any], good: list[Any]) -> None:
    from vigia import console

    console.print_json({**asked.alert, "moments": moments, "good": good})


def _base(url: str) -> str:
    from vigia_config.urls import base_url

    try:
        return base_url(url, "a probe", "http://127.0.0.1:9871")
    except ValueError as e:
        raise OptionError(f'--url "{url}" {e}') from e


def _server(name: str, url: str | None) -> Prometheus:
    from vigia.lab import state
    from vigia.stack import places
    from vigia_prometheus import client

    if url is None:
        return client.Prometheus(f"http://{places.stack_address(state.running(name).lab, 9090)}")
    try:
        return client.Prometheus(url)
    except ValueError as e:
        raise OptionError(f'--prometheus "{url}" {e}') from e


def _of_the_lab(name: str) -> list[str]:
    from vigia.lab import state
    from vigia.stack import places

    lab = state.running(name).lab
    return [f"http://{places.agent_address(lab, node.name, 'vigia-probe')}" for node in lab.nodes]


def _keep_last(found: Found, last: int) -> None:
    """Keep the newest records of each target."""
    seen: dict[tuple[str, ...], int] = {}
    kept = []
    for moment, text in found.moments:
        seen[moment.target] = seen.get(moment.target, 0) + 1
        if seen[moment.target] <= last:
            kept.append((moment, text))
    found.moments = kept


def _unknown(asked: _Asked, probes: int) -> str:
    """Say why there is nothing to tell: perhaps what is asked for is no path at all."""
    from vigia_prometheus import PrometheusError

    paths: list[str] = []
    if asked.prometheus is not None or not asked.addresses:
        with suppress(PrometheusError), asked.server() as server:
            paths = server.label_values("path", ["vigia_probe_sent_total"])
    if paths and asked.what not in paths:
        return (
            f"{asked.what} is no path that is measured; write one of {', '.join(paths)}, "
            "the name of a firing alert, or the number of an action"
        )
    return (
        f"none of {probes} probes has a record of {asked.what}; they are made when a path turns bad, "
        "and of good ones every moments.good_interval"
    )


def _print(found: Found, what: str) -> None:
    from vigia.explain import sentences

    if not found.moments:
        click.echo(f"No bad moment of {what} is remembered. The last good records:")
    good = {m.target: m for m, _ in found.good}
    _print_blocks([sentences.explain(m, good.get(m.target)) for m, _ in found.moments or found.good])


def _print_blocks(blocks: Sequence[Sequence[str]]) -> None:
    import sys

    from vigia_text import terminal

    text = "\n\n".join("\n".join([lines[0], *(f"  {line}" for line in lines[1:])]) for lines in blocks)
    click.echo(terminal.hang(text, terminal.width(sys.stdout)))


def _firing(server: Prometheus, what: str) -> list[Alert]:
    """Return the alerts of a name that fire, the oldest first; none of a server without rules of its own."""
    from vigia.explain import alert
    from vigia_prometheus import PrometheusError

    try:
        found = [a for a in server.alerts() if a.firing and a.labels.get("alertname") == what]
    except PrometheusError:
        return []
    return alert.ordered(found)


def _as_json(one: Alert) -> dict[str, Any]:
    from datetime import UTC, datetime

    since = datetime.fromtimestamp(one.since, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"labels": dict(one.labels), "annotations": dict(one.annotations), "since": since}


def _told(firing: list[Alert], actions: list[dict[str, Any]], problem: str) -> list[list[str]]:
    """Return what an alert says, and what became of what it asked for."""
    import time

    from vigia.explain import action, alert

    told = alert.explain(firing, time.time())
    told += [action.explain(_parsed(one)) for one in actions]
    return told + ([[problem]] if problem else [])


def _asked_for(of_agent: _Agent, what: str) -> tuple[list[dict[str, Any]] | None, str]:
    """Return the newest actions that an alert asked for, or none and why they are not known."""
    try:
        with of_agent.open() as isolation:
            return isolation.of_alert(what, _ACTIONS), ""
    except VigiaError as e:
        return None, f"cannot ask for the actions of this alert: {e}"


def _parsed(found: dict[str, Any]) -> Action:
    from vigia.explain.action import Action

    try:
        return Action.model_validate(found)
    except ValueError as e:
        raise VigiaError(f"the isolation agent answers what is no action: {e}") from e
