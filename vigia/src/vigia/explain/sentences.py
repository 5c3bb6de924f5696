"""A record in sentences, beside the last good one of the same target."""

from __future__ import annotations

from collections.abc import Iterator

from vigia.explain.record import Hop, Hops, HostState, Moment
from vigia_text import numbers, terminal

__all__ = ["explain", "headline"]

_WHY = {
    "loss": "probes were lost",
    "slow": "round trips took longer than the objective allows",
    "good": "nothing was wrong",
}
_CAUSES = {
    "forward": "on the way there",
    "reverse": "on the way back",
    "unknown": "nobody knows where",
    "send_error": "not sent",
    "local_overflow": "at a full socket here",
    "reflector_overflow": "at a full socket there",
}


def headline(moment: Moment) -> str:
    """Return whose record it is, when it was made, and why."""
    src, dst, path, tenant, probe = map(_word, moment.target)
    when = moment.time.strftime("%Y-%m-%d %H:%M:%S UTC")
    why = _WHY.get(moment.why, _word(moment.why))
    return f"From {src} to {dst} on {path} (tenant {tenant}, {probe}), {when}: {why}."


def explain(moment: Moment, newest_good: Moment | None = None) -> list[str]:
    """Return what a record says, the headline first, and whether its target was good after it."""
    good = moment.last_good
    lines = [headline(moment), _outcomes(moment)]
    lines += _hops("The path", moment.hops, good.hops if good else None)
    lines += _far(moment.hops, good.hops if good else None)
    if moment.beneath is not None:
        name = f"Beneath, path {_word(moment.beneath_path)}"
        before = good.beneath if good else None
        lines += _hops(name, moment.beneath, before)
    lines += _path_mtu(moment, good)
    lines += _host(moment, good)
    if good is not None:
        ago = max((moment.time - good.time).total_seconds(), 0.0)
        lines.append(f"The last good record is from {_age(ago)} before.")
    elif moment.why != "good":
        lines.append("There is no good record of this target to compare with.")
    if newest_good is not None and newest_good.time > moment.time:
        after = _age((newest_good.time - moment.time).total_seconds())
        lines.append(f"It was good after that: the newest good record is from {after} later.")
    return lines


def _outcomes(moment: Moment) -> str:
    found = moment.outcomes
    lost = sum(found.lost.values())
    ways = ", ".join(
        f"{count} {_CAUSES.get(cause, _word(cause))}" for cause, count in sorted(found.lost.items()) if count
    )
    text = f"Of the {found.settled} probes of the {found.seconds:g} s before, {lost} were lost"
    text += f" ({ways})" if ways else ""
    if found.median_rtt_seconds:
        text += (
            f"; round trips took {numbers.seconds(found.median_rtt_seconds)} (median), "
            f"{numbers.seconds(found.max_rtt_seconds)} at most"
        )
    return text + "."


def _hops(name: str, now: Hops, before: Hops | None) -> Iterator[str]:
    if not now.hops:
        yield f"{name} was not traced: {_word(now.error) or 'no packet could be sent'}."
        return
    if now.reached:
        routers = [h for h in now.hops if h.outcome == "exceeded"]
        through = f" through {', '.join(map(_address, routers))}" if routers else ""
        yield f"{name} reaches the far end{through}: {_count(len(now.hops), 'hop')}."
    else:
        yield _broken(name, now, before)
    if before is not None and before.hops:
        yield from _differences(now, before)
    if now.error:
        yield f"The trace ended early: {_word(now.error)}."


def _broken(name: str, now: Hops, before: Hops | None) -> str:
    last = now.last
    if last is not None and last.outcome == "unreachable":
        return f'{name} ends at hop {last.hop}: {_address(last)} says "{_word(last.says)}".'
    passed = 0 if last is None else last.hop
    expected = before.at(passed + 1) if before is not None else None
    was = f", where {_address(expected)} was when it was good" if expected and expected.address else ""
    if last is None:
        return f"{name} is silent from the first hop on{was}."
    return (
        f"{name} breaks after hop {passed}: {_address(last)} is the last to answer, "
        f"and nothing comes from hop {passed + 1} on{was}."
    )


