"use strict";
(() => {
const { el, shape, known, short, four, clock, nearest, QUIET, drawings, plot, UNIT, squareHeight, chart, legend, pairs, caption, slider, metricsTable, plane, addedKnot } = lwdDraw;
const SIDES = ["A", "B"];
const STYLES = { A: { stroke: "var(--s0)", dash: "", width: 2.6 }, B: { stroke: "var(--s1)", dash: "7 4", width: 2.2 } };
const OVER = { A: { stroke: "#fff", dash: "", width: 2.6 }, B: { stroke: "#ff8f5a", dash: "7 4", width: 2.2 } };
const MARKS = [0.2, 0.4, 0.6, 0.8];  /* rings on the clocks of B, which differs from A in more than its colour */
const GROUPS = [{ dash: "" }, { dash: "6 4" }, { dash: "2 3" }, { dash: "10 3 2 3" }];
const base = new URL("studio/", document.baseURI);
const user = Array.from(crypto.getRandomValues(new Uint8Array(16)), v => v.toString(16).padStart(2, "0")).join("");

const root = el("div", { class: "main" });

/* Requests: quick ones are answered at once; computations report line by line. */
const posted = async (name, value) => {
  try { return await fetch(new URL(name, base), { method: "POST", headers: { "content-type": "application/json", "x-studio-user": user }, body: JSON.stringify(value) }); }
  catch { throw new Error("the studio does not answer; is lwd studio still running?"); }
};
let asking = 0;
async function ask(name, value) {
  root.dataset.asking = ++asking;  /* for tests: 0 when every answer has been shown */
  try {
    const answer = await posted(name, value), found = await answer.json().catch(() => ({ error: `the studio answered ${answer.status}` }));
    if (found.error) throw new Error(found.error);
    return found;
  } finally { setTimeout(() => { root.dataset.asking = --asking; }); }
}
async function compute(name, value, report) {
  const answer = await posted(`run/${name}`, value);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || `the studio answered ${answer.status}`);
  const reader = answer.body.getReader(), decoder = new TextDecoder();
  let text = "", last = {};
  for (;;) {
    const { done, value: bytes } = await reader.read();
    text += decoder.decode(bytes || new Uint8Array(), { stream: !done });
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines.filter(Boolean)) { last = JSON.parse(line); if (known(last.share)) report(last); }
    if (done) break;
  }
  if (last.error) throw new Error(last.error);
  if (last.cancelled) return null;
  if (!("result" in last)) throw new Error("the connection ended early");
  return last.result;
}

/* The page's memory: what the server said about the model, the state of both settings, and their curves. */
let info = null, state = null, maps = null, drawn = null;
let active = "A", surface = "", busy = false;
const curves = {}, watchers = [];
const side = (name = active) => state[name.toLowerCase()];
const changed = () => { for (const watcher of watchers) watcher(); };

const alertBox = el("div", { class: "alert hidden", role: "alert" });
function complain(error) {
  alertBox.replaceChildren(el("span", { "data-value": "error" }, String(error.message || error)), el("button", { type: "button", on: { click: quiet } }, "Close"));
  alertBox.classList.remove("hidden");
}
function quiet() { alertBox.classList.add("hidden"); alertBox.replaceChildren(); }
/* What a user does next replaces an earlier error. */
const tried = work => async (...given) => { quiet(); try { await work(...given); } catch (error) { complain(error); } };

