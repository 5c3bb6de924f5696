"""Questions that a tenant may ask of a proxy before Prometheus, to see what is not its own: for every cloud and proxy.

What a tenant is answered must be the same as if no other tenant were there: asked of the proxy before a Prometheus that
knows all, and of one before a Prometheus that knows this tenant alone. So neither series, names and values of labels, sums,
joins nor errors tell anything of others.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

__all__ = ["CUT", "Answer", "Question", "ask", "questions", "telling", "tells"]

FORM = "application/x-www-form-urlencoded"
QUERY, RANGE, SERIES = "/api/v1/query", "/api/v1/query_range", "/api/v1/series"
LABELS, EXEMPLARS, FEDERATE = "/api/v1/labels", "/api/v1/query_exemplars", "/federate"
BYTES, LOST, RTT = "vigia_port_bytes_total", "vigia_probe_lost_total", "vigia_probe_rtt_seconds"

CUT = 30
"""Times that a question is asked whose answer is cut off."""
_CLOCKS = {"evaluationTime", "lastEvaluation", "timings", "scrapeUrl"}
"""Keys whose values differ from one answer to the next."""


@dataclass(frozen=True)
class Question:
    """A request, as a hostile client writes it."""

    target: str
    """Path and query, as they are sent."""
    method: str = "GET"
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.target} {self.body!r} {dict(self.headers)}"


@dataclass(frozen=True)
class Answer:
    """What came back, without what clocks say."""

    status: int
    """0 if the connection was closed in place of an answer, or in the middle of it, whenever it was asked."""
    said: Any

    @property
    def empty(self) -> bool:
        """Whether it is a refusal, or tells nothing."""
        return self.status != 200 or self.said in (None, "", [], {})


def ask(url: str, question: Question, headers: Mapping[str, str] | None = None) -> Answer:
    """Send a question as it is written, with the headers by which the tenant says who it is.

    A proxy whose peer answers before it has read all of a body may cut that answer off, or not: it is asked again.
    """
    for _ in range(CUT):
        with contextlib.suppress(http.client.IncompleteRead, ConnectionResetError):
            return _once(url, question, {**question.headers, **(headers or {})})
    return Answer(0, None)


def tells(url: str, alone: str, question: Question) -> bool:
    """Whether an answer tells that there is another tenant."""
    return ask(url, question) != ask(alone, question)


def telling(url: str, alone: str, asking: list[Question]) -> list[str]:
    """Return the questions whose answers tell that there is another tenant."""
    return [str(q) for q in asking if tells(url, alone, q)]


def _once(url: str, question: Question, headers: Mapping[str, str]) -> Answer:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=60)
    try:
        connection.request(question.method, question.target, question.body, dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, _timeless(answer.read().decode(errors="replace"), str(at.port)))
    finally:
        connection.close()


def _timeless(text: str, port: str) -> Any:
    try:
        return _without_clocks(json.loads(text).get("data"))
    except (ValueError, AttributeError):
        lines = re.sub(rf"(?m) \d{{13}}$|:{port}\b", "", text).splitlines()
        return sorted(line for line in lines if not line.startswith("#"))


def _without_clocks(value: Any) -> Any:
    """Leave out the instants of samples, and sort what has no order."""
    if isinstance(value, dict):
        return {k: _without_clocks(v) for k, v in value.items() if k not in _CLOCKS}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], int | float):
            return [_without_clocks(value[1])]
        return sorted(map(_without_clocks, value), key=lambda v: json.dumps(v, sort_keys=True))
    return value


def questions(label: str, own: str, other: str, at: float) -> list[Question]:
    """Return everything that is asked as one tenant, of which another tenant must not come out, at a Unix time."""
    names = _Names(label, own, other, at)
    found = [
        *_selecting(names),
        *(names.instant(e) for e in _expressions(names)),
        *_ranges(names),
        *_catalogues(names),
        *_twice(names),
        *_bodies(names),
        *_claims(names),
        *_other_pages(names),
    ]
    assert len(set(map(str, found))) == len(found), "a question is asked twice"
    return found


@dataclass(frozen=True)
class _Names:
    label: str
    own: str
    other: str
    at: float

    def instant(self, expression: str) -> Question:
        return _get(QUERY, query=expression, time=str(self.at))

    def window(self, **more: str) -> dict[str, str]:
        return {"start": str(self.at - 4), "end": str(self.at), "step": "1", **more}


def _get(path: str, *pairs: tuple[str, str], **values: str) -> Question:
    return Question(f"{path}?{urlencode([*pairs, *values.items()])}")


def _post(path: str, *pairs: tuple[str, str], **values: str) -> Question:
    return Question(path, "POST", urlencode([*pairs, *values.items()]).encode(), {"Content-Type": FORM})


def _selectors(n: _Names) -> list[str]:
    """Selectors of every form: what is asked for without, or against, the tenant's own label."""
    coded = "".join(f"\\x{ord(c):02x}" for c in n.other)
    octal = "".join(f"\\{ord(c):03o}" for c in n.other)
    wide = "".join(f"\\u{ord(c):04x}" for c in n.other)
    own, other, label = n.own, n.other, n.label
    return [
        BYTES,
        f'{{__name__="{BYTES}"}}',
        '{__name__=~"vigia_.*"}',
        '{__name__=~".+"}',
        '{__name__!=""}',
        '{__name__!~"go_.*",__name__=~".+"}',
        f'{BYTES}{{{label}="{other}"}}',
        f"{BYTES}{{{label}='{other}'}}",
        f"{BYTES}{{{label}=`{other}`}}",
        f'{BYTES}{{{label}="{coded}"}}',
        f'{BYTES}{{{label}="{octal}"}}',
        f'{BYTES}{{{label}="{wide}"}}',
        f'{BYTES}{{{label}!="{own}"}}',
        f'{BYTES}{{{label}!~"{own}"}}',
        f'{BYTES}{{{label}=~".*"}}',
        f'{BYTES}{{{label}=~".+"}}',
        f'{BYTES}{{{label}=~"{own}|{other}"}}',
        f'{BYTES}{{{label}=~"(?i){other.upper()}"}}',
        f'{BYTES}{{{label}=""}}',
        f'{BYTES}{{{label}!=""}}',
        f'{BYTES}{{{label}="{own}",{label}="{other}"}}',
        f'{BYTES}{{{label}="{other}",{label}="{own}"}}',
        f'{BYTES}{{{label}=~"{other}",{label}!="{own}",}}',
        f'{BYTES}{{tenant="{other}"}}',
        f'{BYTES}{{tenant!="{own}"}}',
        f'{{tenant="{other}",__name__=~".+"}}',
        '{taker!=""}',
        '{offender!=""}',
        f'{{taker="{other}"}}',
        f'{{__name__=~"vigia_isolation_taken.*",tenant="{own}"}}',
        f'{{__name__=~"vigia_compare.*",tenant="{own}"}}',
        '{port="2f0b"}',
        f'{BYTES}{{port!="up"}}',
        '{__name__=~"vigia_.*",port!="up"}',
        '{__name__=~"vigia_.*",port!="vigia_port_info"}',
        '{__name__=~"vigia_.*",port!="{}"}',
        f'{BYTES}{{port!="}}",tenant="{other}"}}',
        f'{BYTES}{{port!="\\"}}{{",tenant="{other}"}}',
        f"# {BYTES}\n{{tenant='{other}'}}",
        '# up\n{__name__=~"vigia_.*"}',
        f'{BYTES}\t\n {{ tenant = "{other}" , }}',
        f"({BYTES})",
        f'node_tenant:vigia_others_sent_bytes:rate1m{{tenant="{own}"}}',
        "node_tenant:vigia_others_sent_bytes:rate1m",
        "path:vigia_probe_rtt:median_rate1m",
        "ALERTS",
        "up",
        f'{{"{BYTES}"}}',
        f'{{"{BYTES}","{label}"="{other}"}}',
        f'{{"{label}"="{other}"}}',
    ]


