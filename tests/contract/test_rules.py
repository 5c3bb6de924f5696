"""Rules against the metric catalogue, the isolation contract, their tests and their runbooks."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from alertkit import FAST, groups, jobs_of, passes, rules, too_short

import vigia_catalog
from vigia.cli.explain import explain
from vigia_dashboards.annotations import ANNOTATIONS
from vigia_dashboards.expressions import (
    check,
    check_matchers,
    histogram_ranges,
    is_histogram,
    labels_of,
    ranges,
    selectors,
)
from vigia_dashboards.model import Dashboard
from vigia_dashboards.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "alert-rules/tests").glob("*.test.yml"))
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation")


DECLARED = {
    m.name: m
    for part in ("probe", "exporter", "enforcer", "agent", "compare")
    for m in vigia_catalog.part_metrics(part)
}
ALERTS = {r["alert"]: r for r in rules("alert")}
RECORDS = {r["record"]: r for r in rules("record")}


def test_the_parser_finds_every_selector() -> None:
    expression = "sum by (x) (rate(a_total[5s])) / on (x) group_left clamp_max(b, 2) or label_replace(c, 'd', '$1', 'e', '(.*)')"
    assert sorted(s.name for s in selectors(expression)) == ["a_total", "b", "c"]


@pytest.mark.parametrize(
    "rule", [*ALERTS.values(), *RECORDS.values()], ids=lambda r: r.get("alert", r.get("record"))
)
def test_rules_use_only_declared_metrics_and_labels(rule: dict[str, Any]) -> None:
    assert list(selectors(rule["expr"]))
    check(rule["expr"])


LONGEST = timedelta(minutes=5)
"""Over which a histogram may be read: longer windows are made of records, whose cost does not grow with the buckets."""


def test_ranges_of_histograms_are_found() -> None:
    quantile = "histogram_quantile(0.9, sum by (dst) (rate(vigia_probe_rtt_seconds[1h])))"
    assert list(histogram_ranges(quantile)) == [("vigia_probe_rtt_seconds", timedelta(hours=1))]
    within = "max_over_time(sum(rate(vigia_probe_rtt_seconds_count[5m]))[1h:1m]) / rate(vigia_probe_sent_total[6h])"
    assert list(histogram_ranges(within)) == [("vigia_probe_rtt_seconds_count", timedelta(minutes=65))]
    assert not list(histogram_ranges("avg_over_time(path:vigia_probe_rtt_seconds:p99_rate1m[1d])"))


@pytest.mark.parametrize(
    "rule", [*ALERTS.values(), *RECORDS.values()], ids=lambda r: r.get("alert", r.get("record"))
)
def test_rules_read_no_histogram_over_more_than_five_minutes(rule: dict[str, Any]) -> None:
    assert not [found for found in histogram_ranges(rule["expr"]) if found[1] > LONGEST]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_panels_read_no_histogram_over_more_than_five_minutes(page: Dashboard) -> None:
    for panel in (panel for row in page.rows for panel in row.panels):
        for query in panel.queries:
            long = [found for found in histogram_ranges(query.expression) if found[1] > LONGEST]
            assert not long, f"{panel.title}: {long}"


def test_ranges_that_hold_too_few_samples_are_found() -> None:
    """As shipped: the agents are scraped every 15 s, and windows recorded every minute."""
    assert not too_short("rate(vigia_probe_sent_total[1m])")
    assert too_short("rate(vigia_probe_sent_total[59s])") and too_short("rate(node_cpu_seconds_total[30s])")
    assert too_short("max_over_time(rate(vigia_probe_rtt_seconds_count[30s])[10s:1s])")
    assert not too_short('max_over_time(vigia_port_flood_score{job="vigia-exporter-fast"}[5s])')
    assert too_short("max_over_time(vigia_port_flood_score[5s])"), "the other page has it every 15 s"
    assert too_short("avg_over_time(path:vigia_probe_rtt_seconds:p99_rate1m[3m])")
    assert not too_short("avg_over_time(path:vigia_probe_rtt_seconds:p99_rate1m[4m])")


@pytest.mark.parametrize(
    "rule", [*ALERTS.values(), *RECORDS.values()], ids=lambda r: r.get("alert", r.get("record"))
)
def test_rules_look_at_four_scrapes_at_least(rule: dict[str, Any]) -> None:
    assert not too_short(rule["expr"])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.uid)
def test_panels_look_at_four_scrapes_at_least(page: Dashboard) -> None:
    """Grafana's rate interval is a minute at least, by the scrape interval that the data source says."""
    for panel in (panel for row in page.rows for panel in row.panels):
        for query in panel.queries:
            assert not too_short(query.expression), panel.title