/* Small controls */
function radios(id, title, options, picked) {
  const inputs = options.map(({ value, text }) => el("input", { type: "radio", name: id, value, on: { change: () => picked(value) } }));
  const labels = options.map(({ text }, i) => el("label", {}, inputs[i], text));
  const select = value => { inputs.forEach(input => { input.checked = input.value === value; }); };
  const allow = (value, yes) => inputs.forEach((input, i) => { if (input.value === value) { input.disabled = !yes; labels[i].classList.toggle("off", !yes); } });
  return { element: el("fieldset", { class: "choice", id }, el("legend", {}, title), labels), select, allow };
}
const field = (title, control) => el("label", { class: "field" }, title, control);
function selectBox(id, options, value, picked) {
  const box = el("select", { id, on: { change: () => picked(box.value) } }, options.map(one => el("option", { value: one.value ?? one }, one.text ?? one)));
  box.value = value;
  return box;
}
function numberBox(id, value, { min, max, step = 1 }, picked) {
  const box = el("input", { type: "number", id, min, max, step, value, inputmode: step === 1 ? "numeric" : "decimal" });
  const limit = el("span", { class: "limit", role: "alert" }, `${step === 1 ? "a whole number" : "a number"} from ${min} to ${max}`);
  box.addEventListener("change", () => {
    const given = Number(box.value), fits = box.value !== "" && Number.isFinite(given);
    const kept = fits ? Math.min(Math.max(step === 1 ? Math.round(given) : given, min), max) : value;
    if (fits && kept === given) limit.remove(); else box.after(limit);
    box.value = value = kept;
    picked(kept);
  });
  return box;
}
const button = (id, text, pressed, look = "") => el("button", { type: "button", id, class: look || null, on: { click: tried(pressed) } }, text);
const along = (xs, ys, x) => { const k = Math.max(1, xs.findIndex(v => v >= x)), gap = xs[k] - xs[k - 1]; return gap > 0 ? ys[k - 1] + (ys[k] - ys[k - 1]) * (x - xs[k - 1]) / gap : ys[k]; };
const follow = () => info.groups.filter(name => name !== info.lead);

/* Curves: a drag is drawn at once; the numbers come from the library, one request at a time, always the newest. */
const waiting = {};
function request(name, what) {
  return { model: info.model, lambda: state.lambda ?? null, steps: side(name).steps, solver: side(name).solver, ...what };
}
async function refresh(name, what) {
  const started = performance.now();
  if (waiting[name]) { waiting[name].next = what; return; }
  waiting[name] = { next: null };
  try {
    const found = await ask("curve", request(name, what));
    if (!waiting[name].next) {
      const moved = what.live ? { ...found, knots: curves[name].knots } : found;
      curves[name] = { ...moved, preset: curves[name]?.preset ?? "" };
      side(name).schedule = found.schedule;
      changed();
      root.dataset.latency = (performance.now() - started).toFixed(1);
    }
  } catch (error) { complain(error); }
  const { next } = waiting[name];
  waiting[name] = null;
  if (next) await refresh(name, next);
}
function drag(name, knots, last) {
  const schedule = { format: "lwd.schedule", version: 1, kind: "piecewise_linear", groups: info.groups, tau: knots.tau, times: knots.times };
  curves[name] = { ...curves[name], knots, tau: knots.tau, times: knots.times, preset: "drawn", schedule };
  side(name).schedule = schedule;
  changed();
  return refresh(name, { schedule, live: !last });
}
async function preset(name, kind, values = {}) {
  curves[name] = { ...curves[name], preset: kind };
  await refresh(name, kind === "drawn" ? { schedule: side(name).schedule } : { preset: kind, ...values });
}

const PRESETS = [
  { value: "model", text: "this model's" }, { value: "synchronous", text: "synchronous" }, { value: "offset", text: "offset" },
  { value: "cascade", text: "cascade" }, { value: "learned", text: "learned" }, { value: "drawn", text: "drawn" },
];
const ROWS = [
  ["flow", "flow loss", "of the curve on the surfaces"],
  ["energy", "kinetic energy", ""],
  ["above", "above the best of all paths", "flow loss + \u03bb kinetic energy, compared with the best monotone path"],
  ["error", "predicted error", ""],
];

