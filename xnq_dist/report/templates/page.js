"use strict";
// The table and the plots of the report page. The data are columns of all communities,
// in the order of the static table (see report/page_data.py).
(async () => {
  const $ = (id) => document.getElementById(id);
  const D = JSON.parse($("data").textContent);
  const root = document.documentElement;
  $("theme").hidden = false;
  $("theme").onclick = () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  };
  if (!D.n || !D.classes.length || !("DecompressionStream" in window)) return;

  // ---- data ----------------------------------------------------------------------
  const ROWS = 25, MAX_DOTS = 5000, PLACES = 1 << 17;

  async function unpack(text) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    const stream = new Blob([bytes]).stream();
    return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).json();
  }

  const { names, notes, members, counted, labelled, note, suppressed: hidden } = await unpack(D.rows);
  D.rows = null;

  // Shares and differences are in steps of 1/10,000, and null where there is none.
  async function load(place) {
    const one = D.classes[place];
    if (one.data) Object.assign(one, await unpack(one.data), { data: null });
    return one;
  }

  const quality = (k, one) => D.qualities[one.quality[k]];
  const suppressed = (k) => hidden[k];
  const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const folded = names.map(fold);
  let nameRank = null;

  // ---- words ---------------------------------------------------------------------
  const count = (number) => number.toLocaleString("en-US");
  const percent = (code) => (code === null ? "–" : `${(code / 100).toFixed(1)} %`);
  const span = (low, high) =>
    low === null || high === null ? "–"
      : `${(low / 100).toFixed(1)} – ${(high / 100).toFixed(1)} %`;
  const points = (code) =>
    code === null ? "–" : (code > 0 ? "+" : "") + (code / 100).toFixed(1);
  const pages = (number) => `${count(number)} ${D.community[number === 1 ? 0 : 1]}`;
  function sentence(k) {
    if (suppressed(k)) return `${names[k]}: suppressed`;
    const one = D.classes[state.place];
    const ends = one.lower[k] === null ? "" : ` (${span(one.lower[k], one.upper[k])})`;
    return `${names[k]}: ${percent(one.p[k])}${ends}, ${count(members[k])} members`;
  }

  // ---- elements ------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes))
      if (name.startsWith("on")) node[name] = value;
      else if (value !== null) node.setAttribute(name, value);
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  const el = (tag, attributes = {}, ...children) =>
    fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);
  const text = (x, y, words, attributes = {}) => svg("text", { x, y, ...attributes }, words);
  const path = (kind, parts) =>
    parts.length ? svg("path", { class: kind, d: parts.join("") }) : null;

  // ---- what is shown -------------------------------------------------------------
  const state = { place: 0, words: "", on: new Set(), sort: "lower",
    falling: true, page: 0, marked: -1 };
  const FACETS = [
    ["above", "more than chance", 0], ["below", "less than chance", 0],
    ["publishable", "publishable", 1], ["caution", "caution", 1],
    ["poor", "not publishable", 1], ["suppressed", "suppressed", 1],
    ["unlabelled", "no labels", 2], ["noted", "with a note", 3],
  ].map(([id, label, group], bit) => ({ id, label, group, bit }));
  const mask = new Uint16Array(D.n);
  let every = 0;
  let order = new Int32Array(D.n), shown = [];

  function classify(one) {
    every = 0;
    for (let k = 0; k < D.n; k++) {
      const rated = one.quality[k], gone = suppressed(k);
      let bits = one.beyond[k] ? (one.effect[k] > 0 ? 1 : 2) : 0;
      if (gone || rated) bits |= 2 << (gone ? 4 : rated);
      if (!labelled[k] && !gone) bits |= 64;
      if (note[k] >= 0) bits |= 128;
      mask[k] = bits;
      every |= bits;
    }
  }

  const KEYS = {
    name: (k) => -nameRank[k],
    share: (k, one) => (one.p[k] === null ? -Infinity : one.p[k]),
    lower: (k, one) => {
      if (one.lower[k] !== null) return one.lower[k];
      // Without an interval: shrunk towards the mean, after those that have one.
      const mean = 10000 * (one.reference ?? 0), n = members[k];
      const shrunk = (n * one.p[k] + 30 * mean) / (n + 30);
      return one.p[k] === null ? -Infinity : shrunk - (D.intervals ? 20000 : 0);
    },
    effect: (k, one) => (one.effect[k] === null ? -Infinity : one.effect[k]),
    members: (k) => members[k],
    labelled: (k) => (suppressed(k) ? -Infinity : labelled[k]),
    quality: (k, one) => -(one.quality[k] || 9),
  };

  function rankNames() {
    if (nameRank) return;
    const places = Array.from(folded.keys());
    places.sort((a, b) => (folded[a] < folded[b] ? -1 : folded[a] > folded[b] ? 1 : a - b));
    nameRank = new Int32Array(D.n);
    places.forEach((k, place) => { nameRank[k] = place; });
  }

  function arrange() {
    const one = D.classes[state.place], keys = new Float64Array(D.n), sign = state.falling ? 1 : -1;
    if (state.sort === "name") rankNames();
    for (let k = 0; k < D.n; k++) order[k] = k;
    // The data are in this order already, up to the rounding of shares.
    if (state.sort === "lower" && state.falling && state.place === 0) return;
    // Numbers are sorted much faster without a comparison of our own, so that each holds
    // its key and, below, its place. Unknown values come last in both directions.
    for (let k = 0; k < D.n; k++) {
      const key = KEYS[state.sort](k, one);
      const rounded = key === -Infinity ? -16e9 : Math.round(16 * sign * key);
      keys[k] = rounded * PLACES + (PLACES - 1 - k);
    }
    keys.sort();
    for (let k = 0; k < D.n; k++) {
      const key = keys[D.n - 1 - k];
      order[k] = PLACES - 1 - (key - PLACES * Math.floor(key / PLACES));
    }
  }

  function choose() {
    const words = fold(state.words.trim()), chosen = [0, 0, 0, 0, 0, 0];
    for (const facet of FACETS) if (state.on.has(facet.id)) chosen[facet.group] |= 1 << facet.bit;
    const groups = chosen.map((bits, group) => [bits, group]).filter(([bits]) => bits);
    const counts = new Uint32Array(FACETS.length);
    shown = [];
    for (const k of order) {
      if (words && !folded[k].includes(words)) continue;
      let failed = -1, faults = 0;
      for (const [bits, group] of groups)
        if (!(mask[k] & bits)) { failed = group; faults++; }
      if (!faults) shown.push(k);
      if (faults > 1) continue;
      // A facet's number: communities that it would leave with the other groups as set.
      for (let bit = 0, bits = mask[k]; bits; bit++, bits >>= 1)
        if (bits & 1 && (!faults || FACETS[bit].group === failed)) counts[bit]++;
    }
    return counts;
  }

  // ---- the table -----------------------------------------------------------------
  const HEADS = [
    ["name", "", ""], ["share", "", "n"], ["lower", D.intervals ? `${+D.level.toFixed(1)} % interval` : "", "range"],
    ["effect", D.intervals ? "against the rest" : "", "n wide"],
    ["members", "members", "n wide"], ["labelled", "labelled", "n wide"],
    ["quality", D.intervals ? "quality" : "", ""],
  ];

  function heads() {
    const label = D.classes[state.place].label;
    return el("tr", {}, ...HEADS.map(([id, words, kind]) => {
      const what = id === "name" ? D.community[0] : id === "share" ? label : words;
      if (!what) return null;
      const sorted = state.sort === id;
      const way = sorted ? (state.falling ? "descending" : "ascending") : null;
      return el("th", { scope: "col", class: kind, "aria-sort": way },
        el("button", { type: "button", id: `sort-${id}`, onclick: () => sortBy(id) }, what,
          el("span", { "aria-hidden": "true" }, sorted ? (state.falling ? "▼" : "▲") : "")));
    }));
  }

  function bar(k, one) {
    if (one.p[k] === null) return null;
    const x = (code) => 2 + (code / 10000) * 96;
    const known = one.lower[k] !== null;
    return svg("svg", { class: "mini", viewBox: "0 0 100 14", "aria-hidden": "true" },
      svg("line", { class: "grid", x1: 2, x2: 98, y1: 7, y2: 7 }),
      one.reference === null ? null : svg("line", { class: "reference",
        x1: x(1e4 * one.reference), x2: x(1e4 * one.reference), y1: 1, y2: 13 }),
      known ? svg("line", { class: "bar", x1: x(one.lower[k]), x2: x(one.upper[k]), y1: 7, y2: 7 }) : null,
      svg("circle", { class: "dot", cx: x(one.p[k]), cy: 7, r: 3.5 }));
  }

  function row(k) {
    const one = D.classes[state.place], gone = suppressed(k);
    const remark = gone || note[k] < 0 ? "" : notes[note[k]];
    const star = one.beyond[k] ? " *" : "";
    const cells = [
      el("th", { scope: "row" },
        el("a", { href: `#community=${encodeURIComponent(names[k])}` }, names[k]),
        remark ? el("small", { class: "remark" }, remark) : null),
      el("td", { class: "n" }, gone ? "suppressed" : percent(one.p[k])),
      D.intervals ? el("td", { class: "range" }, bar(k, one),
        el("span", {}, gone ? "" : span(one.lower[k], one.upper[k]))) : null,
      D.intervals ? el("td", { class: "n wide" },
        gone ? "" : star ? el("strong", {}, points(one.effect[k]) + star) : points(one.effect[k])) : null,
      el("td", { class: "n wide" }, count(members[k])),
      el("td", { class: "n wide" }, gone ? "" : count(labelled[k])),
      D.intervals ? el("td", {}, gone ? "suppressed" : quality(k, one)) : null,
    ];
    return el("tr", { class: k === state.marked ? "marked" : null }, ...cells);
  }

  function table() {
    const pageCount = Math.max(1, Math.ceil(shown.length / ROWS));
    state.page = Math.min(state.page, pageCount - 1);
    const from = state.page * ROWS, part = shown.slice(from, from + ROWS);
    $("head").replaceChildren(heads());
    $("rows").replaceChildren(...part.map(row));
    const label = D.classes[state.place].label;
    $("status").textContent = shown.length
      ? `${pages(shown.length)}${shown.length < D.n ? ` of ${count(D.n)}` : ""}, rows ${count(from + 1)} to ${count(from + part.length)}`
      : `No ${D.community[0]} fits. Change the search or the filters.`;
    $("where").textContent = `Page ${count(state.page + 1)} of ${count(pageCount)}`;
    $("earlier").disabled = state.page === 0;
    $("later").disabled = state.page >= pageCount - 1;
    $("download").textContent = `Download ${pages(shown.length)} as CSV`;
    for (const node of document.querySelectorAll("[data-class]")) node.textContent = label;
    return part;
  }

  function facets(counts) {
    const active = document.activeElement?.id;
    $("facets").replaceChildren(...FACETS.filter(({ bit }) => every & (1 << bit)).map(({ id, label, bit }) =>
      el("button", { type: "button", id: `facet-${id}`, "aria-pressed": String(state.on.has(id)),
        onclick: () => {
          if (!state.on.delete(id)) state.on.add(id);
          state.page = 0;
          update();
        } }, label, " ", el("b", {}, count(counts[bit])))));
    if (active?.startsWith("facet-")) $(active)?.focus();
  }

  let timer = 0;
  function update(sorted = false) {
    const start = performance.now(), active = document.activeElement?.id;
    if (sorted) arrange();
    facets(choose());
    table();
    if (active?.startsWith("sort-")) $(active)?.focus();
    root.dataset.answer = (performance.now() - start).toFixed(1);
    // The table answers at once; the plots follow when typing pauses.
    clearTimeout(timer);
    timer = setTimeout(draw, 120);
  }

  function sortBy(id) {
    state.falling = state.sort === id ? !state.falling : true;
    state.sort = id;
    state.page = 0;
    update(true);
  }

  // ---- one community: #community=NAME ----------------------------------------------
  async function follow() {
    const match = /^#community=(.*)$/.exec(location.hash);
    let name = match?.[1] ?? "";
    try { name = decodeURIComponent(name); } catch { /* it is not encoded */ }
    const k = match ? names.indexOf(name) : -1;
    state.marked = k;
    $("detail").hidden = !match;
    if (!match) return table();
    $("detail-name").textContent = name;
    if (k < 0) {
      $("detail-body").replaceChildren(el("p", {}, `There is no ${D.community[0]} of this name on the page.`));
    } else {
      if (!shown.includes(k)) {
        state.words = "";
        state.on.clear();
        $("search").value = "";
        update();
      }
      state.page = Math.floor(shown.indexOf(k) / ROWS);
      $("detail-body").replaceChildren(await detail(k));
      table();
    }
    $("detail").scrollIntoView({ block: "start" });
    $("detail").focus({ preventScroll: true });
  }

  async function detail(k) {
    const about = [`${count(members[k])} members`];
    if (suppressed(k)) {
      about.push("suppressed, because it has few members");
      return el("p", {}, `${about.join("; ")}.`);
    }
    about.push(`${count(labelled[k])} labelled`);
    if (note[k] >= 0) about.push(notes[note[k]]);
    const body = [];
    for (let place = 0; place < D.classes.length; place++) {
      const one = await load(place);
      body.push([one.label, percent(one.p[k]), span(one.lower[k], one.upper[k]),
        points(one.effect[k]), one.q[k], quality(k, one)]);
    }
    return el("div", {}, el("p", {}, `${about.join("; ")}.`),
      matrix(["class", "share", "interval", "difference", "q-value", "quality"], body));
  }

  function matrix(heading, body) {
    return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": heading.join(", ") },
      el("table", {},
        el("thead", {}, el("tr", {}, ...heading.map((words, i) => el("th", { scope: "col", class: i ? "n" : null }, words)))),
        el("tbody", {}, ...body.map((cells) => el("tr", {}, ...cells.map((words, i) =>
          i ? el("td", { class: "n" }, words) : el("th", { scope: "row" }, words)))))));
  }

  // ---- download ------------------------------------------------------------------
  function download() {
    const one = D.classes[state.place];
    const cell = (value) => {
      let words = String(value);
      // A spreadsheet would run a name that begins like a formula.
      if (/^[=+@\t\r-]/.test(words) && Number.isNaN(Number(words))) words = `'${words}`;
      return /[",\n\r]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
    };
    const share = (code) => (code === null ? "" : (code / 10000).toFixed(4));
    const lines = [[D.community[0], "class", "members", "labelled", "prevalence", "lower",
      "upper", "difference", "qvalue", "quality", "note"].map(cell).join(",")];
    for (const k of shown) {
      const gone = suppressed(k);
      lines.push([names[k], one.name, members[k],
        gone ? "" : labelled[k], share(one.p[k]), share(one.lower[k]), share(one.upper[k]),
        one.effect[k] === null ? "" : (one.effect[k] / 10000).toFixed(4),
        one.q[k], gone ? "suppressed" : quality(k, one), note[k] >= 0 ? notes[note[k]] : ""]
        .map(cell).join(","));
    }
    save(`${fold(one.name).replace(/[^a-z0-9]+/g, "-") || "class"}.csv`, "text/csv",
      `\ufeff${lines.join("\r\n")}\r\n`);
  }

  function save(name, type, words) {
    const link = el("a", { download: name, href: URL.createObjectURL(new Blob([words], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // A plot as a file of its own, with the colours of the page at this moment.
  function saved(id) {
    const copy = $(id).querySelector("svg").cloneNode(true);
    copy.setAttribute("class", "plot");
    copy.setAttribute("data-theme", root.dataset.theme ?? "");
    copy.setAttribute("font-family", "sans-serif");
    copy.querySelector(".ring").remove();
    copy.prepend(svg("title", {}, $(`${id}-heading`).textContent),
      svg("style", {}, document.querySelector("style").textContent));
    save(`${id}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
  }

  // ---- plots -----------------------------------------------------------------------
  const plots = [];

  // A plot draws SVG for the width that there is, and returns where its dots are.
  function plot(id, make) {
    const host = $(id);
    if (!host) return;
    const tip = el("div", { class: "tip", hidden: "" });
    let dots = null, at = -1, sequence = null;
    const say = (i, aloud) => {
      at = i;
      const ring = host.querySelector(".ring");
      tip.hidden = i < 0;
      ring.setAttribute("visibility", i < 0 ? "hidden" : "visible");
      if (i < 0) return;
      ring.setAttribute("cx", dots.x[i]);
      ring.setAttribute("cy", dots.y[i]);
      tip.textContent = dots.say(i);
      const right = dots.x[i] > host.clientWidth / 2;
      tip.style.left = right ? "auto" : `${dots.x[i] + 8}px`;
      tip.style.right = right ? `${host.clientWidth - dots.x[i] + 8}px` : "auto";
      tip.style.top = `${Math.max(0, dots.y[i] - 30)}px`;
      if (aloud) $("live").textContent = dots.say(i);
    };
    host.onpointermove = (event) => {
      const box = host.getBoundingClientRect();
      const x = event.clientX - box.left, y = event.clientY - box.top;
      let best = -1, least = 900;
      for (let i = 0; i < dots.x.length; i++) {
        const far = (dots.x[i] - x) ** 2 + (dots.y[i] - y) ** 2;
        if (far < least) { best = i; least = far; }
      }
      say(best, false);
    };
    host.onpointerleave = host.onblur = () => say(-1, false);
    host.onclick = () => { if (at >= 0) dots.go?.(at); };
    host.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const size = dots.x.length;
      if (event.key === "Enter" && at >= 0) dots.go?.(at);
      else if (event.key === "Escape") say(-1, false);
      else if (size && (step || event.key === "Home" || event.key === "End")) {
        sequence ??= Array.from(dots.x.keys()).sort((a, b) =>
          (dots.down ? dots.y[a] - dots.y[b] : dots.x[a] - dots.x[b]) || a - b);
        let place = event.key === "Home" ? 0 : size - 1;
        if (step) place = at < 0 ? (step > 0 ? 0 : size - 1) : sequence.indexOf(at) + step;
        say(sequence[Math.min(Math.max(place, 0), size - 1)], true);
      } else return;
      event.preventDefault();
    };
    const redraw = () => {
      const width = Math.max(280, host.clientWidth);
      const { height, parts, rows, ...rest } = make(width);
      dots = rest;
      at = -1;
      sequence = null;
      tip.hidden = true;
      host.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
        ...parts.flat().filter(Boolean), svg("circle", { class: "ring", r: 7, visibility: "hidden" })), tip);
      const behind = $(`${id}-data`);
      // A table of a closed element is made when it is opened.
      const show = () => behind.open && behind.replaceChildren(behind.firstElementChild, matrix(rows.heading, rows.body()),
        el("p", {}, el("button", { type: "button", id: `${id}-save`, onclick: () => saved(id) }, "Save the plot as SVG")));
      behind.ontoggle = show;
      show();
    };
    plots.push(redraw);
    let before = 0;
    new ResizeObserver(() => {
      const shown = at;
      if (Math.abs(host.clientWidth - before) > 4) { before = host.clientWidth; redraw(); say(shown, false); }
    }).observe(host);
  }

  const draw = () => plots.forEach((redraw) => redraw());

  // Axes: grid lines and numbers at ticks, and a title below or above.
  function across(ticks, scale, top, bottom, words, title, width) {
    return [...ticks.flatMap((tick) => [
      svg("line", { class: "grid", x1: scale(tick), x2: scale(tick), y1: top, y2: bottom }),
      text(scale(tick), bottom + 16, words(tick), { "text-anchor": "middle" })]),
    text(width - 4, bottom + 34, title, { "text-anchor": "end", class: "title" })];
  }
  function upwards(ticks, scale, left, right, words, title) {
    return [...ticks.flatMap((tick) => [
      svg("line", { class: "grid", x1: left, x2: right, y1: scale(tick), y2: scale(tick) }),
      text(left - 6, scale(tick) + 4, words(tick), { "text-anchor": "end" })]),
    text(2, 12, title, { class: "title" })];
  }
  const whole = (share) => `${Math.round(100 * share)} %`;
  const QUARTERS = [0, 0.25, 0.5, 0.75, 1];

  function intervals(width) {
    const one = D.classes[state.place];
    const from = state.page * ROWS;
    const part = shown.slice(from, from + ROWS).filter((k) => one.p[k] !== null);
    const left = Math.min(240, Math.max(96, 0.34 * width)), right = width - 24;
    const step = 19, top = 8, bottom = top + step * Math.max(part.length, 1);
    const x = (share) => left + share * (right - left), letters = Math.floor((left - 8) / 7.4);
    const place = { x: [], y: [] }, parts = [
      across(QUARTERS, x, top, bottom, whole, `share of ${one.label}`, width)];
    if (one.reference !== null) parts.push(svg("line", { class: "reference",
      x1: x(one.reference), x2: x(one.reference), y1: top, y2: bottom }));
    part.forEach((k, i) => {
      const y = top + step * (i + 0.5), name = names[k];
      place.x.push(x(one.p[k] / 1e4));
      place.y.push(y);
      parts.push(text(left - 8, y + 4, name.length > letters ? `${name.slice(0, letters - 1)}…` : name,
        { "text-anchor": "end" }));
      if (one.lower[k] !== null) parts.push(svg("line", { class: "bar",
        x1: x(one.lower[k] / 1e4), x2: x(one.upper[k] / 1e4), y1: y, y2: y }));
      parts.push(svg("circle", { class: "dot", cx: x(one.p[k] / 1e4), cy: y, r: 4 }));
    });
    return { height: bottom + 40, parts, ...place, down: true,
      say: (i) => sentence(part[i]), go: (i) => open(part[i]),
      rows: { heading: [D.community[0], "share", "interval"],
        body: () => part.map((k) => [names[k], percent(one.p[k]), span(one.lower[k], one.upper[k])]) } };
  }

  const open = (k) => { location.hash = `community=${encodeURIComponent(names[k])}`; };

  function funnel(width) {
    const one = D.classes[state.place], sizes = D.sizes;
    const height = width < 560 ? 330 : 420, left = 44, right = width - 16, top = 24, bottom = height - 42;
    const low = Math.log(sizes[0]), high = Math.log(sizes[sizes.length - 1]) || 1;
    const x = (size) => left + ((Math.log(size) - low) / (high - low || 1)) * (right - left);
    const y = (share) => bottom - share * (bottom - top);
    let ticks = [];
    for (let power = 1; power <= 1e9; power *= 10) ticks.push(power, 2 * power, 5 * power);
    ticks = ticks.filter((tick) => x(tick) >= left && x(tick) <= right);
    if (ticks.length * 44 > right - left) ticks = ticks.filter((tick) => Number.isInteger(Math.log10(tick)));
    const parts = [across(ticks, x, top, bottom, count, D.sized, width),
      upwards(QUARTERS, y, left, right, whole, `share of ${one.label}`)];
    const bands = one.limits.map((half) => half.map((value) => value ?? 0));
    const clip = (share) => y(Math.min(1, Math.max(0, share)));
    const line = (half, sign) => sizes.map((size, i) =>
      `${i ? "L" : "M"}${x(size).toFixed(1)} ${clip(one.reference + sign * half[i]).toFixed(1)}`);
    if (bands.length) {
      const [inner, outer] = bands;
      const back = line(inner, -1).reverse().map((point) => `L${point.slice(1)}`);
      parts.push(path("band", [...line(inner, 1), ...back, "Z"]),
        path("limit", line(outer, 1)), path("limit", line(outer, -1)),
        svg("line", { class: "reference", x1: left, x2: right, y1: y(one.reference), y2: y(one.reference) }));
    }
    const kept = shown.filter((k) => one.p[k] !== null && counted[k]);
    const place = { x: new Float32Array(kept.length), y: new Float32Array(kept.length) };
    const groups = { plain: [], up: [], down: [] }, many = kept.length > MAX_DOTS;
    const drawn = new Set();
    kept.forEach((k, i) => {
      const px = x(counted[k]), py = y(one.p[k] / 1e4);
      place.x[i] = px;
      place.y[i] = py;
      const kind = mask[k] & 1 ? "up" : mask[k] & 2 ? "down" : "plain";
      // Marks that would cover each other are drawn once.
      const cell = `${kind}${Math.round(px / 6)},${Math.round(py / 6)}`;
      const fresh = !many || !drawn.has(cell);
      if (many && (kind === "plain" || !fresh)) return;
      drawn.add(cell);
      const at = `M${px.toFixed(1)} ${py.toFixed(1)}`;
      if (kind === "plain") groups.plain.push(`${at}h0`);
      else groups[kind].push(kind === "up" ? `${at}m-4 3h8l-4 -7z` : `${at}m-4 -3h8l-4 7z`);
    });
    if (many) parts.push(hexagons(place));
    parts.push(path("dots", groups.plain), path("beyond", groups.up), path("beyond", groups.down));
    $("hexagons").hidden = !many;
    return { height, parts, ...place, say: (i) => sentence(kept[i]), go: (i) => open(kept[i]),
      rows: { heading: [`${D.sized}, from`, "to", D.community[1], "median share", "more than chance", "less than chance"],
        body: () => bySize(kept, one) } };
  }

  function bySize(kept, one) {
    const groups = new Map();
    for (const k of kept) {
      const step = Math.floor(3 * Math.log10(counted[k]) + 1e-9);
      if (!groups.has(step)) groups.set(step, []);
      groups.get(step).push(k);
    }
    return [...groups.keys()].sort((a, b) => a - b).map((step) => {
      const group = groups.get(step), shares = group.map((k) => one.p[k]).sort((a, b) => a - b);
      return [count(Math.ceil(10 ** (step / 3))), count(Math.ceil(10 ** ((step + 1) / 3)) - 1), count(group.length),
        percent(shares[shares.length >> 1]), count(group.filter((k) => mask[k] & 1).length),
        count(group.filter((k) => mask[k] & 2).length)];
    });
  }

  function hexagons(place) {
    const r = 7, dx = r * Math.sqrt(3), dy = 1.5 * r, bins = new Map();
    for (let i = 0; i < place.x.length; i++) {
      const row = Math.round(place.y[i] / dy), shift = row & 1 ? 0.5 : 0;
      const column = Math.round(place.x[i] / dx - shift);
      const key = row * 10000 + column;
      bins.set(key, (bins.get(key) ?? 0) + 1);
    }
    const most = Math.log(Math.max(2, ...bins.values())), levels = [[], [], [], [], []];
    for (const [key, number] of bins) {
      const row = Math.floor(key / 10000), column = key % 10000;
      const cx = (column + (row & 1 ? 0.5 : 0)) * dx, cy = row * dy;
      const level = Math.min(4, Math.floor((5 * Math.log(number)) / most));
      levels[level].push(`M${(cx - dx / 2).toFixed(1)} ${(cy - r / 2).toFixed(1)}l${dx / 2} ${-r / 2}l${dx / 2} ${r / 2}v${r}l${-dx / 2} ${r / 2}l${-dx / 2} ${-r / 2}z`);
    }
    return levels.map((parts, level) => path(`hexagon level-${level}`, parts));
  }

  function histogram(width) {
    const one = D.classes[state.place], bins = new Array(40).fill(0);
    for (const k of shown) if (one.p[k] !== null) bins[Math.min(39, Math.floor(one.p[k] / 250))]++;
    const height = 260, left = 52, right = width - 24, top = 24, bottom = height - 42;
    const most = Math.max(1, ...bins), x = (share) => left + share * (right - left);
    const y = (number) => bottom - (number / most) * (bottom - top);
    const step = 10 ** Math.floor(Math.log10(most)), unit = most / step > 4 ? 2 * step : most / step > 2 ? step : step / 2;
    const ticks = [];
    for (let tick = 0; tick <= most; tick += Math.max(1, unit)) ticks.push(tick);
    const parts = [upwards(ticks, y, left, right, count, D.community[1]),
      across(QUARTERS, x, top, bottom, whole, `share of ${one.label}`, width)];
    const place = { x: [], y: [] };
    bins.forEach((number, bin) => {
      const from = x(bin / 40), to = x((bin + 1) / 40);
      place.x.push((from + to) / 2);
      place.y.push(y(number));
      if (number) parts.push(svg("rect", { class: "column", x: from + 0.5, y: y(number), width: to - from - 1, height: bottom - y(number) }));
    });
    const range = (bin) => `${(2.5 * bin).toFixed(1)} – ${(2.5 * bin + 2.5).toFixed(1)} %`;
    return { height, parts, ...place, say: (bin) => `${range(bin)}: ${pages(bins[bin])}`,
      rows: { heading: ["share", D.community[1]], body: () => bins.map((number, bin) => [range(bin), count(number)]) } };
  }

  function reliability(width) {
    const { predicted, observed, count: sizes, name } = D.reliability;
    const side = Math.min(width, 430), left = 48, right = side - 24, top = 24, bottom = side - 62;
    const x = (share) => left + share * (right - left), y = (share) => bottom - share * (bottom - top);
    const used = [...sizes.keys()].filter((i) => sizes[i] > 0);
    const parts = [upwards(QUARTERS, y, left, right, whole, `observed share of ${name}`),
      across(QUARTERS, x, top, bottom, whole, "predicted probability", side),
      svg("line", { class: "limit", x1: x(0), y1: y(0), x2: x(1), y2: y(1) })];
    const half = (i) => 1.96 * Math.sqrt((observed[i] * (1 - observed[i])) / sizes[i]);
    for (const i of used) parts.push(
      svg("line", { class: "bar", x1: x(predicted[i]), x2: x(predicted[i]),
        y1: y(Math.max(0, observed[i] - half(i))), y2: y(Math.min(1, observed[i] + half(i))) }),
      svg("circle", { class: "dot", cx: x(predicted[i]), cy: y(observed[i]), r: 4 }));
    const words = (i) => [`${(100 * predicted[i]).toFixed(1)} %`, `${(100 * observed[i]).toFixed(1)} %`, count(sizes[i])];
    return { height: side - 20, parts, x: used.map((i) => x(predicted[i])), y: used.map((i) => y(observed[i])),
      say: (n) => { const [p, o, size] = words(used[n]); return `predicted ${p}, observed ${o} of ${size} labelled ${D.node[1]}`; },
      rows: { heading: ["predicted", "observed", `labelled ${D.node[1]}`], body: () => used.map(words) } };
  }

  // ---- start -----------------------------------------------------------------------
  async function show(place) {
    const one = await load(place);
    state.place = place;
    classify(one);
    const [share, low, high] = one.all;
    for (const [id, words] of [["all-share", share === null ? "" : percent(1e4 * share)],
      ["all-span", low === null ? "" : span(1e4 * low, 1e4 * high)]])
      if ($(id)) $(id).textContent = words;
    if ($("reference") && one.reference !== null) $("reference").textContent = percent(1e4 * one.reference);
    update(true);
  }

  // Warnings are on paper, too.
  addEventListener("beforeprint", () => {
    for (const node of document.querySelectorAll("details.note")) node.open = true;
  });

  await load(0);
  const chooser = $("class");
  chooser.append(...D.classes.map((one, place) => el("option", { value: place }, one.label)));
  chooser.onchange = async () => {
    state.page = 0;
    await show(Number(chooser.value));
    $("live").textContent = `Share of ${D.classes[state.place].label}`;
  };
  $("search").oninput = () => { state.words = $("search").value; state.page = 0; update(); };
  $("earlier").onclick = () => { state.page--; update(); };
  $("later").onclick = () => { state.page++; update(); };
  $("download").onclick = download;
  $("close").onclick = () => { history.replaceState(null, "", "#communities"); follow(); $("search").focus(); };
  for (const node of document.querySelectorAll(".scripted")) node.hidden = false;
  for (const node of document.querySelectorAll(".unscripted")) node.hidden = true;
  await show(0);
  clearTimeout(timer);
  plot("intervals", intervals);
  plot("funnel", funnel);
  plot("histogram", histogram);
  if (D.reliability) plot("reliability", reliability);
  draw();
  addEventListener("hashchange", follow);
  if (location.hash.startsWith("#community=")) await follow();
  // Before somebody asks for the order of names, which takes longest.
  (window.requestIdleCallback ?? setTimeout)(rankNames);
  root.dataset.ready = "yes";
})();
