"use strict";
/* Drawing for the report and the studio: charts, heat maps, tables, controls and the curve editor. */
const lwdDraw = (() => {
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

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
  return el("ul", { class: `legend ${name}` }, entries.map(({ text, style, hatch, upright, ring }) => {
    const ends = upright ? { x1: 18, x2: 18, y1: 0, y2: 12 } : { x1: 1, x2: 35, y1: 6, y2: 6 };
    const mark = hatch
      ? shape("rect", { width: 36, height: 12, fill: "url(#hatch)" })
      : shape("line", { ...ends, style: `stroke: ${style.stroke}; stroke-width: ${style.width}`, "stroke-dasharray": style.dash || null });
    const circle = ring ? shape("circle", { cx: 18, cy: 6, r: 4, style: `stroke: ${style.stroke}; stroke-width: 1.5; fill: var(--paper)` }) : null;
    return el("li", {}, shape("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, mark, circle), text);
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
function metricsTable({ columns, rows }, first) {
  const winners = columns.map(column => winner(column, rows)), digits = columns.map(column => decimals(column, rows));
  const arrow = column => column.better ? el("span", { role: "img", "aria-label": `${column.better} is better` }, column.better === "lower" ? " \u2193" : " \u2191") : null;
  const head = el("tr", { role: "row" }, el("th", { scope: "col", role: "columnheader" }, first), columns.map(column => el("th", { scope: "col", role: "columnheader" }, column.title, arrow(column))));
  const body = rows.map(row => el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, row.name),
    columns.map((column, c) => el("td", { role: "cell", "data-title": column.title, "data-key": column.key }, el("div", {}, cellText(row.cells[column.key], winners[c], digits[c]))))));
  const helps = columns.filter(column => column.help).map(column => [column.title, column.help]);
  if (winners.some(cell => cell)) helps.push(["bold", "better than the second best by more than twice the standard error of the difference"]);
  const element = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of metrics" },
    el("table", { role: "table" }, el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, body)));
  return { element, helps };
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
  /* null: not measured there */
  if ([values[k][i], values[k][j], values[l][i], values[l][j]].includes(null)) return NaN;
  return (1 - b) * ((1 - a) * values[k][i] + a * values[k][j]) + b * ((1 - a) * values[l][i] + a * values[l][j]);
}
function heatMap(canvas, axis, values, [low, high]) {
  const size = canvas.width, context = canvas.getContext("2d"), image = context.createImageData(size, size);
  for (let row = 0; row < size; row++) for (let column = 0; column < size; column++) {
    const value = valueAt(axis, values, (column + 0.5) / size, 1 - (row + 0.5) / size);
    if (Number.isFinite(value)) image.data.set([...colour((value - low) / (high - low || 1)), 255], 4 * (row * size + column));
  }
  context.putImageData(image, 0, 0);
}

/* A heat map over two clocks with curves on top: `values` and `curves` are functions, called at every draw.
   `points`, if given, are the draggable points of a curve; see `dragPoints`. */
function plane({ axis, x, y, title, values, curves, points }) {
  const canvas = el("canvas", { width: 128, height: 128, "aria-hidden": "true" });
  const name = el("h3", {}), low = el("span", {}), high = el("span", {});
  let painted = null, limits = [0, 1];
  const paint = () => {
    if (painted === values()) return;
    painted = values();
    limits = range(painted.flat().filter(known));
    heatMap(canvas, axis, painted, limits);
  };
  const titleNow = () => typeof title === "function" ? title() : title;
  const { box, draw } = plot((width, place) => {
    paint();
    name.textContent = titleNow();
    low.textContent = short(limits[0]);
    high.textContent = short(limits[1]);
    const height = squareHeight(width);
    const c = chart(width, height, `${titleNow()}: heat map over ${x} time and ${y} time, from ${short(limits[0])} to ${short(limits[1])}`, { ...UNIT, ticks: [0, 0.5, 1], label: `${x} time` }, { ...UNIT, ticks: [0, 0.5, 1], label: `${y} time` });
    c.svg.querySelectorAll(".grid").forEach(line => line.remove());
    for (const { times, style, name: mark } of curves()) {
      c.line(times[x], times[y], { width: style.width + 2.4, stroke: "#0b1424" }, "halo");
      c.line(times[x], times[y], style, mark);
    }
    layOver(canvas, width, height);
    if (points) points.place(place, width, height);
    return c.svg;
  }, canvas);
  box.classList.add("over-map");
  if (points) points = dragPoints(box, canvas, points, x, y);
  const readout = el("p", { class: "readout", "aria-hidden": "true" });
  box.addEventListener("pointermove", event => {
    const [u, v] = shareOf(canvas, event), inside = u >= 0 && u <= 1 && v >= 0 && v <= 1;
    const value = inside && painted ? valueAt(axis, painted, u, v) : NaN;
    readout.textContent = Number.isFinite(value) ? `${short(value)} at ${x} ${clock(u)}, ${y} ${clock(v)}` : "";
  });
  box.addEventListener("pointerleave", () => { readout.textContent = ""; });
  const gradient = `linear-gradient(to right, ${STOPS.map(stop => `rgb(${stop})`).join(", ")})`;
  const bar = el("div", { class: "bar" }, low, el("i", { style: `background: ${gradient}` }), high);
  return { element: el("div", {}, name, box, bar, readout), box, draw };
}
const percent = (part, whole) => `${100 * part / whole}%`;
function layOver(node, width, height) {
  Object.assign(node.style, { left: percent(EDGE.left, width), top: percent(EDGE.top, height), width: percent(width - EDGE.left - EDGE.right, width), height: percent(height - EDGE.top - EDGE.bottom, height) });
}
function shareOf(canvas, event) {
  const r = canvas.getBoundingClientRect();
  return [(event.clientX - r.left) / r.width, 1 - (event.clientY - r.top) / r.height];
}

/* The curve editor. A curve is a piecewise linear schedule: knots = { tau: [...], times: { group: [...] } }.
   Points are moved with a mouse, a finger or the arrow keys, and stay between their neighbours. */
function movedKnot(knots, i, changes, lead) {
  const times = { ...knots.times }, tau = [...knots.tau], between = (values, v, air) => Math.min(Math.max(v, values[i - 1] + air), values[i + 1] - air);
  const led = knots.tau.every((v, k) => Math.abs(v - knots.times[lead][k]) < 1e-9);  /* the lead's clock is tau */
  for (const [group, value] of Object.entries(changes)) {
    times[group] = [...times[group]];
    times[group][i] = between(times[group], Number(value.toFixed(4)), led && group === lead ? 0.002 : 0);  /* rounded first: a neighbour may have more digits */
  }
  if (led) tau[i] = times[lead][i];
  return { tau, times };
}
function addedKnot({ tau, times }) {
  const gaps = tau.slice(1).map((v, k) => v - tau[k]), k = gaps.indexOf(Math.max(...gaps));
  const middle = row => [...row.slice(0, k + 1), (row[k] + row[k + 1]) / 2, ...row.slice(k + 1)];
  return { tau: middle(tau), times: Object.fromEntries(Object.entries(times).map(([group, row]) => [group, middle(row)])) };
}
function withoutKnot({ tau, times }, i) {
  const rest = row => row.filter((_, k) => k !== i);
  return { tau: rest(tau), times: Object.fromEntries(Object.entries(times).map(([group, row]) => [group, rest(row)])) };
}
function dragPoints(box, canvas, { lead, knots, changed, name }, x, y) {
  const layer = el("div", { class: "knots" });
  box.append(layer);
  let handles = [];
  const now = () => knots();
  const say = (handle, i) => {
    const { times, tau } = now(), at = `${x} ${clock(times[x][i])}, ${y} ${clock(times[y][i])}`;
    handle.setAttribute("aria-label", `${name()}: point ${i} of ${tau.length - 2}`);
    handle.setAttribute("aria-valuenow", times[y][i]);
    handle.setAttribute("aria-valuetext", at);
    handle.style.left = `${100 * times[x][i]}%`;
    handle.style.top = `${100 * (1 - times[y][i])}%`;
  };
  const move = (i, u, v, last) => changed(movedKnot(now(), i, { [x]: u, [y]: v }, lead()), last);
  const create = i => {
    const handle = el("span", { class: "knot", role: "slider", tabindex: 0, "aria-valuemin": 0, "aria-valuemax": 1, "data-knot": i });
    let held = false;
    handle.addEventListener("pointerdown", event => { held = true; handle.setPointerCapture(event.pointerId); handle.focus(); event.preventDefault(); });
    handle.addEventListener("pointermove", event => { if (held) move(i, ...shareOf(canvas, event), false); });
    for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => { if (held) { held = false; changed(now(), true); } });
    handle.addEventListener("keydown", event => {
      const step = event.shiftKey ? 0.1 : 0.01, { times } = now();
      const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowDown: [0, -step], ArrowUp: [0, step] }[event.key];
      if (by) move(i, times[x][i] + by[0], times[y][i] + by[1], true);
      else if (event.key === "Delete" || event.key === "Backspace") changed(withoutKnot(now(), i), true);
      else return;
      event.preventDefault();
    });
    return handle;
  };
  return {
    place(place, width, height) {
      layOver(layer, width, height);
      const inner = Math.max(0, now().tau.length - 2);
      if (handles.length !== inner) {
        handles = Array.from({ length: inner }, (_, k) => create(k + 1));
        layer.replaceChildren(...handles);
      }
      handles.forEach((handle, k) => say(handle, k + 1));
    },
  };
}

return { el, shape, picture, known, minus, short, four, clock, range, nearest, padded, styleOf, QUIET, drawings, plot, EDGE, UNIT, squareHeight, chart, legend, pairs, caption, slider, choice, metricsTable, plane, movedKnot, addedKnot, withoutKnot };
})();