function drawSection() {
  const delta = slider("delta", "offset", 19, i => ({ text: clock((i + 1) / 20), spoken: clock((i + 1) / 20) }), tried(i => { delta.show(i); return preset(active, "offset", { delta: (i + 1) / 20 }); }));
  delta.show(5);
  const lambdas = () => info.path ? info.path.points.map(p => p.lambda) : [];
  const many = lambdas().length;
  const lambda = slider("lambda", "\u03bb", Math.max(1, many), i => ({ text: many ? short(lambdas()[i]) : "\u2013", spoken: many ? `${short(lambdas()[i])}${info.path.points[i].collapsed ? ", collapsed" : ""}` : "not solved" }), tried(async i => {
    lambda.show(i);
    state.lambda = lambdas()[i];
    await Promise.all(SIDES.map(name => curves[name].preset === "learned" && name === active ? preset(name, "learned") : refresh(name, { schedule: side(name).schedule })));
  }));
  if (many) lambda.show(nearest(lambdas(), state.lambda ?? info.path.chosen ?? lambdas()[0]));
  const which = radios("side", "Edit", SIDES.map(value => ({ value, text: value })), value => { active = value; changed(); });
  const kinds = radios("preset", "Curve", PRESETS, tried(async kind => {
    if (kind === "learned" && !many) { await solve(); return; }
    await preset(active, kind, kind === "offset" ? { delta: (Number(delta.input.value) + 1) / 20 } : {});
  }));
  const names = maps ? Object.keys(maps.planes[0].maps) : [];
  surface = names.includes(surface) ? surface : names[0] || "";
  const shown = radios("surface", "Surface", names.map(value => ({ value, text: value })), value => { surface = value; changed(); });
  const held = maps && info.groups.length > 2 ? slider("held", "other clocks", 21, i => ({ text: clock(i / 20), spoken: clock(i / 20) }), tried(async i => { held.show(i); maps = await ask("maps", { model: info.model, held: i / 20 }); changed(); })) : null;
  if (held) held.show(10);
  const points = { lead: () => info.lead, knots: () => curves[active].knots, changed: (knots, last) => { drag(active, knots, last); }, name: () => `curve ${active}` };
  const over = () => [...SIDES.filter(name => name !== active), active].map(name => ({ times: curves[name].times, style: OVER[name], name: `curve-${name}` }));
  const pairsOf = maps ? maps.planes : follow().map(y => ({ x: info.lead, y, maps: null }));
  const planes = pairsOf.map(({ x, y }, i) => maps
    ? plane({ axis: maps.axis, x, y, title: () => surface, values: () => maps.planes[i].maps[surface], curves: over, points })
    : plane({ axis: [0, 1], x, y, title: "no loss surfaces", values: () => EMPTY, curves: over, points }));
  const clocks = plot(width => {
    const c = chart(width, Math.min(squareHeight(width), 330), "The clocks of A and B over \u03c4", { ...UNIT, label: "\u03c4" }, { ...UNIT, label: "local time" });
    for (const name of ["B", "A"]) info.groups.forEach((group, g) => c.line(curves[name].tau, curves[name].times[group], { ...STYLES[name], dash: GROUPS[g % 4].dash, width: name === active ? 2.4 : 1.5 }));
    info.groups.forEach(group => MARKS.forEach(tau => c.dot(tau, along(curves.B.tau, curves.B.times[group], tau), STYLES.B.stroke, true)));
    return c.svg;
  });
  const lines = [...SIDES.map(name => ({ text: name, style: { ...STYLES[name], dash: "" }, ring: name === "B" })), ...info.groups.map((group, g) => ({ text: group, style: { stroke: "var(--muted)", dash: GROUPS[g % 4].dash, width: 2 } }))];
  const numbers = numbersTable();
  const collapse = el("span", { class: "note collapsed", "data-value": "collapsed" });
  const add = button("add", "Add a point", () => drag(active, addedKnot(curves[active].knots), true));
  const smooth = button("smooth", "Smooth", async () => { const found = await working("smooth", { model: info.model, schedule: side().schedule }); if (found) { curves[active].preset = "drawn"; await refresh(active, { schedule: found }); } }, "starts");
  const copy = button("copy", "Copy to the other", () => { const other = active === "A" ? "B" : "A"; side(other).schedule = side().schedule; curves[other] = { ...curves[active] }; return refresh(other, { schedule: side().schedule }); });
  const solving = button("solve", "Solve for every \u03bb", solve, "starts");
  watchers.push(...planes.map(({ draw }) => draw), clocks.draw, numbers.show, () => {
    which.select(active);
    kinds.select(curves[active].preset || "drawn");
    shown.select(surface);
    delta.box.classList.toggle("hidden", curves[active].preset !== "offset");
    collapse.textContent = many && info.path.points[Number(lambda.input.value)].collapsed ? "Collapsed: one group waits for the other." : "";
  });
  kinds.allow("learned", Boolean(info.surfaces));
  const note = info.surfaces ? null : el("p", { class: "help" }, "This model has no loss surfaces: numbers need those of lwd probe --method surface or lwd surfaces measure (option --surfaces).");
  return el("section", { id: "draw", "aria-label": "Draw a schedule" }, el("h2", {}, "Draw a schedule"),
    el("div", { class: "controls" }, which.element, kinds.element), el("div", { class: "controls" }, delta.box, many ? lambda.box : null, many ? collapse : null, !many && info.surfaces ? solving : null, held ? held.box : null),
    names.length ? el("div", { class: "controls" }, shown.element) : null, note,
    el("div", { class: `draw${planes.length > 1 ? " many" : ""}` }, el("div", {}, el("div", { class: `planes${planes.length === 1 ? " single" : ""}` }, planes.map(({ element }) => element)),
      el("div", { class: "fields" }, add, smooth, copy), el("div", { class: "run" }, ...runBar("draw"))),
    el("div", { class: "beside" }, numbers.element, el("div", {}, el("h3", {}, "The clocks"), legend(lines), clocks.box)),
    el("div", { class: "hints" }, el("p", { class: "help" }, "Drag the points, or focus one and use the arrow keys (with Shift: larger steps; Delete removes it). White: A, dashed: B."), many ? el("p", { class: "help" }, "\u03bb weighs the kinetic energy: it chooses the learned curve, and what the distance to the best path counts.") : null)));
}
const EMPTY = [[0, 0], [0, 0]];
async function solve() {
  const path = await working("solve", { model: info.model });
  if (path) { info.path = path; state.lambda = path.chosen ?? path.points[0].lambda; await build(); }
}