def test_annotations_look_at_four_scrapes_at_least() -> None:
    assert not [a.name for a in ANNOTATIONS if too_short(a.expression)]


SECOND = timedelta(seconds=1)
GROUPS = {group["name"]: group for group in groups()}
INTERVALS = {"1s", "15s", "1m", "15m"}


def test_groups_are_evaluated_as_their_series_are_scraped() -> None:
    assert {g["interval"] for g in GROUPS.values()} <= INTERVALS
    assert {name for name, g in GROUPS.items() if g["interval"] == "1s"} == {"vigia-isolation", "vigia-mesh"}


def test_what_is_evaluated_every_second_reads_the_fast_pages_alone() -> None:
    """Or records, which are few; no rate, and no histogram."""
    for rule in GROUPS["vigia-isolation"]["rules"]:
        assert not list(ranges(rule["expr"])), rule
        for selector in selectors(rule["expr"]):
            name = str(selector.name)
            assert not is_histogram(name)
            if name in DECLARED:
                (job,) = [m.value for m in selector.matchers.matchers if m.name == "job"]
                assert job.endswith(FAST) and DECLARED[name].on_fast_page, rule
            else:
                assert name == "up" or name in RECORDS


def test_what_both_pages_show_is_counted_once() -> None:
    """A flood's score is on both pages of an exporter: a rule chooses one of them."""
    both = {m.name for m in DECLARED.values() if len(m.pages) > 1}
    assert "vigia_port_flood_score" in both
    for rule in (*ALERTS.values(), *RECORDS.values()):
        for selector in selectors(rule["expr"]):
            if selector.name in both:
                assert [m.name for m in selector.matchers.matchers if m.name == "job"], rule


def test_both_pages_of_an_agent_are_one_list_of_targets() -> None:
    """So that one of them has no targets when the other has none."""
    content = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    jobs = {j["job_name"]: j for j in content["scrape_configs"]}
    fast = [name for name in jobs if name.endswith(FAST)]
    assert fast == [f"vigia-{part}{FAST}" for part in ("probe", "exporter", "enforcer")]
    for name in fast:
        main = jobs[name.removesuffix(FAST)]
        assert jobs[name]["file_sd_configs"] == main["file_sd_configs"]
        assert (jobs[name]["metrics_path"], main.get("metrics_path", "/metrics")) == (
            vigia_catalog.FAST_PAGE,
            vigia_catalog.MAIN_PAGE,
        )


def test_every_page_of_verdicts_is_scraped_of_the_same_targets() -> None:
    content = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    jobs = {j["job_name"]: j for j in content["scrape_configs"]}
    slow = jobs["vigia-compare-verdicts"]
    assert slow["file_sd_configs"] == jobs["vigia-compare"]["file_sd_configs"]
    assert (slow["metrics_path"], slow["scrape_interval"]) == (vigia_catalog.VERDICT_PAGE, "1m")
    assert {m.part for m in DECLARED.values() if vigia_catalog.VERDICT_PAGE in m.pages} == {"compare"}