def _selecting(n: _Names) -> list[Question]:
    found = []
    for selector in _selectors(n):
        found += [n.instant(selector), _post(QUERY, query=selector, time=str(n.at))]
        found += [_get(SERIES, ("match[]", selector)), _get(FEDERATE, ("match[]", selector))]
    return found


def _expressions(n: _Names) -> list[str]:
    """Expressions of every form, each of which would have others in it without the proxy."""
    return [*_of_instants(n), *_of_ranges(n)]


def _of_instants(n: _Names) -> list[str]:
    own, other, label = n.own, n.other, n.label
    hidden = f'{BYTES}{{tenant="{other}"}}'
    return [
        f"{BYTES} or {hidden}",
        f"{hidden} or {BYTES}",
        f'{BYTES} unless {BYTES}{{{label}="{own}"}}',
        f'{BYTES} unless on (port) {BYTES}{{{label}="{own}"}}',
        f"{BYTES} and on () {hidden}",
        f"{BYTES} and on (node) {hidden}",
        f'absent({BYTES}{{{label}="{other}"}})',
        f"absent({hidden})",
        f"absent_over_time({hidden}[5s])",
        f"sum({BYTES})",
        f"sum by ({label}) ({BYTES})",
        f"sum by (tenant) ({BYTES})",
        f"sum without (port) ({BYTES})",
        f"count({BYTES})",
        'count({__name__=~".+"})',
        'count by (__name__) ({__name__=~".+"})',
        'count by (tenant) ({__name__=~".+"})',
        f"topk(10, {BYTES})",
        f"bottomk(10, {BYTES})",
        f"quantile(0.9, {BYTES})",
        f'count_values("{label}", {BYTES})',
        f'count_values("value", {BYTES})',
        f"stddev({BYTES})",
        f"group by (tenant, port) ({BYTES})",
        f"avg by ({label}) ({BYTES}{{{label}=~'.+'}})",
        f"max({BYTES}) - min({BYTES})",
        f"scalar(sum({hidden}))",
        f"vector(scalar(sum({hidden})))",
        f"vector(1) + on () sum({hidden})",
        f'sum({BYTES}) - sum({BYTES}{{{label}="{own}"}})',
        f"sum({BYTES}) / scalar(count({BYTES}))",
        f"{BYTES} * on (node) group_left sum by (node) ({BYTES})",
        f"{BYTES} * on (node, port) group_left (workload, network) vigia_port_info",
        f"vigia_port_info * on (node) group_right (tenant) sum by (node) ({BYTES})",
        f"vigia_tenant_info * on () group_left (port) {hidden}",
        f"sum by (node) ({BYTES}) * on (node) group_right {BYTES}",
        f"vigia_port_info * ignoring (tenant, {label}, port, network, workload) group_left (x) vigia_tenant_info",
        f'label_replace({BYTES}, "{label}", "{other}", "{label}", ".*")',
        f'label_replace({BYTES}, "{label}", "{own}", "{label}", ".*")',
        f'label_replace({hidden}, "tenant", "{own}", "tenant", ".*")',
        f'label_replace({hidden}, "{label}", "{own}", "", "")',
        f'label_join({BYTES}, "{label}", "-", "tenant", "port")',
        f'label_join({hidden}, "who", "", "tenant")',
    ]


