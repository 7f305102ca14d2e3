"use strict";
(() => {
const story = JSON.parse(document.getElementById("story").textContent);
const SVG = document.querySelector("svg.defs").namespaceURI;
const page = document.getElementById("page");
const { groups, lead_group: lead } = story;
const follower = groups.find(name => name !== lead);

/* Elements. Strings become only text nodes or attributes: nothing in the story is parsed as markup. */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter(child => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function section(title, ...children) {
  page.append(el("section", {}, el("h2", {}, title), ...children));
}
const picture = (uri, alt) => el("img", { src: uri.startsWith("data:image/") ? uri : "data:,", alt });

/* Numbers */
const known = value => typeof value === "number";
const minus = text => text.replace("-", "\u2212");
const short = value => minus(known(value) ? String(Number(value.toPrecision(3))) : "\u2013");
const four = value => minus(known(value) ? (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toPrecision(4)) : "\u2013");
const clock = value => value.toFixed(2);
const range = values => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
const nearest = (values, wanted) => values.reduce((best, v, i) => Math.abs(v - wanted) < Math.abs(values[best] - wanted) ? i : best, 0);

function ticks([low, high], log) {
  const found = [], decades = log ? Math.log10(high / low) : 0;
  if (decades > 0.8) {
    const steps = decades > 1.7 ? [1] : [1, 2, 5];
    const every = Math.max(1, Math.ceil(decades / 4));
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const s of steps) if (e % every === 0 || steps.length > 1) found.push(Number((s * 10 ** e).toPrecision(3)));
    return found.filter(v => v >= low * 0.999 && v <= high * 1.001);
  }
  const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * ([1, 2, 2.5, 5].find(s => s * unit >= raw) || 10);
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(6)));
  return found;
}
function padded(values, log) {
  const [low, high] = range(values);
  if (log) return [low / 1.06, high * 1.06];
  const air = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - air, high + air];
}
const tickText = value => minus(Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential().replace("e+", "e") : String(value));

/* Each name has one style on the page, with its own colour and dash. Learned schedules come first. */
const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "14 4"];
const styles = new Map();
function styleOf(name) {
  if (!styles.has(name)) {
    const slot = styles.size % DASHES.length;
    styles.set(name, { stroke: `var(--s${slot})`, dash: DASHES[slot], width: slot ? 1.8 : 2.6 });
  }
  return styles.get(name);
}
const groupStyle = name => name === lead ? { stroke: "var(--accent)", dash: "", width: 2.4 } : { stroke: "var(--ink)", dash: "6 4", width: 2 };
const QUIET = { stroke: "var(--muted)", dash: "2 3", width: 1.3 };

/* Charts are drawn at the width of their box, so that text has the same size on every screen. */
const drawings = [];
function plot(make, extra) {
  const box = el("div", { class: "plot" }, extra);
  const draw = () => {
    const svg = make(Math.max(200, Math.round(box.clientWidth)), box);
    const old = box.querySelector("svg");
    if (old) old.replaceWith(svg); else box.append(svg);
  };
  drawings.push(draw);
  return { box, draw };
}

const EDGE = { left: 38, right: 12, top: 24, bottom: 38 };
const UNIT = { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1] };
const squareHeight = width => width - EDGE.left - EDGE.right + EDGE.top + EDGE.bottom;

function chart(width, height, label, x, y) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const scale = ({ domain: [a, b], log }, from, to) => log
    ? v => from + (to - from) * Math.log(v / a) / Math.log(b / a)
    : v => from + (to - from) * (v - a) / (b - a);
  const [across, up] = [x, y].map(({ domain, log, ticks: wanted }) => (wanted || ticks(domain, log)).map(v => [v, tickText(v)]));
  const letters = count => 7.2 * count;  /* approximate width of digits at 12 px */
  const left = Math.max(y.left || EDGE.left, ...up.map(([, text]) => letters(text.length) + 10));
  const right = width - EDGE.right, top = y.label ? EDGE.top : 10, bottom = height - EDGE.bottom;
  const X = scale(x, left, right), Y = scale(y, bottom, top);
  const draw = (tag, attributes, ...children) => svg.appendChild(shape(tag, attributes, ...children));
  const at = value => value.toFixed(2);
  for (const [v, text] of across) {
    draw("line", { class: "grid", x1: at(X(v)), x2: at(X(v)), y1: top, y2: bottom });
    draw("text", { x: at(Math.min(X(v), width - letters(text.length) / 2)), y: bottom + 16, "text-anchor": "middle" }, text);
  }
  for (const [v, text] of up) {
    draw("line", { class: "grid", x1: left, x2: right, y1: at(Y(v)), y2: at(Y(v)) });
    draw("text", { x: left - 6, y: at(Y(v) + 4), "text-anchor": "end" }, text);
  }
  draw("text", { x: right, y: height - 5, "text-anchor": "end" }, x.label);
  draw("text", { x: 0, y: 12 }, y.label);
  return {
    svg,
    line(xs, ys, style, name = "") {
      const d = xs.map((v, i) => `${i ? "L" : "M"}${at(X(v))} ${at(Y(ys[i]))}`).join("");
      const drawn = { class: `line ${name}`, d, "stroke-dasharray": style.dash || null };
      if (style.stroke) drawn.style = `stroke: ${style.stroke}; stroke-width: ${style.width}`;
      draw("path", drawn);
    },
    upright(v, style, name = "") {
      const look = `stroke: ${style.stroke}; stroke-width: ${style.width}`;
      draw("line", { class: name, x1: at(X(v)), x2: at(X(v)), y1: top, y2: bottom, style: look, "stroke-dasharray": style.dash || null });
    },
    until(v) {
      const end = Math.min(Math.max(X(v), left), right);
      draw("rect", { x: left, y: top, width: at(end - left), height: bottom - top, fill: "url(#hatch)" });
    },
    dot(v, w, stroke, hollow, radius = 4) {
      draw("circle", { cx: at(X(v)), cy: at(Y(w)), r: radius, class: hollow ? "ring" : null, style: `stroke: ${stroke}; stroke-width: 1.5;${hollow ? "" : ` fill: ${stroke}`}` });
    },
  };
}

