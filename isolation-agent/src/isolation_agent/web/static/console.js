// The console. Everything that comes from the API is put on the page as text, never as markup.
import {LEVELS, STATES, clock, describe, rate, sketch, span} from "./model.js";

const TITLE = document.title;
const EVERY = 2000;
const KEPT = 300000;
const MOST_PICTURES = 500;
const WIDE = 160;
const HIGH = 30;
const byId = (id) => document.getElementById(id);

const state = {self: null, skew: 0, timer: 0, failures: 0, seenAt: 0, detail: null, busy: false, counts: {}, past: new Map()};

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "class") node.className = value;
    else if (key === "on") for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function say(text) { byId("said").textContent = text; }
function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

class Expired extends Error {}

async function call(method, path, body) {
  const headers = {Accept: "application/json"};
  if (method !== "GET") {
    headers["X-CSRF-Token"] = state.self?.csrf ?? "";
    headers["Idempotency-Key"] = key();
  }
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", redirect: "error",
  });
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) throw new Expired(answer.error?.message ?? "not signed in");
  if (!response.ok) throw new Error(answer.error?.message ?? `the agent answered ${response.status}`);
  return answer;
}

function key() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// Signing in and out

function showLogin(why) {
  state.self = null;
  clearTimeout(state.timer);
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  byId("main").hidden = byId("who").hidden = true;
  byId("banners").replaceChildren();
  byId("trouble").hidden = true;
  byId("pulse").className = "pulse";
  setText(byId("pulse"), "signed out");
  byId("login").hidden = false;
  setText(byId("login-why"), why);
  byId("token").focus();
}

async function signIn(event) {
  event.preventDefault();
  const token = byId("token").value;
  byId("token").value = "";
  setText(byId("login-error"), "");
  try {
    await call("POST", "/v1/session", {token});
    await begin();
  } catch (error) {
    setText(byId("login-error"), error.message);
    byId("token").focus();
  }
}

async function signOut() {
  try { await call("DELETE", "/v1/session"); } catch { /* it is over either way */ }
  showLogin("You have signed out.");
}

const mayAct = () => ["operator", "admin"].includes(state.self?.role);
const mayDecide = () => mayAct() || state.self?.role === "approver";

async function begin() {
  try {
    state.self = await call("GET", "/v1/session");
  } catch (error) {
    if (error instanceof Expired) showLogin("Sign in with your API token.");
    else { trouble(error.message); state.timer = setTimeout(begin, EVERY); }
    return;
  }
  if (state.self.role === "tenant") { showLogin("This token belongs to a tenant; the console is for operators."); return; }
  byId("login").hidden = true;
  byId("main").hidden = byId("who").hidden = false;
  setText(byId("name"), `${state.self.name} (${state.self.role})`);
  byId("kill").hidden = !mayAct();
  byId("main").focus();
  await refresh();
}

// Live updates: the page asks every two seconds, so that it holds no thread of the agent.

async function refresh() {
  clearTimeout(state.timer);
  if (!state.self) return;
  try {
    const [overview, tenants] = await Promise.all([call("GET", "/v1/overview"), call("GET", "/v1/tenants")]);
    state.skew = new Date(overview.now).getTime() - Date.now();
    state.seenAt = Date.now();
    state.failures = 0;
    byId("trouble").hidden = true;
    show(overview);
    showTenants(tenants);
    if (state.detail) await refreshDetail();
  } catch (error) {
    if (error instanceof Expired) { showLogin("Your session has ended. Sign in again."); return; }
    state.failures += 1;
    trouble(`The agent does not answer: ${error.message}. What is shown may be old.`);
  }
  pulse();
  state.timer = setTimeout(refresh, Math.min(EVERY * 2 ** Math.min(state.failures, 3), 15000));
}

function trouble(text) {
  setText(byId("trouble"), text);
  byId("trouble").hidden = false;
}

function pulse() {
  const age = (Date.now() - state.seenAt) / 1000;
  const live = state.failures === 0;
  byId("pulse").className = live ? "pulse live" : "pulse stale";
  setText(byId("pulse"), live ? "live" : `no update for ${span(age)}`);
}

// The page