def _of_ranges(n: _Names) -> list[str]:
    own, other, label = n.own, n.other, n.label
    hidden = f'{BYTES}{{tenant="{other}"}}'
    return [
        f"rate({BYTES}[5s])",
        f"increase({hidden}[5s])",
        f"max_over_time({BYTES}[5s])",
        f"max_over_time({hidden}[5s])",
        f"max_over_time({BYTES}[5s:1s])",
        f'max_over_time({BYTES}{{{label}!="{own}"}}[5s:1s])',
        f"max_over_time(sum({BYTES})[5s:1s])",
        f"max_over_time(sum by (tenant) (max_over_time({BYTES}[2s]))[4s:1s])",
        f"max_over_time((sum({BYTES}) or sum({hidden}))[4s:1s])",
        f"last_over_time({hidden}[10s])",
        f'present_over_time({{tenant="{other}"}}[5s])',
        f"{BYTES} offset 1s",
        f"{hidden} offset -0s",
        f"{BYTES} @ {n.at}",
        f"{hidden} @ {n.at - 1} offset 1s",
        f"sum({BYTES} @ end())",
        f"sum(max_over_time({hidden}[3s] @ start()))",
        f"histogram_quantile(0.5, {RTT})",
        f"histogram_quantile(0.5, sum({RTT}))",
        f"histogram_count({RTT})",
        f'histogram_sum({RTT}{{tenant="{other}"}})',
        f"sum({RTT})",
        f"sum by (tenant) ({LOST})",
        f"sum by (dst) ({LOST})",
        f'{LOST} == bool on (path) group_left {LOST}{{tenant="{own}"}}',
        f"{BYTES} > bool 0",
        f"{BYTES} >= 0 or {BYTES} < 0",
        f"-{BYTES}",
        f"+({hidden})",
        f"({BYTES}) + ({BYTES})",
        f"{BYTES} ^ 0",
        f"{BYTES} % 7",
        f"{BYTES} atan2 {BYTES}",
        f"sgn({BYTES})",
        f"clamp_max({BYTES}, 1)",
        f"sort_desc({BYTES})",
        f"ln({hidden} + 1)",
        f"changes({hidden}[5s])",
        f"resets({hidden}[5s])",
        f"deriv({hidden}[5s])",
        f"predict_linear({hidden}[5s], 60)",
        f"quantile_over_time(0.5, {hidden}[5s])",
        f"info({BYTES})",
        f'info({BYTES}, {{tenant="{other}"}})',
        f'sum({{__name__=~"vigia_.*",tenant=~"{other[:4]}.*"}})',
        'sum({__name__=~"node_tenant:.*"})',
        f'max(node_tenant:vigia_others_sent_bytes:rate1m{{tenant="{own}"}})',
        f"sum({hidden}) by ({label}) or vector(0)",
        f'{BYTES}{{{label}=~""}} or {BYTES}{{{label}!~".+"}}',
        f'"{other}"',
        f'{BYTES}{{{label}="{own}"}} or {{{label}="{other}",__name__=~".+"}}',
        f'sum(\n# {label}="{own}"\n{hidden}\n)',
        f"{BYTES}{{",
        f'{BYTES}{{{label}="{other}"',
        f'{BYTES}}} or {BYTES}{{{label}="{other}"',
        f'") or {BYTES}{{{label}="{other}"}} or ("',
        f"{BYTES}[5s]",
        f'{{tenant="{other}"}}[5s]'.replace("[5s]", "[5s:]") + " or vector(1)",
        "{}",
        '{__name__=""}',
    ]