function numbersTable() {
  const cells = Object.fromEntries(SIDES.map(name => [name, Object.fromEntries(ROWS.map(([key]) => [key, el("td", { "data-value": `${key}-${name}` })]))]));
  const heads = ROWS.map(([key, title]) => el("th", { scope: "row" }, title));
  const notes = SIDES.map(name => el("p", { class: "note trained", "data-value": `trained-${name}` }));
  const mark = name => el("th", { scope: "col", class: name.toLowerCase() }, el("i", { style: `border-color: ${STYLES[name].stroke}` }), name);
  const element = el("div", {}, el("div", { class: "scroll" }, el("table", { class: "sides", id: "numbers" }, el("thead", {}, el("tr", {}, el("th", {}, ""), SIDES.map(mark))),
    el("tbody", {}, ROWS.map(([key], r) => el("tr", {}, heads[r], SIDES.map(name => cells[name][key])))))), notes);
  const show = () => {
    const [a, b] = SIDES.map(name => side(name).solver === "dopri5" ? "adaptive" : side(name).steps);
    heads[3].textContent = a === b ? `predicted error of ${a} steps` : `predicted error of ${a} and ${b} steps`;
    heads[2].textContent = info.groups.length > 2 ? "above the best learned curve" : "above the best of all paths";
    SIDES.forEach((name, s) => {
      const { numbers = {}, trained, text = "" } = curves[name];
      for (const [key] of ROWS) { cells[name][key].textContent = four(numbers[key]); }
      notes[s].replaceChildren(el("span", { class: `tag ${name.toLowerCase()}` }, `${name}. `), text);
      notes[s].classList.toggle("warn", trained === false);
    });
  };
  return { element, show };
}

/* Computations: one at a time, with progress and cancel. */
const bars = {};
function runBar(section) {
  const bar = el("progress", { max: 1, value: 0, class: "hidden", "aria-label": "progress" }), text = el("span", { class: "report", role: "status", "data-value": "report" });
  const cancel = el("button", { type: "button", class: "hidden cancel", on: { click: tried(() => ask("cancel", {})) } }, "Cancel");
  bars[section] = { bar, text, cancel };
  return [cancel, bar, text];
}
const SECTION = { sample: "sample", compare: "compare", solve: "draw", smooth: "draw" };
let ended = Promise.resolve();
async function working(name, value) {
  if (busy) return null;
  busy = true;
  const model = info.model, { bar, text, cancel } = bars[SECTION[name]];
  let over;
  ended = new Promise(done => { over = done; });
  for (const one of Object.values(bars)) one.text.textContent = "";
  starts(false);
  const show = (share, words) => { bar.value = share; text.textContent = words; };
  show(0, "asking");
  [bar, cancel].forEach(one => one.classList.remove("hidden"));
  let words = "";
  try {
    const result = await compute(name, value, ({ share, text: said }) => show(share, said));
    words = result === null ? "cancelled" : "done";
    return info.model === model ? result : null;
  } finally {
    const focused = root.getRootNode().activeElement === cancel;
    busy = false;
    starts(true);
    [bar, cancel].forEach(one => one.classList.add("hidden"));
    text.textContent = words;
    if (focused) root.querySelector(`#${SECTION[name]} button.starts`)?.focus();
    over();
  }
}
const starts = allowed => root.querySelectorAll("button.starts").forEach(one => { one.disabled = !allowed; });

