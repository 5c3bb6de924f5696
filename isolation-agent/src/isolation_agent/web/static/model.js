// Words and numbers: nothing here touches the page.

export function rate(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  const bits = bytes * 8;
  const units = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]];
  const [factor, unit] = units.find(([f]) => bits >= f) ?? [1, "bit/s"];
  const value = bits / factor;
  return `${value >= 100 || factor === 1 ? Math.round(value) : value.toFixed(1)} ${unit}`;
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export const STATES = {
  received: ["not decided yet", "calm"], suppressed: ["suppressed", "calm"], observing: ["observed only", "calm"],
  pending_approval: ["waits for approval", "warn"], approved: ["approved", "warn"], applying: ["being set", "warn"],
  active: ["in force", ""], stepped_up: ["in force, stepped up", ""], stepped_down: ["relaxed, on trial", "good"],
  releasing: ["being removed", "good"], reverted: ["removed", "good"], expired: ["expired", "good"],
  failed: ["failed", ""], orphaned: ["unknown origin", "warn"],
};

export const LEVELS = {
  L0: "observe", L1: "shape the port to the guarantee", L2: "cap all but TCP at the guarantee",
  L3: "cap packets and new flows too", L4: "drop all but TCP",
};

export function clock(text) {
  return `${new Date(text).toISOString().slice(11, 19)} UTC`; // as on the pages beside this one
}

// One line of a timeline's detail, without what is of no use to a person on call.
export function describe(detail) {
  const parts = [];
  for (const [key, value] of Object.entries(detail ?? {})) {
    if (value === null || value === "" || key === "limit" || key === "fingerprint") continue;
    const name = key.replaceAll("_bytes_per_second", "").replaceAll("_", " ");
    const shown = key.endsWith("bytes_per_second") ? rate(value) : typeof value === "object" ? JSON.stringify(value) : String(value);
    parts.push(key === "reason" ? shown : `${name}: ${shown}`);
  }
  return parts.join(" · ");
}

// Where the lines of a tenant's picture are, in its own units: what was sent, the guarantee (null where nothing was bought),
// and when it was limited, as [x, width]. The newest is at the right margin.
export function sketch(seen, guarantee, now, kept, wide, high) {
  const peak = Math.max(0, ...seen.map((p) => p.sent));
  const most = Math.max(1, peak, guarantee ?? 0) * 1.1;
  const x = (at) => Math.round(10 * wide * Math.max(0, 1 - (now - at) / kept)) / 10;
  const y = (value) => Math.round(10 * high * (1 - value / most)) / 10;
  const limited = [];
  seen.forEach((p, i) => {
    if (!p.limited) return;
    const end = x(seen[i + 1]?.at ?? now);
    limited.push([x(p.at), Math.max(1, end - x(p.at))]);
  });
  return {line: seen.map((p) => `${x(p.at)},${y(p.sent)}`).join(" "), guarantee: guarantee > 0 ? y(guarantee) : null, limited, peak};
}