def _ranges(n: _Names) -> list[Question]:
    found = []
    for selector in _selectors(n)[::3]:
        found.append(_get(RANGE, query=selector, **n.window()))
    for expression in _expressions(n)[::5]:
        found.append(_post(RANGE, query=expression, **n.window()))
    hidden = f'{BYTES}{{tenant="{n.other}"}}'
    return [
        *found,
        _get(RANGE, query=f"sum({hidden} @ end())", **n.window()),
        _get(RANGE, query=hidden, **{**n.window(), "start": "0", "end": "1"}),
        _get(RANGE, query=hidden, **n.window(timeout="1s", stats="all")),
        _get(QUERY, query=hidden, time=str(n.at), lookback_delta="10m"),
        _get(QUERY, query=hidden, time=str(n.at), stats="all"),
        _get(QUERY, query=f"sum({hidden})", time="NaN"),
        *(
            _get(EXEMPLARS, query=q, start=str(n.at - 60), end=str(n.at))
            for q in (BYTES, hidden, f"sum({RTT})")
        ),
        _post(EXEMPLARS, query=hidden, start=str(n.at - 60), end=str(n.at)),
    ]


def _catalogues(n: _Names) -> list[Question]:
    """Names and values of labels, and lists of series."""
    hidden = ("match[]", f'{{tenant="{n.other}"}}')
    every = ("match[]", '{__name__=~".+"}')
    mine = ("match[]", f'{BYTES}{{{n.label}="{n.own}"}}')
    found = [_get(LABELS), _get(LABELS, hidden), _get(LABELS, every), _get(LABELS, mine, hidden)]
    found += [_post(LABELS, hidden), _post(LABELS), _get(LABELS, start="0", end="9e9")]
    for name in (
        "__name__",
        n.label,
        "tenant",
        "port",
        "dst",
        "taker",
        "offender",
        "workload",
        "tenant_name",
    ):
        path = f"/api/v1/label/{name}/values"
        found += [_get(path), _get(path, hidden), _get(path, mine, every)]
    return [
        *found,
        _get(SERIES),
        _get(SERIES, mine, hidden),
        _get(SERIES, hidden, mine),
        _get(SERIES, every, start="0", end="9e9"),
        _post(SERIES, hidden),
        _post(SERIES, mine, every),
        _get(SERIES, ("match[]", "")),
        _get(SERIES, ("match[]", f"sum({BYTES})")),
        _get(SERIES, ("match[]", f'{BYTES} or {{tenant="{n.other}"}}')),
        _get(SERIES, ("match", '{__name__=~".+"}')),
        _get(FEDERATE),
        _get(FEDERATE, mine, every),
        _get(FEDERATE, hidden, hidden),
        _get(FEDERATE, ("match[]", f'{BYTES}{{tenant="{n.other}"}} or up')),
        *(_get(path) for path in ("/api/v1/label/tenant", "/api/v1/label//values", "/api/v1/label/values")),
        *(
            Question(f"/api/v1/label/{name}/values")
            for name in (
                "..%2F..%2Ftargets",
                "%2e%2e/targets",
                "tenant%00",
                "tenant%3Fmatch",
                "../../targets#",
            )
        ),
    ]