def _differences(now: Hops, before: Hops) -> Iterator[str]:
    """Say which hops are others than when the path was good."""
    for hop in now.hops:
        old = before.at(hop.hop)
        if old and old.address and hop.address and old.address != hop.address:
            yield f"Hop {hop.hop} is {_address(hop)}; it was {_address(old)} when the path was good."
    if now.reached and before.reached and len(now.hops) != len(before.hops):
        yield f"The way has {_count(len(now.hops), 'hop')}; it had {len(before.hops)} when it was good."


def _far(now: Hops, before: Hops | None) -> Iterator[str]:
    far = now.far_end
    if far is None or not far.asked:
        return
    if 0 < far.answered < far.asked or now.reached:
        yield f"The far end answered {far.answered} of {far.asked} packets that went all the way."
    old = before.far_end if before is not None else None
    if far.dscp is not None and far.dscp != now.dscp:
        was = f"; {old.dscp} arrived when the path was good" if old and old.dscp is not None else ""
        yield f"The DSCP is changed on the way there: {now.dscp} is sent and {far.dscp} arrives{was}."
    elif far.dscp is not None:
        yield f"The DSCP arrives as it is sent, {now.dscp}."
    if far.return_dscp is not None and far.return_dscp != now.dscp:
        was = (
            f"; {old.return_dscp} came back when the path was good"
            if old and old.return_dscp is not None
            else ""
        )
        yield f"Answers arrive here with DSCP {far.return_dscp}, asked for with {now.dscp}{was}."


def _path_mtu(moment: Moment, good: Moment | None) -> Iterator[str]:
    now, before = moment.path_mtu, good.path_mtu.size if good else 0
    was = f" It was {before} bytes when the path was good." if before and before != now.size else ""
    if now.size:
        text = f"The path MTU is {now.size} bytes" + (" or more." if now.at_most else ".")
    else:
        reason = f": {_word(now.error)}" if now.error else ""
        text = f"The path MTU could not be found ({_word(now.outcome)}){reason}."
    yield text + was


def _host(moment: Moment, good: Moment | None) -> Iterator[str]:
    now, after = moment.host, moment.host_after
    text = f"This host: load {now.load1:g} on {_count(now.processors, 'processor')}"
    if now.cpu_pressure >= 0:
        text += f", tasks waited for a processor {numbers.percent(now.cpu_pressure)} of the time"
    if now.steal >= 0:
        text += f", {numbers.percent(now.steal)} was stolen by the hypervisor"
    yield text + "."
    dropped = list(_growth(now, after))
    while_made = ", ".join(dropped) or "nothing"
    yield f"Dropped on this host in the {moment.seconds:.1f} s of the record: {while_made}."
    if good is not None:
        since = ", ".join(_growth(good.host_after, now)) or "nothing"
        yield f"Dropped on this host since the last good record: {since}."
    if now.error:
        yield f"Not all of this host's state could be read: {_word(now.error)}."


def _growth(before: HostState, after: HostState) -> Iterator[str]:
    """Say which counters of drops have risen."""
    for what, old, new in (
        ("by processors' backlogs", before.softnet_dropped, after.softnet_dropped),
        ("by full receive buffers of sockets", before.socket_dropped, after.socket_dropped),
        ("by full send buffers of sockets", before.send_refused, after.send_refused),
    ):
        if new > old:
            yield f"{new - old} {what}"
    known = {q.name: q.dropped for q in before.queues}
    for queue in after.queues:
        more = queue.dropped - known.get(queue.name, 0)
        if more > 0:
            place = f" in {_word(queue.netns)}" if queue.netns else ""
            yield f"{more} by {_word(queue.kind)} {_word(queue.handle)} of {_word(queue.device)}{place}"


def _address(hop: Hop) -> str:
    doubt = " (not certain)" if hop.unverified else ""
    return (_word(hop.address) or "this host") + doubt


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _word(text: str) -> str:
    """Return text of a node for a line of a terminal."""
    return terminal.clean(text)