/* Sample */
function sideSettings(name) {
  const one = side(name), low = name.toLowerCase(), id = key => `${key}-${low}`;
  const steps = numberBox(id("steps"), one.steps, { min: 1, max: info.limits.steps }, value => { one.steps = value; refresh(name, { schedule: one.schedule }); });
  const placement = selectBox(id("placement"), info.placements.map(value => ({ value, text: value === "tau" ? "even in \u03c4" : info.groups.includes(value) ? `even in ${value} time` : value })), one.placement, value => { one.placement = value; });
  const adaptive = () => { steps.disabled = placement.disabled = one.solver === "dopri5"; };
  const solver = selectBox(id("solver"), info.solvers, one.solver, value => { one.solver = value; adaptive(); refresh(name, { schedule: one.schedule }); });
  adaptive();
  const guidance = el("div", { class: "guidance" });
  const showGuidance = () => {
    guidance.classList.toggle("hidden", !one.guide);
    guidance.replaceChildren(...info.groups.map(group => {
      const scale = numberBox(id(`scale-${group}`), one.scale?.[group] ?? 1.5, { min: -20, max: 20, step: 0.1 }, value => { one.scale = { ...one.scale, [group]: value }; });
      const interval = () => one.interval?.[group] ?? [0, 1];
      const end = k => numberBox(id(`interval-${group}-${k}`), interval()[k], { min: 0, max: 1, step: 0.05 }, value => {
        const pair = [...interval()];
        pair[k] = value;
        one.interval = { ...one.interval, [group]: pair };
      });
      return el("div", { class: "fields" }, field(`scale of ${group}`, scale), el("div", { class: "field" }, `guided ${group} times`, el("span", { class: "interval" }, ...[0, 1].map(k => { const box = end(k); box.setAttribute("aria-label", `${k ? "last" : "first"} guided ${group} time`); return box; }))));
    }));
  };
  const guide = selectBox(id("guide"), [{ value: "", text: "none" }, ...info.guides.map(value => ({ value, text: value === "null" ? "no label (classifier-free)" : value }))], one.guide ?? "", value => {
    one.guide = value;
    if (value) { one.scale = Object.fromEntries(info.groups.map(group => [group, one.scale?.[group] ?? 1.5])); }
    else { delete one.scale; delete one.interval; }
    showGuidance();
  });
  showGuidance();
  return el("fieldset", {}, el("legend", { class: `tag ${low}` }, name), el("div", { class: "fields" }, field("solver", solver), field("steps", steps), field("placement", placement), field("guide", guide)), guidance);
}
function sampleSection() {
  const label = selectBox("label", [{ value: "", text: "all classes" }, ...info.classes], state.label ?? "", value => { state.label = value; });
  const seed = numberBox("seed", state.seed ?? 0, { min: 0, max: 2147483647 }, value => { state.seed = value; });
  const count = numberBox("count", state.count ?? 8, { min: 1, max: info.limits.count }, value => { state.count = value; });
  const go = names => async () => {
    const found = await working("sample", { state, sides: names });
    if (found) { drawn = { ...found, sides: { ...(names.length < 2 && drawn && drawn.seed === found.seed && String(drawn.labels) === String(found.labels) ? drawn.sides : {}), ...found.sides } }; results.show(); }
  };
  const results = resultsView();
  return el("section", { id: "sample", "aria-label": "Sample" }, el("h2", {}, "Sample"),
    el("div", { class: "fields" }, field("class", label), field("seed", seed), field("images", count)), el("div", { class: "settings" }, SIDES.map(sideSettings)),
    el("div", { class: "run" }, button("draw-both", "Draw A and B", go(SIDES), "main-action starts"), button("draw-a", "Draw A", go(["A"]), "starts"), button("draw-b", "Draw B", go(["B"]), "starts"), ...runBar("sample")),
    results.element);
}