def _twice(n: _Names) -> list[Question]:
    """One parameter several times, empty, or written in another way."""
    own, hidden = f'{BYTES}{{{n.label}="{n.own}"}}', f'{BYTES}{{tenant="{n.other}"}}'
    when = ("time", str(n.at))
    raw = quote(hidden)
    return [
        _get(QUERY, ("query", own), ("query", hidden), when),
        _get(QUERY, ("query", hidden), ("query", own), when),
        _get(QUERY, ("query", ""), ("query", hidden), when),
        _get(QUERY, ("query", hidden), ("query", ""), when),
        _get(QUERY, ("QUERY", hidden), when),
        _get(QUERY, ("query ", hidden), when),
        _get(QUERY, ("query[]", hidden), when),
        _get(QUERY, ("match[]", hidden), when),
        _get(QUERY, when),
        Question(f"{QUERY}?time={n.at}&query={quote(own)};query={raw}"),
        Question(f"{QUERY}?time={n.at};query={raw}"),
        Question(f"{QUERY}?time={n.at}&%71uery={raw}"),
        Question(f"{QUERY}?time={n.at}&query={quote(quote(hidden))}"),
        Question(f"{QUERY}?time={n.at}&query=%FF%FE{raw}"),
        Question(f"{QUERY}?time={n.at}&query={raw}%00"),
        Question(f"{QUERY}?time={n.at}&query={raw}%zz"),
        Question(f"{QUERY}?time={n.at}&query={raw}#fragment"),
        Question(f"/api/v1/./query?time={n.at}&query={raw}"),
        Question(f"//api/v1/query?time={n.at}&query={raw}"),
        Question(f"/api/v1/query/?time={n.at}&query={raw}"),
        Question(f"/api/v1/%71uery?time={n.at}&query={raw}"),
        Question(f"/API/V1/query?time={n.at}&query={raw}"),
        Question(f"/api/v1/series/../query?time={n.at}&query={raw}"),
        Question(f"/api/v1/label/../query?time={n.at}&query={raw}"),
        Question(f"/api/v1/label/x/values/../../../query?time={n.at}&query={raw}"),
        Question(f"/prometheus/api/v1/query?time={n.at}&query={raw}"),
        Question(f"http://127.0.0.1:9090/api/v1/query?time={n.at}&query={raw}"),
    ]


def _bodies(n: _Names) -> list[Question]:
    """Bodies of every form, beside a query in the URL or without one, by every method."""
    own, hidden = f'{BYTES}{{{n.label}="{n.own}"}}', f'{BYTES}{{tenant="{n.other}"}}'
    query = f"{QUERY}?{urlencode({'query': own, 'time': n.at})}"
    form = urlencode({"query": hidden, "time": n.at}).encode()
    blank = urlencode([("query", ""), ("query", hidden), ("time", n.at)]).encode()
    parts = f'--x\r\nContent-Disposition: form-data; name="query"\r\n\r\n{hidden}\r\n--x--\r\n'.encode()
    match = urlencode([("match[]", f'{{tenant="{n.other}"}}')]).encode()
    multipart, plain = "multipart/form-data; boundary=x", "text/plain"
    found = [
        Question(target, "POST", body, {"Content-Type": kind})
        for target in (QUERY, query)
        for body, kind in (
            (form, FORM.upper()),
            (form, f"{FORM}; charset=utf-16"),
            (form, plain),
            (form, "application/json"),
            (blank, FORM),
            (parts, multipart),
            (json.dumps({"query": hidden}).encode(), "application/json"),
            (b"query=%zz&" + form, FORM),
        )
    ]
    found += [
        Question(query, method, form, {"Content-Type": FORM}) for method in ("POST", "GET", "PUT", "PATCH")
    ]
    found += [
        Question(QUERY, method, form, {"Content-Type": FORM}) for method in ("PUT", "DELETE", "QUERY", "HEAD")
    ]
    found += [Question(query, method) for method in ("POST", "OPTIONS", "TRACE")]
    override = {"Content-Type": FORM, "X-HTTP-Method-Override": "GET"}
    parted = Question(SERIES, "POST", parts.replace(b"query", b"match[]"), {"Content-Type": multipart})
    return [
        *found,
        Question(QUERY, "POST", form),
        Question(query, "POST", form, override),
        Question(query, "GET", form, {"Content-Type": FORM, "Expect": "100-continue"}),
        parted,
        Question(SERIES, "POST", match, {"Content-Type": plain}),
        Question(SERIES, "DELETE", match, {"Content-Type": FORM}),
        Question(f"{SERIES}?{match.decode()}", "POST", b"", {"Content-Type": FORM}),
        Question(FEDERATE, "POST", match, {"Content-Type": FORM}),
        Question(FEDERATE, "GET", match, {"Content-Type": FORM}),
    ]


