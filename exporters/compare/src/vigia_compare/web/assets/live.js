// Keeps a page up to date: asks for it again, and puts in place the parts that differ. Nothing is moved that
// somebody has the keyboard in, or is reading unfolded.
const EVERY = 1000 * Number(document.body.dataset.every);
const pulse = document.getElementById("pulse");
const policy = globalThis.trustedTypes?.createPolicy("vigia", {createHTML: (text) => text}) ?? {createHTML: (text) => text};
let failures = 0;
let seen = Date.now();

function busy(part) {
  return part.contains(document.activeElement) || part.querySelector("details[open]") !== null;
}

function replace(fresh) {
  const wanted = [...fresh.querySelectorAll("[data-live]")];
  const present = [...document.querySelectorAll("[data-live]")];
  if (wanted.map((p) => p.id).join() !== present.map((p) => p.id).join()) {
    // Other parts than before: the whole of the page, unless somebody is in it.
    const main = document.querySelector("main");
    if (!main.contains(document.activeElement) || document.activeElement === main) {
      main.replaceWith(document.adoptNode(fresh.querySelector("main")));
      document.getElementById("strip").replaceWith(document.adoptNode(fresh.getElementById("strip")));
    }
    return;
  }
  present.forEach((part, i) => {
    if (part.outerHTML === wanted[i].outerHTML || busy(part)) return;
    const scrolled = part.querySelector(".wide")?.scrollLeft ?? 0;
    const next = document.adoptNode(wanted[i]);
    part.replaceWith(next);
    if (scrolled) next.querySelector(".wide").scrollLeft = scrolled;
  });
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, {headers: {Accept: "text/html"}, credentials: "same-origin", redirect: "error"});
    if (!answer.ok) throw new Error(String(answer.status));
    replace(new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html"));
    failures = 0;
    seen = Date.now();
  } catch {
    failures += 1;
  }
  say();
}

function say() {
  const text = failures ? `no answer for ${Math.round((Date.now() - seen) / 1000)} s` : "live";
  if (pulse.textContent !== text) pulse.textContent = text;
  pulse.className = failures ? "pulse stale" : "pulse live";
}

if (EVERY > 0) {
  setInterval(refresh, EVERY);
  document.addEventListener("visibilitychange", refresh);
  say();
}