/* Two settings side by side: the images, and the states on the way, on the clocks of each. */
function resultsView() {
  const element = el("div", { id: "results", class: "hidden" });
  let at = 20, chosen = 0, timer = null, update = () => {};
  const STOPS = 40;
  const play = el("button", { type: "button", id: "play" }, "Play");
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
  const control = slider("tau", "\u03c4", STOPS + 1, i => ({ text: clock(i / STOPS), spoken: clock(i / STOPS) }), i => { stop(); move(i); });
  const move = i => { at = i; control.show(i); update(); };
  play.addEventListener("click", () => {
    if (timer !== null) { stop(); return; }
    if (at === STOPS) move(0);
    play.textContent = "Pause";
    timer = setInterval(() => { if (at < STOPS) move(at + 1); else stop(); }, matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 110);
  });
  const sideView = name => {
    const { tau, times, sheets, images, evaluations } = drawn.sides[name], count = drawn.labels.length, frames = tau.length;
    const states = info.groups.map(group => el("div", { class: "state", role: "img", "data-state": `${group}-${name}`, style: `background-image: url(${sheets[group]}); background-size: ${100 * frames}% ${100 * count}%` }));
    const meters = info.groups.map(group => ({ value: el("b", { "data-clock": `${group}-${name}` }), fill: el("i", { style: `background: ${STYLES[name].stroke}` }) }));
    const pick = (i, picture) => el("button", { type: "button", "data-image": `${name}-${i}`, "aria-label": `follow image ${i + 1} of ${name}, ${drawn.labels[i]}`, on: { click: () => { chosen = i; update(); } } }, picture);
    const grid = el("div", { class: "images" }, drawn.labels.map((label, i) => pick(i, images ? el("img", { src: images[i], alt: "" }) : el("div", { class: "state", style: `background-image: url(${sheets[info.groups[0]]}); background-size: ${100 * frames}% ${100 * count}%; background-position: 100% ${count > 1 ? 100 * i / (count - 1) : 0}%` }))));
    const show = () => {
      const t = at / STOPS, k = nearest(tau, t), place = (i, n) => n > 1 ? 100 * i / (n - 1) : 0;
      info.groups.forEach((group, g) => {
        states[g].style.backgroundPosition = `${place(k, frames)}% ${place(chosen, count)}%`;
        states[g].dataset.frame = k;
        states[g].setAttribute("aria-label", `${group} state of ${name}, ${drawn.labels[chosen]}, at \u03c4 ${clock(tau[k])}`);
        const local = times[group][k];
        meters[g].value.textContent = clock(local);
        meters[g].fill.style.width = `${100 * local}%`;
      });
      grid.querySelectorAll("button").forEach((one, i) => one.setAttribute("aria-pressed", i === chosen));
    };
    const title = group => group === info.decoded ? `${group}, decoded` : `${group}, as colours`;
    return { show, element: el("div", { "data-side": name }, el("h3", {}, el("span", { class: `tag ${name.toLowerCase()}` }, name), ` \u2013 ${short(evaluations)} evaluations of the network per image`), grid,
      el("div", { class: "frames" }, info.groups.map((group, g) => el("div", { class: "frame" }, el("h3", {}, title(group)), states[g],
        el("div", { class: "clock" }, el("div", {}, el("span", {}, `${group} time`), meters[g].value), el("div", { class: "track" }, meters[g].fill)))))) };
  };
  const show = () => {
    chosen = Math.min(chosen, drawn.labels.length - 1);
    const views = SIDES.filter(name => drawn.sides[name]).map(sideView);
    update = () => views.forEach(view => view.show());
    element.replaceChildren(el("div", { class: "controls" }, play, control.box), el("div", { class: "two" }, views.map(view => view.element)),
      caption("Equal positions have the same noise and class. Choose an image to follow it from noise to data; the states are those after the solver's own steps."));
    element.classList.remove("hidden");
    stop();
    move(STOPS);
  };
  if (drawn) queueMicrotask(show);
  return { element, show };
}