def _claims(n: _Names) -> list[Question]:
    """Saying in the request to be somebody else."""
    hidden = {"query": BYTES, "time": str(n.at)}
    found = [_get(QUERY, (name, n.other), **hidden) for name in {n.label, "tenant", "namespace", "label"}]
    found += [
        _post(QUERY, (n.label, n.other), **hidden),
        _get(QUERY, (n.label, n.own), (n.label, n.other), **hidden),
    ]
    names = (
        "X-Project-Id",
        "X-Project",
        "X-Tenant",
        "X-Namespace",
        "X-Scope-OrgID",
        "X_PROJECT_ID",
        "x-project-id ",
    )
    target = f"{QUERY}?{urlencode(hidden)}"
    found += [Question(target, headers={name.strip(): n.other}) for name in dict.fromkeys(names)]
    roles = {
        "X-Roles": "admin",
        "X-Is-Admin-Project": "True",
        "X-Identity-Status": "Confirmed",
        "X-Role": "admin",
    }
    return [
        *found,
        Question(target, headers=roles),
        Question(target, headers={"X-Forwarded-User": n.other, "X-Original-URL": "/api/v1/targets"}),
        Question(target, headers={"Host": f"{n.other}.example", "Forwarded": f"for={n.other}"}),
        Question(target, headers={"Connection": f"X-Project-Id, {n.label}"}),
    ]


def _other_pages(n: _Names) -> list[Question]:
    """What Prometheus has besides, of which the proxy knows nothing or should not."""
    pages = [
        "/",
        "/graph",
        "/classic/graph",
        "/targets",
        "/config",
        "/metrics",
        "/debug/pprof/",
        "/consoles/prometheus.html",
        "/-/healthy",
        "/api/v1/targets",
        "/api/v1/targets/metadata",
        f"/api/v1/metadata?metric={BYTES}",
        "/api/v1/metadata",
        "/api/v1/alertmanagers",
        "/api/v1/alerts",
        "/api/v1/rules",
        "/api/v1/rules?type=record",
        "/api/v1/status/config",
        "/api/v1/status/flags",
        "/api/v1/status/tsdb",
        "/api/v1/status/runtimeinfo",
        "/api/v1/status/buildinfo",
        "/api/v1/status/walreplay",
        "/api/v1/notifications",
        f"/api/v1/format_query?query={BYTES}",
        f"/api/v1/parse_query?query={BYTES}",
        "/api/v2/alerts",
        "/api/v2/silences",
        "/api/v2/alerts/groups",
        "/..%2fapi/v1/targets",
    ]
    proto = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
    # A remote read of {__name__=~".+"}: ReadRequest{queries: [{end, matchers: [{RE, "__name__", ".+"}]}]}, in one literal of snappy.
    matcher = b"\x08\x02\x12\x08__name__\x1a\x02.+"
    body = b"\x10\xff\xff\xff\xff\xff\xff\x03\x1a" + bytes([len(matcher)]) + matcher
    read = b"\x0a" + bytes([len(body)]) + body
    snappy = bytes([len(read), (len(read) - 1) << 2]) + read
    return [
        *map(Question, pages),
        Question("/api/v1/read", "POST", snappy, {**proto, "X-Prometheus-Remote-Read-Version": "0.1.0"}),
        Question("/api/v1/write", "POST", b"\x00", proto),
        Question("/-/reload", "POST"),
        Question("/api/v1/admin/tsdb/snapshot", "POST"),
        Question(f"/api/v1/admin/tsdb/delete_series?match[]={BYTES}", "POST"),
    ]
