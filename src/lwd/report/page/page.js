"use strict";
(() => {
const story = JSON.parse(document.getElementById("story").textContent);
const { el, picture, known, short, four, clock, range, nearest, padded, styleOf, QUIET, drawings, plot, UNIT, squareHeight, chart, legend, pairs, caption, slider, choice, metricsTable, plane } = lwdDraw;
const page = document.getElementById("page");
const { groups, lead_group: lead } = story;
const follower = groups.find(name => name !== lead);

function section(title, ...children) {
  page.append(el("section", {}, el("h2", {}, title), ...children));
}
const groupStyle = name => name === lead ? { stroke: "var(--accent)", dash: "", width: 2.4 } : { stroke: "var(--ink)", dash: "6 4", width: 2 };
/* Sections, in the order of the page */
function opening() {
  document.title = story.title;
  page.replaceChildren(el("header", {}, el("h1", {}, story.title), el("p", { class: "lead" }, story.lead)));
  page.append(el("section", { "aria-label": "Findings" }, el("ol", { class: "findings" }, story.findings.map(text => el("li", {}, text)))));
}

const schedules = [...story.curves.schedules].sort((a, b) => b.learned - a.learned);
schedules.forEach(({ name }) => styleOf(name));
const backwards = [...schedules].reverse();  /* the learned curve is drawn last, on top */

function curves() {
  const { tau } = story.curves;
  const clocks = groups.map(group => plot(width => {
    const c = chart(width, squareHeight(width), `${group} time over \u03c4, one line for each schedule`, { ...UNIT, label: "\u03c4" }, { ...UNIT, label: `${group} time` });
    for (const s of backwards) c.line(tau, s.times[group], styleOf(s.name));
    return c.svg;
  }));
  const path = plot(width => {
    const c = chart(width, squareHeight(width), `${follower} time against ${lead} time, one line for each schedule`, { ...UNIT, label: `${lead} time` }, { ...UNIT, label: `${follower} time` });
    for (const s of backwards) c.line(s.times[lead], s.times[follower], styleOf(s.name));
    return c.svg;
  });
  const titles = [...groups.map(group => `The ${group} clock`), "One clock against the other"];
  const boxes = [...clocks, path].map(({ box }, i) => el("div", {}, el("h3", {}, titles[i]), box));
  const entries = schedules.map(({ name }) => ({ text: name, style: styleOf(name) }));
  section("The learned curve and the baselines", el("figure", { id: "curves" }, legend(entries), el("div", { class: "plots three" }, boxes), caption(story.curves.caption)));
}

/* The lambda path: `current` is the point of the sliders; the watchers are called when it changes. */
let current = null;
const watchers = [];
function moveLambda(i) {
  current = story.path.points[i];
  for (const watcher of watchers) watcher(i);
}
function lambdaSlider(id) {
  const { points } = story.path;
  const control = slider(id, "\u03bb", points.length, i => ({
    text: short(points[i].lambda),
    spoken: `${short(points[i].lambda)}, objective ${four(points[i].objective)}, kinetic energy ${four(points[i].energy)}. ${lambdaStatus(points[i])}`,
  }), moveLambda);
  watchers.push(control.show);
  return el("div", { class: "controls stick" }, control.box);
}
function lambdaStatus(point) {
  const { points, weakest, chosen } = story.path, places = points.map(p => p.lambda);
  if (point.collapsed) return "Collapsed: one group waits for the other as long as its family of curves allows.";
  if (known(chosen) && points[nearest(places, chosen)] === point) return "This is the chosen \u03bb.";
  if (known(weakest) && points[nearest(places, weakest)] === point) return "This is the weakest stable \u03bb.";
  return "Stable.";
}

const TERMS = [
  { key: "floor", text: "best monotone path", style: { stroke: "var(--s4)", dash: "2 3", width: 2 } },
  { key: "flow", text: "flow loss", style: { stroke: "var(--s1)", dash: "7 4", width: 1.8 } },
  { key: "objective", text: "objective", style: { stroke: "var(--s0)", dash: "", width: 2.2 } },
];
const SINGLE = { stroke: "var(--s0)", dash: "", width: 2.2 };
const MARKS = { weakest: { stroke: "var(--muted)", dash: "3 2", width: 1.4 }, chosen: { stroke: "var(--muted)", dash: "", width: 1.4 } };

/* Strong lambdas add kinetic energy that would squeeze the flow losses into a line: leave out what is far above them. */
function ceiling(flows) {
  if (!flows.length) return Infinity;
  const [low, high] = [Math.min(...flows), Math.max(...flows)];
  return high + 2 * Math.max(high - low, 0.005 * Math.abs(high));
}

function lambdaCharts() {
  const { points, threshold, weakest, chosen } = story.path;
  const positive = points.map(p => p.lambda).filter(v => v > 0);
  const least = positive.length ? Math.min(...positive) : 1;
  const place = v => v > 0 ? v : least / 2;  /* lambda = 0 is drawn at the left edge of the log axis */
  const axis = { domain: padded(points.map(p => place(p.lambda)), true), log: true, label: "\u03bb" };
  const predicted = points.some(p => known(p.error));
  const over = (title, lines) => {
    const shown = lines.filter(line => points.some(p => known(p[line.key])));
    const top = ceiling(shown.some(line => line.key === "flow") ? points.map(p => p.flow).filter(known) : []);
    const inside = v => known(v) && v <= top;
    const values = shown.flatMap(line => points.map(p => p[line.key]).filter(inside));
    return [title, plot(width => {
      const c = chart(width, Math.max(170, Math.round(width * (predicted ? 0.36 : 0.5)) + 20), `${title} over \u03bb`, axis, { domain: padded(values), label: "", left: 46 });
      if (known(threshold)) c.until(place(threshold));
      if (known(weakest)) c.upright(place(weakest), MARKS.weakest);
      if (known(chosen)) c.upright(place(chosen), MARKS.chosen);
      for (const { key, style } of shown) {
        const there = points.filter(p => inside(p[key]));
        c.line(there.map(p => place(p.lambda)), there.map(p => p[key]), style);
        if (key === "floor") continue;
        for (const p of there) if (p.collapsed) c.dot(place(p.lambda), p[key], style.stroke, true, 3);
        if (inside(current[key])) c.dot(place(current.lambda), current[key], style.stroke, false, 4.5);
      }
      return c.svg;
    })];
  };
  const charts = [over("Objective and flow loss", TERMS), over("Kinetic energy", [{ key: "energy", style: SINGLE }])];
  return predicted ? [...charts, over("Predicted error of the sampler", [{ key: "error", style: SINGLE }])] : charts;
}

function lambda() {
  const { points, weakest, chosen, threshold } = story.path;
  const path = plot(width => {
    const c = chart(width, squareHeight(width), `${follower} time against ${lead} time for \u03bb = ${short(current.lambda)}; the curves of other \u03bb are faint`, { ...UNIT, label: `${lead} time` }, { ...UNIT, label: `${follower} time` });
    for (const p of points) if (p !== current) c.line(p.times[lead], p.times[follower], {}, "faint");
    c.line(current.times[lead], current.times[follower], { stroke: "var(--accent)", width: 2.8, dash: current.collapsed ? "3 3" : "" }, "now");
    return c.svg;
  });
  const rows = [["objective", "objective", p => p.objective], ["flow", "flow loss", p => p.flow], ["energy", "kinetic energy", p => p.energy]];
  if (points.some(p => known(p.floor))) rows.push(["above", "above the best monotone path", p => known(p.floor) ? p.objective - p.floor : null, short]);
  if (points.some(p => known(p.error))) rows.push(["error", "predicted error", p => p.error]);
  const cells = rows.map(([key]) => el("dd", { "data-value": key }));
  const status = el("p", { class: "status", "data-value": "status" });
  const entries = TERMS.filter(t => points.some(p => known(p[t.key]))).reverse().map(({ text, style }) => ({ text, style }));
  if (known(weakest)) entries.push({ text: `weakest stable \u03bb, ${short(weakest)}`, style: MARKS.weakest, upright: true });
  if (known(chosen)) entries.push({ text: `chosen \u03bb, ${short(chosen)}`, style: MARKS.chosen, upright: true });
  if (known(threshold)) entries.push({ text: `collapsed, below ${short(threshold)}`, hatch: true });
  const charts = lambdaCharts();
  const boxed = ([title, { box }]) => el("div", {}, el("h3", {}, title), box);
  const stats = el("dl", { class: "stats" }, rows.map(([, title], r) => el("div", {}, el("dt", {}, title), cells[r])));
  section("The effect of \u03bb", el("figure", { id: "path" }, lambdaSlider("lambda"), legend(entries),
    el("div", { class: "plots" }, el("div", {}, boxed(["The best curve for this \u03bb", path]), stats, status), el("div", { class: "stack" }, charts.map(boxed))), caption(story.path.caption)));
  watchers.push(path.draw, ...charts.map(([, { draw }]) => draw), () => {
    rows.forEach(([, , value, format = four], r) => { cells[r].textContent = format(value(current)); });
    status.textContent = lambdaStatus(current);
    status.classList.toggle("warn", current.collapsed);
  });
}

function surfacePanel({ title, values }) {
  const { axis, x, y } = story.surfaces;
  const shown = () => [
    ...backwards.map(one => ({ times: one.times, style: { ...styleOf(one.name), width: 1.6 } })),
    ...(current ? [{ times: current.times, style: { stroke: "var(--now)", dash: "", width: 2.6 }, name: "now" }] : []),
  ];
  const { element, draw } = plane({ axis, x, y, title, values: () => values, curves: shown });
  watchers.push(draw);
  return element;
}
function surfaces() {
  const entries = schedules.map(({ name }) => ({ text: name, style: { ...styleOf(name), width: 1.6 } }));
  if (story.path) entries.push({ text: "the curve of this \u03bb", style: { stroke: "var(--now)", dash: "", width: 3 } });
  section("Loss surfaces", el("figure", { id: "surfaces" }, story.path ? lambdaSlider("lambda-again") : null, legend(entries, "over-map"),
    el("div", { class: "plots maps" }, story.surfaces.panels.map(surfacePanel)), caption(story.surfaces.caption)));
}

function trajectory() {
  const { tau } = story.trajectory, ranks = new Map(schedules.map(({ name }, i) => [name, i]));
  const runs = [...story.trajectory.runs].sort((a, b) => (ranks.get(a.name) ?? 99) - (ranks.get(b.name) ?? 99));
  const unique = key => [...new Set(runs.map(run => run[key]))];
  let run = runs[0], at = nearest(tau, 0.5), timer = null, untouched = true;
  const pictures = groups.map(group => picture(run[group][at], ""));
  const meters = groups.map(group => ({ value: el("b", { "data-clock": group }), fill: el("i", { style: `background: ${groupStyle(group).stroke}` }) }));
  const small = plot(width => {
    const c = chart(width, Math.round(width * 0.62) + 20, `The clocks of ${run.name} over \u03c4`, { ...UNIT, ticks: [0, 0.5, 1], label: "\u03c4" }, { ...UNIT, ticks: [0, 0.5, 1], label: "" });
    c.upright(tau[at], QUIET, "at");
    for (const group of [lead, follower]) {
      c.line(tau, run.times[group], groupStyle(group));
      c.dot(tau[at], run.times[group][at], groupStyle(group).stroke);
    }
    return c.svg;
  });
  const move = to => {
    at = to;
    groups.forEach((group, g) => {
      pictures[g].src = run[group][at];
      pictures[g].alt = `${group} state of ${run.name}, ${run.label}, at \u03c4 ${clock(tau[at])}`;
      meters[g].value.textContent = clock(run.times[group][at]);
      meters[g].fill.style.width = `${100 * run.times[group][at]}%`;
    });
    small.draw();
    control.show(at);
  };
  const button = el("button", { type: "button", id: "play" }, "Play");
  const stop = () => { clearInterval(timer); timer = null; untouched = false; button.textContent = "Play"; };
  const control = slider("tau", "\u03c4", tau.length, i => ({
    text: clock(tau[i]),
    spoken: `${clock(tau[i])}: ${groups.map(group => `${group} time ${clock(run.times[group][i])}`).join(", ")}`,
  }), i => { stop(); move(i); });
  button.addEventListener("click", () => {
    if (timer !== null) { stop(); return; }
    if (untouched || at === tau.length - 1) move(0);
    button.textContent = "Pause";
    const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : Math.max(80, 5000 / tau.length);
    timer = setInterval(() => { if (at < tau.length - 1) move(at + 1); if (at === tau.length - 1) stop(); }, pause);
  });
  const choose = (key, value) => {
    const wanted = { name: run.name, label: run.label, [key]: value };
    run = runs.find(r => r.name === wanted.name && r.label === wanted.label) || runs.find(r => r[key] === value);
    move(at);
  };
  const names = choice("run", "Schedule", unique("name"), value => choose("name", value));
  const labels = choice("label", "Sample", unique("label"), value => choose("label", value));
  const frames = groups.map((group, g) => el("div", { class: "frame", "data-picture": group }, el("h3", {}, group === "texture" ? "texture, decoded" : `${group}, as colours`), pictures[g]));
  const clocks = groups.map((group, g) => el("div", { class: "clock" }, el("div", {}, el("span", {}, `${group} time`), meters[g].value), el("div", { class: "track" }, meters[g].fill)));
  const lines = groups.map(group => ({ text: group, style: groupStyle(group) }));
  section("From noise to data on two clocks", el("figure", { id: "trajectory" }, el("div", { class: "controls" }, names, labels), el("div", { class: "controls" }, button, control.box),
    el("div", { class: "viewer" }, frames, el("div", { class: "clocks" }, clocks, small.box, legend(lines))), caption(story.trajectory.caption)));
  return () => move(at);
}

function grids() {
  const { names, items } = story.grids, box = el("div", { class: "samples" });
  const show = variant => box.replaceChildren(...names.flatMap(name => items.filter(item => item.name === name && item.variant === variant)
    .map(item => el("div", { "data-grid": item.name }, el("h3", {}, item.name), picture(item.image, item.alt)))));
  const variants = [...new Set(items.map(item => item.variant))];
  const toggle = choice("variant", "Sampling", variants, show);
  if (variants.length) show(variants[0]);
  section("Samples", el("figure", { id: "grids" }, toggle ? el("div", { class: "controls" }, toggle) : null, box, caption(story.grids.caption)));
}

function table() {
  const { element, helps } = metricsTable(story.table, "schedule");
  section("Metrics", el("figure", { id: "table" }, element, caption(story.table.caption), pairs(helps, "small")));
}

function losses() {
  const { runs, y } = story.losses, values = runs.flatMap(run => run.value), [low, high] = range(values);
  const log = low > 0 && high / low > 2;
  const { box } = plot(width => {
    const [first, last] = range(runs.flatMap(run => run.step)), across = { domain: [first, Math.max(last, first + 1)], label: "step" };
    const c = chart(width, Math.round(Math.min(320, width * 0.8)), `${y} over training steps, one line for each run`, across, { domain: padded(values, log), log, label: log ? `${y}, log scale` : y });
    for (const run of [...runs].reverse()) c.line(run.step, run.value, { ...styleOf(run.name), width: 1.6 });
    return c.svg;
  });
  const entries = runs.map(({ name }) => ({ text: name, style: styleOf(name) }));
  section("Training", el("figure", { id: "losses" }, legend(entries), el("div", { class: "plots one" }, box), caption(story.losses.caption)));
}

function ending() {
  if (story.encoders.length) section("The encoders", pairs(story.encoders.map(({ name, text }) => [name, text]), ""));
  if (story.commands.length) section("Try next", el("ul", { class: "commands" }, story.commands.map(({ command, text }) => el("li", {}, el("code", {}, command), el("p", {}, text)))));
  section("About this run", pairs(Object.entries(story.about), "small"));
}

opening();
curves();
if (story.path) {
  const { points, chosen, weakest } = story.path, wanted = known(chosen) ? chosen : weakest;
  const start = known(wanted) ? nearest(points.map(p => p.lambda), wanted) : points.length >> 1;
  current = points[start];
  lambda();
  if (story.surfaces) surfaces();
  moveLambda(start);
} else if (story.surfaces) surfaces();
if (story.trajectory) trajectory()();
if (story.grids) grids();
table();
if (story.losses) losses();
ending();

let drawnAt = 0;
new ResizeObserver(() => {
  if (page.clientWidth === drawnAt) return;
  drawnAt = page.clientWidth;
  for (const draw of drawings) draw();
}).observe(page);
})();