/* Compare */
function compareSection() {
  const box = el("div", {}), columns = [
    { key: "accuracy", title: "correct class \u2191", help: "share of samples that the judge assigns to the requested class; higher is better" },
    { key: "frechet", title: "Fr\u00e9chet distance \u2193", help: "lower is better; to the 2,000 test images, on the 64 features of the judge; comparable for equal numbers of samples only" },
  ];
  let count = 200;
  const many = numberBox("compared", count, { min: 20, max: info.limits.compared }, value => { count = value; });
  const go = button("compare-go", "Compare A and B", async () => {
    const found = await working("compare", { state, count });
    if (!found) return;
    const rows = ["A", "B"].map(name => ({ name, cells: found.rows[name] })), difference = { name: "B \u2212 A", cells: found.rows["B - A"] };
    const { element, helps } = metricsTable({ columns: columns.map(column => ({ ...column, better: null })), rows: [...rows, difference] }, "setting");
    const clear = columns.filter(({ key }) => Math.abs(difference.cells[key].value) > 2 * difference.cells[key].error).map(({ title }) => title.slice(0, -2));
    box.replaceChildren(element, el("p", { class: "note", "data-value": "verdict" }, clear.length ? `More than twice its standard error: the difference in ${clear.join(" and ")}.` : "Neither difference is more than twice its standard error."),
      caption(`${found.count} samples of each, all classes in turn, same seeds; \u00b1 is one standard error, and that of B \u2212 A is of paired samples.`), pairs(helps, "small"));
  }, "main-action starts");
  const body = info.judged ? [el("div", { class: "run" }, field("samples of each", many), go, ...runBar("compare")), box]
    : [el("p", { class: "help" }, "The judge that ships with lwd knows the classes of Fashion-MNIST only. For this model: lwd sample and lwd evaluate.")];
  return el("section", { id: "compare", "aria-label": "Compare" }, el("h2", {}, "Compare"), ...body);
}