function keyed(list, items, create, update) {
  const old = new Map(Array.from(list.children, (node) => [node.dataset.key, node]));
  let place = list.firstElementChild;
  for (const item of items) {
    let node = old.get(item.id);
    if (!node) { node = create(item); node.dataset.key = item.id; }
    old.delete(item.id);
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else list.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
}

function show(overview) {
  state.overview = overview;
  banners(overview);
  section("waiting", overview.waiting, "waits for approval");
  section("limited", overview.limited, "is limited");
  byId("limited-more").hidden = overview.more_limited <= 0;
  setText(byId("limited-more"), `and ${overview.more_limited} more`);
  showRefused(overview.quarantined);
  byId("recent-empty").hidden = overview.recent.length > 0;
  keyed(byId("recent"), overview.recent, recentRow, updateRecent);
  const on = overview.kill_switch.on;
  setText(byId("kill"), on ? "Turn kill switch off" : "Kill switch");
  byId("kill").className = on ? "primary" : "danger";
  byId("kill").disabled = overview.kill_switch.held_on_by_policy_file;
  document.title = `${overview.waiting.length ? `(${overview.waiting.length}) ` : ""}${TITLE}`;
}

function section(name, items, word) {
  const count = byId(`${name}-count`);
  setText(count, String(items.length));
  count.className = items.length ? "count some" : "count";
  byId(`${name}-empty`).hidden = items.length > 0;
  keyed(byId(name), items, card, updateCard);
  const before = state.counts[name];
  if (before !== undefined && items.length > before) say(`${items[0].tenant} ${word}: ${items[0].port}`);
  state.counts[name] = items.length;
}

function banners(overview) {
  const wanted = [];
  if (overview.kill_switch.on) {
    const held = overview.kill_switch.held_on_by_policy_file ? " The policy file holds it on." : "";
    wanted.push(["bad", `The kill switch is on: all limits are removed and no new one is set.${held}`, null]);
  }
  if (overview.breaker.tripped) {
    wanted.push(["bad", `The blast-radius breaker has tripped: every new action waits for approval. ${overview.breaker.reason}`, "Reset breaker"]);
  }
  if (overview.dry_run) wanted.push(["warn", "Dry run: the agent decides and records, but sets no limit.", null]);
  if (!overview.ready) wanted.push(["bad", `The agent is not ready: ${overview.problem}`, null]);
  if (overview.leader && overview.leader !== overview.replica) {
    wanted.push(["warn", `Replica ${overview.leader} leads; this is ${overview.replica}.`, null]);
  }
  const texts = wanted.map(([, text]) => text).join("\n");
  if (byId("banners").dataset.shown === texts) return;
  byId("banners").dataset.shown = texts;
  byId("banners").replaceChildren(...wanted.map(([kind, text, action]) => {
    const banner = make("div", {class: `banner ${kind}`, role: "status"}, make("span", {}, text));
    if (action && state.self?.role === "admin") banner.append(make("button", {type: "button", on: {click: resetBreaker}}, action));
    return banner;
  }));
}

function card(item) {
  const node = make("li", {},
    make("span", {class: "state"}), make("h3"), make("p", {class: "place"}), make("p", {class: "why"}),
    make("div", {class: "meter", role: "group", "aria-label": "before and after"}), make("dl"), make("div", {class: "buttons"}));
  const buttons = node.querySelector(".buttons");
  const add = (label, kind, handler) => buttons.append(
    make("button", {type: "button", class: kind, "aria-label": `${label} ${item.tenant} ${item.port}`, on: {click: handler}}, label));
  if (item.state === "pending_approval" && mayDecide()) {
    add("Approve", "primary", () => decide(item.id, "approve"));
    add("Reject", "quiet", () => decide(item.id, "reject"));
  } else if (item.state !== "pending_approval" && mayAct() && !item.ended_at) {
    add("Revert", "danger", () => decide(item.id, "revert"));
  }
  add("Details", "quiet", () => openDetail(item.id));
  node.dataset.kind = item.state === "pending_approval" ? "waiting" : "limited";
  return node;
}

function updateCard(node, item) {
  const [word, kind] = STATES[item.state] ?? [item.state, "calm"];
  const asked = item.revert_requested_by ? `, removal requested by ${item.revert_requested_by}` : "";
  setText(node.querySelector(".state"), word + asked);
  node.querySelector(".state").className = `state ${kind}`;
  node.classList.toggle("easing", kind === "good");
  setText(node.querySelector("h3"), item.tenant);
  setText(node.querySelector(".place"), `port ${item.port} on ${item.node} · ${item.level}, ${LEVELS[item.level] ?? ""}`);
  setText(node.querySelector(".why"), item.reason);
  meter(node.querySelector(".meter"), item);
  facts(node.querySelector("dl"), cardFacts(item));
  for (const button of node.querySelectorAll("button")) {
    if (button.textContent !== "Details") button.disabled = Boolean(item.revert_requested_by);
  }
}

function cardFacts(item) {
  const left = (text) => span((new Date(text).getTime() - Date.now() - state.skew) / 1000);
  const since = (text) => span((Date.now() + state.skew - new Date(text).getTime()) / 1000);
  const seen = item.evidence_then ?? {};
  const found = [["Policy", item.policy]];
  if (seen.flood_score !== null && seen.flood_score !== undefined) {
    found.push(["Evidence", `flood score ${Math.round(seen.flood_score)} of 100, ${Math.round(seen.destination_ports ?? 0)} ports, ${Math.round((seen.reply_ratio ?? 0) * 100)} % answered`]);
  }
  found.push(item.applied_at ? ["Since", since(item.applied_at)] : ["Asked", `${since(item.created_at)} ago`]);
  if (item.expires_at) found.push(["Expires in", left(item.expires_at)]);
  if (item.approved_by) found.push(["Approved by", item.approved_by]);
  return found;
}

function facts(list, pairs) {
  while (list.children.length > pairs.length * 2) list.lastElementChild.remove();
  pairs.forEach(([name, value], i) => {
    if (list.children.length <= i * 2) list.append(make("dt"), make("dd"));
    setText(list.children[i * 2], name);
    setText(list.children[i * 2 + 1], value);
  });
}

function meter(box, item) {
  const before = item.evidence_then?.offered_bytes_per_second ?? null;
  const now = item.offered_bytes_per_second;
  const cap = item.limit?.rate_bytes_per_second ?? null;
  const pending = item.state === "pending_approval";
  const passes = now === null || cap === null ? null : Math.min(now, cap);
  const rows = [["Load at decision", before], ["Load now", now], [pending ? "Would pass" : "Passes", passes]];
  const most = Math.max(1, ...rows.map(([, v]) => v ?? 0));
  if (!box.children.length) for (const [name] of rows) box.append(make("span", {}, name), make("progress", {"aria-label": name}), make("span", {class: "num"}));
  rows.forEach(([name, value], i) => {
    const [label, bar, number] = [0, 1, 2].map((j) => box.children[i * 3 + j]);
    setText(label, name);
    bar.max = most;
    bar.value = value ?? 0;
    bar.className = cap !== null && (value ?? 0) > cap ? "over" : "";
    setText(number, rate(value));
  });
}

function showTenants(answer) {
  const items = answer.tenants.map((t) => ({...t, id: t.tenant}));
  byId("tenants-table").hidden = items.length === 0;
  byId("tenants-empty").hidden = items.length > 0;
  keyed(byId("tenants"), items, () => make("tr", {},
    make("th", {scope: "row"}), make("td", {"data-label": "sends", class: "num"}), make("td", {"data-label": "guarantee", class: "num"}),
    make("td", {"data-label": "Use"}, make("progress"), make("span", {class: "none"})),
    make("td", {"data-label": "While open"}), make("td")), updateTenant);
  const silent = Object.entries(answer.silent).map(([node, why]) => `no answer from ${node}: ${why}`).join(" · ");
  setText(byId("silent"), silent);
}

function updateTenant(row, t) {
  const [name, sends, guarantee, use, past, limited] = row.children;
  const bought = t.guarantee_bytes_per_second > 0;
  const over = bought && t.offered_bytes_per_second > t.guarantee_bytes_per_second;
  setText(name, t.tenant);
  setText(sends, rate(t.offered_bytes_per_second));
  setText(guarantee, bought ? rate(t.guarantee_bytes_per_second) : "no contract");
  const bar = use.firstElementChild;
  bar.hidden = !bought;
  setText(use.lastElementChild, bought ? "" : "nothing to compare with");
  bar.max = Math.max(t.guarantee_bytes_per_second, 1);
  bar.value = Math.min(t.offered_bytes_per_second, bar.max);
  bar.className = over ? "over" : "";
  bar.setAttribute("aria-label", `${t.tenant} sends ${rate(t.offered_bytes_per_second)} of ${rate(t.guarantee_bytes_per_second)}`);
  past.replaceChildren(picture(t, remember(t)));
  setText(limited, t.limited ? "limited" : over ? "above guarantee" : bought ? "within guarantee" : "");
}

// What each tenant sent while the page was open: a line, with the guarantee as a dashed one.

function remember(t) {
  const now = Date.now();
  const seen = (state.past.get(t.tenant) ?? []).filter((p) => now - p.at <= KEPT);
  seen.push({at: now, sent: t.offered_bytes_per_second ?? 0, limited: t.limited});
  if (state.past.size < MOST_PICTURES || state.past.has(t.tenant)) state.past.set(t.tenant, seen);
  return seen;
}

function drawn(tag, props) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
  return node;
}