function legend(entries, name = "") {
  return el("ul", { class: `legend ${name}` }, entries.map(({ text, style, hatch, upright }) => {
    const ends = upright ? { x1: 18, x2: 18, y1: 0, y2: 12 } : { x1: 1, x2: 35, y1: 6, y2: 6 };
    const mark = hatch
      ? shape("rect", { width: 36, height: 12, fill: "url(#hatch)" })
      : shape("line", { ...ends, style: `stroke: ${style.stroke}; stroke-width: ${style.width}`, "stroke-dasharray": style.dash || null });
    return el("li", {}, shape("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, mark), text);
  }));
}
const pairs = (rows, name) => el("dl", { class: `pairs ${name}` }, rows.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
const caption = text => el("figcaption", {}, text);

/* Controls */
function slider(id, label, count, describe, changed) {
  const value = el("output", { for: id, "data-value": id, "aria-live": "off" });
  const input = el("input", { type: "range", id, min: 0, max: count - 1, step: 1, on: { input: () => changed(Number(input.value)) } });
  const show = i => {
    const { text, spoken } = describe(i);
    input.value = i;
    value.textContent = text;
    input.setAttribute("aria-valuetext", spoken);
  };
  return { input, show, box: el("div", { class: "slider" }, el("label", { for: id }, `${label} = `, value), input) };
}
function choice(id, title, options, changed) {
  const inputs = options.map((text, i) => {
    const input = el("input", { type: "radio", name: id, value: i, on: { change: () => changed(text) } });
    input.checked = i === 0;
    return el("label", {}, input, text);
  });
  return options.length > 1 ? el("fieldset", { class: "choice" }, el("legend", {}, title), inputs) : null;
}

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

/* Heat maps. The colour map has five stops of evenly increasing lightness, from dark blue to pale yellow. */
const STOPS = [[18, 28, 66], [34, 83, 120], [48, 138, 133], [139, 190, 118], [247, 236, 170]];
function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1), i = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[i].map((v, c) => v + (at - i) * (STOPS[i + 1][c] - v));
}
function between(axis, t) {
  let i = 0;
  while (i < axis.length - 2 && axis[i + 1] < t) i++;
  const share = axis.length > 1 ? (t - axis[i]) / (axis[i + 1] - axis[i]) : 0;
  return [i, Math.min(i + 1, axis.length - 1), Math.min(Math.max(share, 0), 1)];
}
function valueAt(axis, values, x, y) {
  const [i, j, a] = between(axis, x), [k, l, b] = between(axis, y);
  return (1 - b) * ((1 - a) * values[k][i] + a * values[k][j]) + b * ((1 - a) * values[l][i] + a * values[l][j]);
}
function heatMap(axis, values, [low, high]) {
  const size = 128, canvas = el("canvas", { width: size, height: size, "aria-hidden": "true" });
  const context = canvas.getContext("2d"), image = context.createImageData(size, size);
  for (let row = 0; row < size; row++) for (let column = 0; column < size; column++) {
    const value = valueAt(axis, values, (column + 0.5) / size, 1 - (row + 0.5) / size);
    image.data.set([...colour((value - low) / (high - low || 1)), 255], 4 * (row * size + column));
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function surfacePanel({ title, values }) {
  const { axis, x, y } = story.surfaces, limits = range(values.flat());
  const canvas = heatMap(axis, values, limits);
  const over = (c, times, style, name) => {
    c.line(times[x], times[y], { width: style.width + 2.4, stroke: "#0b1424" }, "halo");
    c.line(times[x], times[y], style, name);
  };
  const { box, draw } = plot((width, place) => {
    const height = squareHeight(width);
    const c = chart(width, height, `${title}: heat map over ${x} time and ${y} time, from ${short(limits[0])} to ${short(limits[1])}`, { ...UNIT, ticks: [0, 0.5, 1], label: `${x} time` }, { ...UNIT, ticks: [0, 0.5, 1], label: `${y} time` });
    c.svg.querySelectorAll(".grid").forEach(line => line.remove());
    for (const s of backwards) over(c, s.times, { ...styleOf(s.name), width: 1.6 });
    if (current) over(c, current.times, { stroke: "var(--now)", dash: "", width: 2.6 }, "now");
    const share = (part, whole) => `${100 * part / whole}%`;
    Object.assign(canvas.style, { left: share(EDGE.left, width), top: share(EDGE.top, height), width: share(width - EDGE.left - EDGE.right, width), height: share(height - EDGE.top - EDGE.bottom, height) });
    return c.svg;
  }, canvas);
  box.classList.add("over-map");
  const readout = el("p", { class: "readout", "aria-hidden": "true" });
  box.addEventListener("pointermove", event => {
    const r = canvas.getBoundingClientRect(), u = (event.clientX - r.left) / r.width, v = 1 - (event.clientY - r.top) / r.height;
    const inside = u >= 0 && u <= 1 && v >= 0 && v <= 1;
    readout.textContent = inside ? `${short(valueAt(axis, values, u, v))} at ${x} ${clock(u)}, ${y} ${clock(v)}` : "";
  });
  box.addEventListener("pointerleave", () => { readout.textContent = ""; });
  const gradient = `linear-gradient(to right, ${STOPS.map(s => `rgb(${s})`).join(", ")})`;
  const bar = el("div", { class: "bar" }, short(limits[0]), el("i", { style: `background: ${gradient}` }), short(limits[1]));
  watchers.push(draw);
  return el("div", {}, el("h3", {}, title), box, bar, readout);
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
  const variants = ["plain", "guided"].filter(variant => items.some(item => item.variant === variant));
  const toggle = choice("variant", "Sampling", variants, show);
  if (variants.length) show(variants[0]);
  section("Samples", el("figure", { id: "grids" }, toggle ? el("div", { class: "controls" }, toggle) : null, box, caption(story.grids.caption)));
}

/* The best of a column is bold only if it beats the second by more than twice the standard error of the difference. */
function winner({ key, better }, rows) {
  if (!better) return null;
  const sign = better === "lower" ? 1 : -1;
  const ranked = rows.map(row => row.cells[key]).filter(cell => cell && known(cell.value)).sort((a, b) => sign * (a.value - b.value));
  if (ranked.length < 2 || !known(ranked[0].error) || !known(ranked[1].error)) return null;
  return sign * (ranked[1].value - ranked[0].value) > 2 * Math.hypot(ranked[0].error, ranked[1].error) ? ranked[0] : null;
}
/* All values of a column have the same decimals: the smallest error keeps one digit, or two if it starts with 1 or 2. */
function decimals({ key }, rows) {
  const errors = rows.map(row => row.cells[key]).filter(cell => cell && known(cell.error) && cell.error > 0).map(cell => cell.error);
  if (!errors.length) return null;
  const [digits, power] = Math.min(...errors).toExponential().split("e").map(Number);
  return Math.min(Math.max((digits < 3 ? 1 : 0) - power, 0), 8);
}
function cellText(cell, best, digits) {
  if (typeof cell === "string") return [cell];
  if (!cell || !known(cell.value)) return ["\u2013"];
  const text = minus(digits === null ? String(Number(cell.value.toPrecision(4))) : cell.value.toFixed(digits));
  const error = known(cell.error) && digits !== null ? el("span", {}, ` \u00b1 ${cell.error.toFixed(digits)}`) : null;
  return [cell === best ? el("strong", {}, text) : text, error];
}
function table() {
  const { columns, rows } = story.table, winners = columns.map(column => winner(column, rows)), digits = columns.map(column => decimals(column, rows));
  const arrow = column => column.better ? el("span", { role: "img", "aria-label": `${column.better} is better` }, column.better === "lower" ? " \u2193" : " \u2191") : null;
  const head = el("tr", { role: "row" }, el("th", { scope: "col", role: "columnheader" }, "schedule"), columns.map(column => el("th", { scope: "col", role: "columnheader" }, column.title, arrow(column))));
  const body = rows.map(row => el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, row.name),
    columns.map((column, c) => el("td", { role: "cell", "data-title": column.title, "data-key": column.key }, el("div", {}, cellText(row.cells[column.key], winners[c], digits[c]))))));
  const helps = columns.filter(column => column.help).map(column => [column.title, column.help]);
  if (winners.some(cell => cell)) helps.push(["bold", "better than the second best by more than twice the standard error of the difference"]);
  section("Metrics", el("figure", { id: "table" }, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of metrics" },
    el("table", { role: "table" }, el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, body))), caption(story.table.caption), pairs(helps, "small")));
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