/* Take it away */
function takeSection() {
  let shownSide = "A", found = null;
  const command = el("code", { "data-value": "command", tabindex: 0 }), python = el("code", { "data-value": "python", tabindex: 0 }), link = el("input", { type: "text", id: "link", readonly: "", "aria-label": "link that reopens this state", style: "flex: 1 1 20rem" });
  const which = radios("take-side", "Setting", SIDES.map(value => ({ value, text: value })), value => { shownSide = value; show(); });
  which.select("A");
  const show = () => {
    if (!found) return;
    command.textContent = found[shownSide].command;
    python.textContent = found[shownSide].python;
    link.value = new URL(`#s=${found.link}`, document.baseURI.split("#")[0]).href;
    needs.classList.toggle("hidden", !found[shownSide].needs_file);
  };
  const needs = el("p", { class: "help hidden" }, "Both read schedule.json: download it into the same folder.");
  let asked = 0, newest = 0;
  const refreshTake = async () => {
    const mine = ++asked, answer = await ask("takeaway", { state });
    if (mine > newest) { newest = mine; found = answer; show(); }  /* an older answer may arrive later */
  };
  const download = button("download", "Download schedule.json", async () => {
    await refreshTake();
    const address = URL.createObjectURL(new Blob([JSON.stringify(found[shownSide].schedule, null, 2) + "\n"], { type: "application/json" }));
    const anchor = el("a", { href: address, download: found[shownSide].file });
    root.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  const input = el("input", { type: "file", accept: ".json,application/json", class: "file", id: "upload", tabindex: -1, "aria-label": "schedule file" });
  input.addEventListener("change", tried(async () => {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    if (file.size > 150000) throw new Error(`${file.name} has ${file.size} bytes; a schedule of at most ${info.limits.knots} points has less than 150000`);
    let value;
    try { value = JSON.parse(await file.text()); } catch { throw new Error(`${file.name} is not valid JSON; is it a schedule file?`); }
    const answer = await ask("curve", request(active, { schedule: value }));
    curves[active] = { ...answer, preset: "drawn" };
    side().schedule = answer.schedule;
    changed();
    refreshTake();
  }));
  const upload = button("open-file", "Open a schedule file", () => { input.click(); });
  const copyLink = button("copy-link", "Copy the link", async () => {
    await refreshTake();
    history.replaceState(null, "", link.value);
    link.select();
    const copied = await (navigator.clipboard?.writeText(link.value).then(() => true, () => false) ?? false);
    told.textContent = copied ? "copied" : "selected: copy it with Ctrl-C";
  });
  const told = el("span", { class: "report", role: "status", "data-value": "copied" });
  let timer = null;
  watchers.push(() => { clearTimeout(timer); timer = setTimeout(() => refreshTake().catch(() => {}), 600); });
  root.addEventListener("change", () => { clearTimeout(timer); timer = setTimeout(() => refreshTake().catch(() => {}), 300); });
  return el("section", { id: "take", "aria-label": "Take it away" }, el("h2", {}, "Take it away"), el("div", { class: "take" }, el("div", { class: "row" }, which.element, download, upload, input),
    el("div", {}, el("h3", {}, "The same images from a terminal"), command), el("div", {}, el("h3", {}, "and from Python"), python), needs,
    el("div", {}, el("h3", {}, "A link that reopens this state"), el("div", { class: "row" }, link, copyLink, told))));
}

function header() {
  const models = selectBox("model", info ? info.models : [], info ? info.model : "", tried(name => openModel({ model: name })));
  return el("header", {}, el("div", {}, el("h1", {}, "lwd studio"), el("p", { class: "lead" }, "Bend the schedule between the clocks, and watch an image form on them.")), field("model", models));
}
async function build() {
  watchers.length = drawings.length = 0;
  root.replaceChildren(header());
  root.append(drawSection(), sampleSection(), compareSection(), takeSection(), alertBox);
  changed();
  root.dataset.ready = info.model;
}
async function openModel(wanted, link) {
  quiet();
  let found;
  if (busy) { await ask("cancel", {}); await ended; }
  try { found = link ? await ask("reopen", { link }) : await ask("open", wanted); } catch (error) {
    if (!info) await failed(error); else { complain(error); root.querySelector("#model").value = info.model; }
    return;
  }
  maps = found.surfaces ? await ask("maps", { model: found.model }) : null;
  [info, state, drawn, active] = [found, found.state, null, "A"];
  for (const name of SIDES) {
    const schedule = side(name).schedule, answer = await ask("curve", request(name, { schedule }));
    curves[name] = { ...answer, preset: !link ? { A: "model", B: "synchronous" }[name] : "drawn" };
  }
  await build();
}
async function failed(error) {
  /* Nothing is open yet: offer the other models. */
  const names = (await ask("names", {}).catch(() => ({ models: [] }))).models;
  root.replaceChildren(el("header", {}, el("h1", {}, "lwd studio"), names.length > 1 ? field("model", selectBox("model", names, names[0], tried(name => openModel({ model: name })))) : null), alertBox);
  complain(error);
  root.dataset.ready = "failed";
}

function hatch() {
  const svg = shape("svg", { class: "defs", "aria-hidden": "true", width: 0, height: 0 });
  svg.append(shape("defs", {}, shape("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, shape("line", { x1: 0, y1: 0, x2: 0, y2: 6 }))));
  return svg;
}
async function start(place) {
  const shadow = place.attachShadow({ mode: "open" });
  const sheets = ["page.css", "studio.css"].map(name => el("link", { rel: "stylesheet", href: new URL(name, base).href }));
  const loaded = sheets.map(sheet => new Promise(done => { sheet.addEventListener("load", done); sheet.addEventListener("error", done); }));
  shadow.append(...sheets, el("div", { class: "page" }, hatch(), root));
  root.append(el("p", { class: "lead" }, "Loading the model \u2026"), alertBox);
  await Promise.all(loaded);
  const link = location.hash.startsWith("#s=") ? location.hash.slice(3) : "";
  if (link) {
    const bad = await ask("reopen", { link }).then(() => null, error => error);
    await openModel({}, bad ? "" : link);
    if (bad) complain(bad);
  } else await openModel({});
  let drawnAt = 0;
  new ResizeObserver(() => {
    if (root.clientWidth === drawnAt) return;
    drawnAt = root.clientWidth;
    for (const draw of drawings) draw();
  }).observe(root);
  addEventListener("pagehide", () => { if (busy) posted("cancel", {}).catch(() => {}); });
}
function waitForPlace() {
  const place = document.getElementById("studio");
  if (place) start(place).catch(complain); else setTimeout(waitForPlace, 50);
}
waitForPlace();
})();