// Milliseconds that the line is of: all that was seen, of little not too much.
function watched(seen) {
  return Math.min(KEPT, Math.max(Date.now() - seen[0].at, 20_000));
}

function picture(t, seen) {
  const {line, guarantee, limited, peak} = sketch(seen, t.guarantee_bytes_per_second, Date.now(), watched(seen), WIDE, HIGH);
  const box = drawn("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", class: "past", role: "img", "aria-label": `${t.tenant} sent ${rate(peak)} at most in the last 5 minutes`});
  for (const [x, width] of limited) box.append(drawn("rect", {x, y: 0, width, height: HIGH, class: "limited"}));
  if (guarantee !== null) box.append(drawn("line", {x1: 0, x2: WIDE, y1: guarantee, y2: guarantee, class: "guarantee"}));
  box.append(drawn("polyline", {points: line, class: "sent"}));
  return box;
}

function recentRow(item) {
  return make("li", {}, make("button", {type: "button", on: {click: () => openDetail(item.id)}},
    make("span", {class: "when"}), make("span", {class: "what"}), make("span", {class: "why"})));
}

function updateRecent(node, item) {
  const [standing] = STATES[item.state] ?? [item.state];
  const word = item.ended_at && !item.applied_at ? "no limit set" : standing;
  setText(node.querySelector(".when"), `${clock(item.updated_at)} ${item.tenant}`);
  setText(node.querySelector(".what"), item.ended_at && item.cause ? `${word} (${item.cause})` : word);
  setText(node.querySelector(".why"), `${item.port} on ${item.node}: ${item.reason}`);
}