def test_the_long_term_store_takes_every_record_and_no_series_twice() -> None:
    content = yaml.safe_load((ROOT / "deploy/victoria-metrics/scrape.yml").read_text())
    (job,) = content["scrape_configs"]
    wanted = [promql_parser.parse(text) for text in job["params"]["match[]"]]

    def takes(name: str, job: str) -> bool:
        labels = {"__name__": name, "job": job}
        return any(
            selector.name in (None, name)
            and all(passes(m, labels[m.name]) for m in selector.matchers.matchers)
            for selector in wanted
        )

    assert all(takes(name, "") for name in RECORDS)
    both = [m for m in DECLARED.values() if len(m.pages) > 1]
    for m in both:
        assert not takes(m.name, f"vigia-{m.part}{FAST}")
    assert takes("vigia_isolation_limit_bytes_per_second", "vigia-enforcer")
    assert takes("vigia_probe_sent_total", "vigia-probe") and not takes(
        "vigia_probe_rtt_seconds", "vigia-probe"
    )


@pytest.mark.parametrize("name", RECORDS)
def test_recorded_names_have_level_metric_and_operation(name: str) -> None:
    assert re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", name)


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_say_what_people_and_the_isolation_agent_need(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"Vigia[A-Z][A-Za-z]+", name)
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert alert["labels"]["isolate"] in ("auto", "manual", "never")
    assert set(alert["annotations"]) - {"explain"} == {
        "summary",
        "description",
        "action",
        "runbook_url",
        "dashboard_url",
    }
    assert not re.search(r"\d", alert["annotations"]["summary"]), (
        "a summary groups alerts: numbers belong in the description"
    )


EXPLAINED = {name for name, alert in ALERTS.items() if "explain" in alert["annotations"]}


def test_alerts_about_what_probes_judge_say_how_to_see_that_moment() -> None:
    """vigia-probe records when probes are lost or slow: the command for each is in its alert and its runbook."""
    assert {"VigiaPathLoss", "VigiaLossBudgetBurn", "VigiaDelayBudgetBurn"} <= EXPLAINED


@pytest.mark.parametrize("name", sorted(EXPLAINED))
def test_the_command_that_explains_an_alert_is_one(name: str) -> None:
    words = re.sub(r"{{ \$labels\.(\w+) }}", r"\1", ALERTS[name]["annotations"]["explain"])
    assert words == "vigia explain path --src src --dst dst --tenant tenant --probe probe"
    assert "`vigia explain PATH`" in (ROOT / ALERTS[name]["annotations"]["runbook_url"]).read_text()
    options = {o for p in explain.params for o in p.opts}
    assert set(re.findall(r"--\w+", words)) <= options


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_links_a_dashboard_that_exists(name: str) -> None:
    url = ALERTS[name]["annotations"]["dashboard_url"]
    match = re.fullmatch(r"/d/([a-z-]+)(?:\?(.*))?", url)
    assert match, url
    page = {p.uid: p for p in PAGES}[match[1]]
    asked = {part.split("=")[0].removeprefix("var-") for part in (match[2] or "").split("&") if part}
    assert asked <= {v.name for v in page.variables}


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_runbook(name: str) -> None:
    page = ROOT / ALERTS[name]["annotations"]["runbook_url"]
    text = page.read_text()
    assert page.stem == name
    assert text.startswith(f"# {name}\n")
    for section in SECTIONS:
        assert f"**{section}.**" in text


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_in_a_sentence_what_to_do_first_and_its_runbook_begins_with_it(name: str) -> None:
    action = ALERTS[name]["annotations"]["action"]
    assert re.fullmatch(r"[A-Z][^{}]{20,140}[^.]\.", action)
    assert "{{" not in action, "the runbook has the same words"
    text = " ".join((ROOT / ALERTS[name]["annotations"]["runbook_url"]).read_text().split())
    assert text.startswith(f"# {name} **First.** {action} **Meaning.**")


