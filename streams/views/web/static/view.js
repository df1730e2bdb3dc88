"use strict";
// Pages work without this. It adds: live pages, keys, the theme, and words beside the pointer on the braid.
(() => {
  const root = document.documentElement;
  const kept = (name, value) => {
    try { return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value); } catch { return null; }
  };

  // -- theme
  const theme = () => root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const turn = () => { root.dataset.theme = theme() === "dark" ? "light" : "dark"; kept("braid-theme", root.dataset.theme); };
  if (["dark", "light"].includes(kept("braid-theme"))) root.dataset.theme = kept("braid-theme");
  const button = document.getElementById("theme");
  if (button) { button.hidden = false; button.addEventListener("click", turn); }

  // -- the braid: the nearest lane and turn
  const near = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 14;
    for (const lane of svg.querySelectorAll(".lane")) {
      const far = Math.abs(Number(lane.dataset.y) - y);
      if (far < least) { least = far; best = lane; }
    }
    const places = svg.dataset.places.split(" ").map(Number);
    if (!best || x > places[places.length - 1] + 8 || x < places[0] - 12) return null;
    const turns = best.dataset.turns ? best.dataset.turns.split("|") : [];
    let at = 0;
    places.forEach((place, number) => { if (Math.abs(place - x) < Math.abs(places[at] - x)) at = number; });
    if (at >= turns.length) return null;
    return { lane: best, turn: at, told: `branch ${best.dataset.branch}, turn ${at}: ${turns[at]}`, x, y };
  };
  const tip = document.createElement("div");
  tip.className = "tip";

  // -- the braid: the lines of some branches stand out, from the fork point to their ends
  const trace = (svg, of) => {
    svg.classList.toggle("tracing", of.length > 0);
    for (const line of svg.querySelectorAll(".line")) {
      const members = line.dataset.of.split(" ");
      line.classList.toggle("lit", of.some((branch) => members.includes(branch)));
    }
    for (const lane of svg.querySelectorAll(".lane")) lane.classList.toggle("lit", of.includes(lane.dataset.branch));
  };
  const turnsOf = (svg, branch) => {
    const lane = [...svg.querySelectorAll(".lane")].find((each) => each.dataset.branch === branch);
    return lane && (lane.dataset.turns ? lane.dataset.turns.split("|").length : 0);
  };
  const parting = (svg, a, b) => {
    const turns = [turnsOf(svg, a), turnsOf(svg, b)];
    if (a === b || turns[0] === undefined || turns[1] === undefined) return null;
    const both = [...svg.querySelectorAll(".line")].filter((line) => {
      const members = line.dataset.of.split(" ");
      return members.includes(a) && members.includes(b);
    });
    const end = Math.max(0, ...both.map((line) => Number(line.dataset.end)));
    return { end, same: end >= turns[0] && end >= turns[1] };
  };
  const compared = (svg) => {
    const form = document.querySelector("form.compare"), said = document.getElementById("apart");
    if (!form || !said) return [];
    const [a, b] = ["a", "b"].map((name) => form.elements[name].value.trim());
    const found = a && b ? parting(svg, a, b) : null;
    said.textContent = !found ? "" : found.same ? "the same to the end" : found.end ? `part at turn ${found.end}` : "part at once";
    return [a, b].filter((each) => each && turnsOf(svg, each) !== undefined);
  };

  const draw = () => {
    for (const svg of document.querySelectorAll("svg.braid")) {
      const around = svg.parentElement;
      const rest = () => { tip.remove(); trace(svg, compared(svg)); };
      svg.addEventListener("mousemove", (event) => {
        const found = near(svg, event), over = event.target.closest(".lane");
        const branch = found ? found.lane.dataset.branch : over && over.dataset.branch;
        const kept = compared(svg);
        trace(svg, branch ? [branch, ...(kept.length === 1 ? kept : [])] : kept);
        if (!found) { tip.remove(); svg.style.setProperty("cursor", "default"); return; }
        tip.textContent = found.told;
        if (tip.parentElement !== around) around.append(tip);
        const left = Math.min(found.x + 14, around.scrollLeft + around.clientWidth - tip.offsetWidth - 6);
        tip.style.setProperty("left", `${Math.max(4, left)}px`);
        tip.style.setProperty("top", `${Number(found.lane.dataset.y) + 12}px`);
        svg.style.setProperty("cursor", found.lane.dataset.href ? "pointer" : "default");
      });
      svg.addEventListener("mouseleave", rest);
      svg.addEventListener("focusin", (event) => {
        const lane = event.target.closest(".lane");
        if (lane) trace(svg, [lane.dataset.branch]);
      });
      svg.addEventListener("focusout", rest);
      svg.addEventListener("click", (event) => {
        if (event.target.closest("a")) return;
        const found = near(svg, event), href = found && found.lane.dataset.href;
        if (!href) return;
        if (href.startsWith("#")) location.hash = `${href}-turn-${found.turn}`;
        else location.href = `${href}${found.turn >= 40 ? `?first=${Math.floor(found.turn / 40) * 40}` : ""}#turn-${found.turn}`;
      });
      const form = document.querySelector("form.compare");
      if (form) form.addEventListener("input", rest);
      rest();
    }
  };
  draw();

  // -- keys
  const rows = () => [...document.querySelectorAll("main .go, main .turn .number, main .row h3")];
  let at = -1;
  const go = (step) => {
    const all = rows();
    if (!all.length) return;
    at = Math.max(0, Math.min(all.length - 1, at + step));
    document.querySelectorAll("tr.here").forEach((each) => each.classList.remove("here"));
    const chosen = all[at];
    if (!chosen.matches("a")) chosen.tabIndex = -1;
    chosen.focus();
    const row = chosen.closest("tr");
    if (row) row.classList.add("here");
    chosen.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const search = document.getElementById("q");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
    else if (event.key === "j") go(1);
    else if (event.key === "k") go(-1);
    else if (event.key === "t") turn();
    else if (event.key === "u") {
      const up = document.querySelectorAll(".crumbs a");
      if (up.length) up[up.length - 1].click();
    }
  });

  // -- live: the page is fetched again when the server says that it changed
  const main = document.querySelector("main[data-live]");
  if (!main || !("EventSource" in window) || !location.protocol.startsWith("http")) return;
  const sign = document.getElementById("live");
  let waiting = null, last = 0, asked = false;
  const renew = async () => {
    waiting = null;
    if (document.hidden) { asked = true; return; }
    last = Date.now();
    const now = document.querySelector("main");
    const answer = await fetch(location.href, { headers: { "If-None-Match": `W/"${now.dataset.state}"` }, cache: "no-store" });
    if (answer.status !== 200) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (!next || next.dataset.state === now.dataset.state) return;
    const open = [...now.querySelectorAll("details")].map((each) => each.open);
    const focus = document.activeElement && document.activeElement.closest("main") ? document.activeElement : null;
    const place = focus && (focus.id ? `#${CSS.escape(focus.id)}` : focus.getAttribute("href") ? `a[href="${CSS.escape(focus.getAttribute("href"))}"]` : null);
    const typed = focus && focus.matches("input") ? [focus.value, focus.selectionStart] : null;
    const given = [...now.querySelectorAll("input")].map((each) => [each.name, each.value]);
    const scrolled = [...now.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    now.replaceWith(next);
    for (const [name, value] of given) {
      const same = [...next.querySelectorAll("input")].find((each) => each.name === name);
      if (same) same.value = value;
    }
    next.querySelectorAll("details").forEach((each, number) => { if (open[number]) each.open = true; });
    next.querySelectorAll(".scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
    const again = place && next.querySelector(place);
    if (again) { again.focus({ preventScroll: true }); if (typed) { again.value = typed[0]; again.setSelectionRange(typed[1], typed[1]); } }
    draw();
  };
  const soon = () => { if (!waiting) waiting = setTimeout(() => renew().catch(() => {}), Math.max(100, 500 - (Date.now() - last))); };
  const live = main.dataset.live;
  const source = new EventSource(`/live${live ? `?rollout=${encodeURIComponent(live)}` : ""}`);
  source.addEventListener("change", soon);
  source.addEventListener("open", () => { if (sign) sign.hidden = false; soon(); });
  source.addEventListener("error", () => { if (sign) sign.hidden = true; });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && asked) { asked = false; soon(); } });
})();