function showRefused(alerts) {
  byId("refused-section").hidden = alerts.length === 0;
  setText(byId("refused-count"), String(alerts.length));
  const items = alerts.map((a) => ({...a, id: `${a.received_at} ${a.message} ${a.position}`}));
  keyed(byId("refused"), items, () => make("li", {},
    make("span", {class: "when"}), make("span", {class: "what"}), make("span", {class: "why"})), (node, a) => {
    setText(node.querySelector(".when"), `${clock(a.received_at)} ${a.peer}`);
    setText(node.querySelector(".what"), a.problem);
    setText(node.querySelector(".why"), a.content);
  });
}

// One action: why, before and after, timeline

async function openDetail(id) {
  state.detail = id;
  try { await refreshDetail(); } catch (error) {
    if (error instanceof Expired) showLogin("Your session has ended. Sign in again.");
    else trouble(error.message);
    return;
  }
  if (!byId("detail").open) byId("detail").showModal();
  byId("detail-title").focus();
}

async function refreshDetail() {
  const a = await call("GET", `/v1/actions/${encodeURIComponent(state.detail)}`);
  const mark = `${a.id} ${a.updated_at} ${a.timeline.length}`;
  if (byId("detail-body").dataset.mark === mark) return;
  byId("detail-body").dataset.mark = mark;
  setText(byId("detail-title"), `${a.tenant}: port ${a.port} on ${a.node}`);
  const limit = (l) => (l ? `${l.protocol} at ${rate(l.rate_bytes_per_second)}` : "none");
  const list = make("dl");
  facts(list, [
    ["State", (STATES[a.state] ?? [a.state])[0]], ["Why", a.reason], ["Level", `${a.level}, ${LEVELS[a.level] ?? ""}`],
    ["Limit before", limit(a.limit_before)], ["Limit after", limit(a.limit_after)], ["Policy", `${a.policy} (version ${a.policy_version || "none"})`],
    ["Released when", `UDP stays below ${Math.round((a.release.offered_below ?? 0) * 100)} % of the guarantee for ${span(a.release.hold_seconds ?? 0)}`],
    ["Flood returned", a.relapses ? `${a.relapses} times` : "never"],
    ...a.approvals.map((v) => [v.verdict, `by ${v.who} at ${clock(v.at)}${v.comment ? `: ${v.comment}` : ""}`]),
  ]);
  const timeline = make("ol", {class: "timeline"}, ...a.timeline.map((t) => make("li", {},
    make("time", {datetime: t.at}, clock(t.at)), make("strong", {}, t.event.replaceAll("_", " ")), ` ${describe(t.detail)}`)));
  const alerts = make("ul", {}, ...a.reasons.map((r) => make("li", {},
    make("strong", {}, r.labels.alertname ?? "alert"), ` ${r.status} since ${clock(r.starts_at)}. ${r.annotations.summary ?? ""} ${r.annotations.description ?? ""}`)));
  byId("detail-body").replaceChildren(list, make("h3", {}, "Timeline"), timeline, make("h3", {}, `Alerts (${a.reasons_total})`), alerts);
}