def test_every_runbook_has_an_alert() -> None:
    assert {p.stem for p in (ROOT / "docs/runbooks").glob("*.md")} == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_is_tested_silent_firing_and_resolved(name: str) -> None:
    cases = []
    for file in TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            seen = sorted(
                (_seconds(c["eval_time"]), bool(c["exp_alerts"]))
                for c in test.get("alert_rule_test", [])
                if c["alertname"] == name
            )
            cases.append([firing for _, firing in seen])
    assert any(_contains(case, [False, True, False]) for case in cases), (
        "no test sees it silent, then firing, then resolved"
    )


INPUTS = sorted(
    {
        (file.stem, item["series"])
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for item in test["input_series"]
    }
)


@pytest.mark.parametrize("file", TESTS, ids=lambda f: f.stem)
def test_groups_that_read_records_of_others_are_tested_in_one_order(file: Path) -> None:
    """promtool evaluates what is not in group_eval_order in another order in every run."""
    tested = yaml.safe_load(file.read_text())
    loaded = [
        g for r in tested["rule_files"] for g in yaml.safe_load((file.parent / r).read_text())["groups"]
    ]
    records = {r["record"]: g["name"] for g in loaded for r in g["rules"] if "record" in r}
    related = set()
    for group in loaded:
        read = {records.get(str(s.name)) for r in group["rules"] for s in selectors(r["expr"])}
        others = read - {None, group["name"]}
        related |= others | ({group["name"]} if others else set())
    assert related <= set(tested.get("group_eval_order", [])), f"group_eval_order lacks some of {related}"


@pytest.mark.parametrize(("file", "series"), INPUTS, ids=lambda x: x[:80])
def test_rules_are_tested_with_series_as_they_are_exported(file: str, series: str) -> None:
    """With all labels that the program gives them: a rule that joins on another would pass with fewer."""
    check_matchers(series)
    (selector,) = selectors(series)
    name, given = str(selector.name), {m.name for m in selector.matchers.matchers}
    known = labels_of(name)
    assert known is not None and given <= known, series
    metric = DECLARED.get(name)
    assert metric is None or set(metric.labels) <= given, f"{series} lacks {set(metric.labels) - given}"


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)(s|m)", text)
    assert match, text
    return int(match[1]) * (60 if match[2] == "m" else 1)


def _contains(case: list[bool], wanted: list[bool]) -> bool:
    changes = [v for i, v in enumerate(case) if i == 0 or v != case[i - 1]]
    return any(changes[i : i + len(wanted)] == wanted for i in range(len(changes)))


def test_alerts_that_isolate_name_a_policy_that_is_shipped() -> None:
    shipped = yaml.safe_load((ROOT / "deploy/isolation-agent/policies.yaml").read_text())["policies"]
    policies = {p["name"]: p for p in shipped}
    for name, alert in ALERTS.items():
        if alert["labels"]["isolate"] != "auto":
            assert "policy" not in alert["labels"]
            continue
        policy = policies[alert["labels"]["policy"]]
        assert policy["match"]["alertname"] == name
        assert all(alert["labels"].get(k) == v for k, v in policy["match"].items() if k != "alertname")
        needed = {"node", "port", "tenant"} if policy["level"] != "L0" else {"node", "tenant"}
        assert needed <= set().union(*(labels_of(s.name) or set() for s in selectors(alert["expr"])))


def test_every_scrape_job_of_a_rule_exists() -> None:
    jobs = {
        j["job_name"]
        for j in yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    }
    for rule in ALERTS.values():
        for selector in selectors(rule["expr"]):
            for matcher in selector.matchers.matchers:
                if matcher.name == "job":
                    assert set(matcher.value.split("|")) <= jobs


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_whose_series_vanish_is_not_the_end_of_it(name: str) -> None:
    """Without its series an alert is silent: another one fires when their job is away, or knows nobody."""
    jobs = jobs_of(ALERTS[name]["expr"])
    assert jobs
    for job in jobs:
        # Both pages of an agent have one list of targets.
        absent = {f'absent(up{{job="{job.removesuffix(FAST)}{page}"}})' for page in ("", FAST)}
        assert any(_watches(a["expr"], job) and any(w in a["expr"] for w in absent) for a in ALERTS.values())