// Orders

function ask({title, text, go, kind, run}) {
  setText(byId("ask-title"), title);
  setText(byId("ask-text"), text);
  setText(byId("ask-go"), go);
  setText(byId("ask-error"), "");
  byId("ask-go").className = kind;
  byId("ask-comment").value = "";
  state.order = run;
  byId("ask").showModal();
  byId("ask-comment").focus();
}

async function give(event) {
  event.preventDefault();
  if (state.busy) return;
  state.busy = byId("ask-go").disabled = true;
  try {
    say(await state.order(byId("ask-comment").value.trim()));
    byId("ask").close();
    await refresh();
  } catch (error) {
    if (error instanceof Expired) showLogin("Your session has ended. Nothing was changed. Sign in again.");
    else setText(byId("ask-error"), error.message);
  } finally {
    state.busy = byId("ask-go").disabled = false;
  }
}

function decide(id, verb) {
  const all = [...(state.overview?.waiting ?? []), ...(state.overview?.limited ?? [])];
  const item = all.find((a) => a.id === id);
  if (!item) return;
  const where = `${item.tenant}, port ${item.port} on ${item.node}`;
  const limit = rate(item.limit?.rate_bytes_per_second);
  const words = {
    approve: {title: "Approve this limit?", text: `${where}: ${item.level}, ${LEVELS[item.level] ?? ""} (${limit}). The guards are checked again.`, go: "Approve", kind: "primary", done: "Approved"},
    reject: {title: "Reject this limit?", text: `${where}: no limit will be set for this alert.`, go: "Reject", kind: "danger", done: "Rejected"},
    revert: {title: "Remove this limit?", text: `${where}: the limit of ${limit} is removed and the same alerts do not set it again.`, go: "Revert", kind: "danger", done: "Revert requested"},
  }[verb];
  ask({...words, run: async (comment) => {
    await call("POST", `/v1/actions/${encodeURIComponent(id)}:${verb}`, verb === "revert" ? undefined : {comment});
    return `${words.done}: ${where}`;
  }});
}

function killSwitch() {
  const on = Boolean(state.overview?.kill_switch.on);
  const n = (state.overview?.limited.length ?? 0) + Math.max(0, state.overview?.more_limited ?? 0);
  ask({
    title: on ? "Turn the kill switch off?" : "Turn the kill switch on?",
    text: on ? "The agent may set limits again." : `${n} limits are removed from all nodes at once, and no new one is set until the switch is off again.`,
    go: on ? "Turn it off" : "Turn it on",
    kind: on ? "primary" : "danger",
    run: async (reason) => {
      await call("PUT", "/v1/killswitch", {on: !on, reason});
      return on ? "The kill switch is off" : "The kill switch is on";
    },
  });
}

function resetBreaker() {
  ask({title: "Reset the breaker?", text: "New actions start automatically again. Actions that wait for approval keep waiting.", go: "Reset", kind: "danger",
    run: async (reason) => { await call("PUT", "/v1/breaker", {tripped: false, reason}); return "The breaker is reset"; }});
}

byId("login-form").addEventListener("submit", signIn);
byId("logout").addEventListener("click", signOut);
byId("kill").addEventListener("click", killSwitch);
byId("ask-form").addEventListener("submit", give);
byId("ask-cancel").addEventListener("click", () => byId("ask").close());
byId("detail-close").addEventListener("click", () => byId("detail").close());
byId("detail").addEventListener("close", () => { state.detail = null; byId("detail-body").dataset.mark = ""; });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => { if (state.self) pulse(); }, 1000);
begin();