def _watches(expression: str, job: str) -> bool:
    """Whether an alert fires when a target of a job is down."""
    ups = [s.matchers.matchers for s in selectors(expression) if s.name == "up"]
    return "== 0" in expression and any(all(passes(m, job) for m in ms if m.name == "job") for ms in ups)


REQUIRED = {
    "probe loss": {"VigiaPathLoss", "VigiaLossBudgetBurn"},
    "latency against objective": {"VigiaDelayBudgetBurn"},
    "jitter against objective": {"VigiaJitterBudgetBurn"},
    "overlay tax growth": {"VigiaOverlayTaxGrowth"},
    "UDP flood": {"VigiaUdpFlood", "VigiaFloodsUnseen"},
    "interference": {"VigiaTenantInterference"},
    "guarantee violated": {"VigiaGuaranteeViolated", "VigiaGuaranteesOff", "VigiaContractsLeftOut"},
    "drops by cause": {"VigiaPortDrops"},
    "OpenFlow table full": {"VigiaOpenFlowTableFull"},
    "OVS upcall loss": {"VigiaOvsUpcallLoss"},
    "connection table full": {"VigiaConntrackFull"},
    "VF spoof": {"VigiaVfSpoof"},
    "nodes": {"VigiaNodeDown", "VigiaNodeReturned", "VigiaHostBusy"},
    "parts down": {
        "VigiaProbeDown",
        "VigiaExporterDown",
        "VigiaEnforcerDown",
        "VigiaIsolationAgentDown",
        "VigiaIsolationReplicaDown",
        "VigiaCompareDown",
        "VigiaCompareReplicaDown",
        "VigiaNodeExporterDown",
    },
    "parts unhealthy": {
        "VigiaNoProbes",
        "VigiaProbeAccounting",
        "VigiaCollectorFailing",
        "VigiaConfigRejected",
        "VigiaCompareStale",
        "VigiaCompareStateUnsaved",
        "VigiaPeerUnresponsive",
        "VigiaIsolationBreakerTripped",
    },
    "series limit": {"VigiaSeriesLimited"},
    "clock": {"VigiaClock"},
    "parts of the site down": {"VigiaUnreachable"},
}


@pytest.mark.parametrize("what", REQUIRED)
def test_nothing_that_operators_must_hear_of_lacks_its_alert(what: str) -> None:
    assert REQUIRED[what] <= set(ALERTS)


def test_every_alert_is_there_for_something() -> None:
    assert set().union(*REQUIRED.values()) == set(ALERTS)


@pytest.mark.parametrize("name", sorted(n for n in ALERTS if n.endswith("BudgetBurn")))
def test_burn_rates_have_two_windows_and_a_minimum_of_samples(name: str) -> None:
    used = {str(s.name) for s in selectors(ALERTS[name]["expr"])}
    for branch in re.split(r"\bor\b", ALERTS[name]["expr"]):
        windows = set(re.findall(r"ratio_rate(\d+[mh])", branch))
        assert len(windows) == 2, f"a long and a short window: {windows}"
        assert re.search(r"path:vigia_probe_(sent|delay_judged|jitter_judged):rate\d+m >= ", branch), (
            "a ratio of few samples means nothing"
        )
    assert used <= set(RECORDS)


@pytest.mark.parametrize("name", ALERTS)
def test_templates_name_labels_that_the_alert_can_have(name: str) -> None:
    alert = ALERTS[name]
    known = set().union(*(labels_of(str(s.name)) or set() for s in selectors(alert["expr"])))
    known |= set(re.findall(r'label_replace\(.*?,\s*"([a-z_]+)"', alert["expr"], re.DOTALL))
    text = " ".join([*alert["annotations"].values(), *alert["labels"].values()])
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= known
