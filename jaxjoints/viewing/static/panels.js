// Controls: the player, the panel, the plot beside the picture, pointer and keys.
"use strict";

const element = (id) => document.getElementById(id);
const many = new Intl.NumberFormat("en");

/** A new element with a class and a text; texts are never read as markup. */
function make(tag, { text = "", kind = "", parent = null, ...more } = {}) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (kind) made.className = kind;
  Object.assign(made, more);
  if (parent) parent.append(made);
  return made;
}

function options(select, texts, chosen) {
  texts.forEach((text, value) => make("option", { text, value, parent: select }));
  select.value = chosen;
}

let stale = true;
const refresh = () => { stale = true; };

// Player.
const SPEEDS = [0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8];
let playing = false, speed = 1, last = 0;
const slider = element("slider");

function showTime() {
  slider.value = end > start ? (choice.time - start) / (end - start) : 0;
  const digits = end - start < 2 ? 3 : 2;
  element("clock").textContent = `${choice.time.toFixed(digits)} / ${end.toFixed(digits)} s`;
  refresh();
}

function seek(time) {
  choice.time = Math.min(end, Math.max(start, time));
  showTime();
}

function play(on) {
  playing = on && frames > 1;
  if (playing && choice.time >= end) choice.time = start;
  element("play").textContent = playing ? "❚❚" : "▶";
}

slider.addEventListener("input", () => {
  play(false);
  seek(start + slider.valueAsNumber * (end - start));
});
element("play").addEventListener("click", () => play(!playing));
options(element("speed"), SPEEDS.map((x) => `${x}×`), SPEEDS.indexOf(1));
element("speed").addEventListener("change", (event) => { speed = SPEEDS[event.target.value]; });
if (frames < 2) element("player").hidden = true;

// Layers.
const present = {
  geometry: motion.parts.some((part) => part.layer === "geometry"),
  skeleton: motion.parts.some((part) => part.layer === "skeleton"),
  inertia: motion.parts.some((part) => part.layer === "inertia"),
  com: true,
  joints: motion.joints.length > 0,
  axes: motion.joints.length > 0,
  limits: channels.limits.values.some(Number.isFinite),
  forces: usual.forces > 0,
  moments: usual.moments > 0,
  contacts: usual.contacts > 0,
  frames: true,
  traces: frames > 1,
  names: true,
  ground: true,
};
const byDefault = new Set(motion.drawn
  ? ["geometry", "contacts", "traces", "ground"]
  : ["geometry", "skeleton", "inertia", "joints", "limits", "contacts", "traces", "ground"]);
for (const [layer, title] of Object.entries(LAYERS)) {
  shown[layer] = present[layer] && byDefault.has(layer);
  if (!present[layer]) continue;
  const label = make("label", { kind: "row", parent: element("layers") });
  const box = make("input", { type: "checkbox", checked: shown[layer], parent: label });
  box.dataset.layer = layer;
  label.append(title);
  box.addEventListener("change", () => { shown[layer] = box.checked; refresh(); });
}
element("sizes").hidden = !(present.forces || present.moments || present.contacts);
element("arrows").addEventListener("input", (event) => {
  choice.arrows = 10 ** event.target.valueAsNumber;
  refresh();
});

// Environments and camera.
element("environments").hidden = environments < 2;
element("side").checked = choice.side;
element("side").addEventListener("change", (event) => {
  choice.side = event.target.checked;
  look("iso");
  refresh();
});
options(element("front"), motion.environments.map(String), 0);
element("front").addEventListener("change", (event) => { choice.front = Number(event.target.value); replot(); refresh(); });
for (const view of Object.keys(VIEWS)) {
  make("button", { text: view, type: "button", parent: element("views") }).addEventListener("click", () => {
    look(view);
    refresh();
  });
}
make("option", { text: "nothing", value: -1, parent: element("follow") });
motion.bodies.forEach((name, body) => make("option", { text: name, value: body, parent: element("follow") }));
element("follow").value = choice.follow;
element("follow").addEventListener("change", (event) => { choice.follow = Number(event.target.value); refresh(); });
orbit.addEventListener("change", refresh);

// Joints and their coordinates: values at the time, and which are plotted.
const quantities = {
  coordinates: { title: "coordinate", unit: (k) => (motion.turning[k] ? "rad" : "m"), array: channels.coordinates },
  speeds: { title: "speed", unit: (k) => (motion.turning[k] ? "rad/s" : "m/s"), array: channels.speeds },
};
if (channels.limitForces) {
  quantities.limitForces = { title: "force of limits", unit: (k) => (motion.turning[k] ? "N m" : "N"), array: channels.limitForces };
}
const wholes = {
  energies: { title: "energy [J]", array: channels.energies, series: ["kinetic", "gravity", "springs"] },
  errors: { title: "joint errors [m or rad]", array: channels.errors, series: motion.joints.map((joint) => joint.name) },
  ...(motion.contacts.length ? { gaps: { title: "gaps [m]", array: channels.gaps, series: motion.contacts } } : {}),
};
options(element("quantity"), [...Object.values(quantities).map((x) => x.title), ...Object.values(wholes).map((x) => x.title)], 0);
const quantityNames = [...Object.keys(quantities), ...Object.keys(wholes)];
const plotted = new Set();
const values = [];
for (const joint of motion.joints) {
  const many = joint.dof;
  if (many !== 1) {
    const row = make("li", { parent: element("joints") });
    make("span", { kind: "name", text: joint.name, title: `${joint.name} (${joint.type})`, parent: row });
    make("span", { kind: "value", text: joint.dof ? "" : "fixed", parent: row });
  }
  for (let i = 0; i < many; i++) {
    const row = make("li", { kind: many > 1 ? "of" : "", parent: element("joints") });
    const label = make("label", { parent: row });
    const box = make("input", { type: "checkbox", title: "plot", parent: label });
    const name = many > 1 ? `${i}` : joint.name;
    make("span", { kind: "name", text: name, title: `${joint.name} (${joint.type})`, parent: label });
    const index = joint.start + i;
    values.push({ index, cell: make("span", { kind: "value", parent: row }) });
    box.dataset.coordinate = index;
    box.addEventListener("change", () => {
      if (box.checked) plotted.add(index); else plotted.delete(index);
      replot();
    });
  }
}
element("quantity").addEventListener("change", () => replot(true));

/** The name of a coordinate: that of its joint, with a number where it has several. */
function coordinateName(index) {
  const joint = motion.joints.find((one) => index >= one.start && index < one.start + one.dof);
  return joint.dof > 1 ? `${joint.name} ${index - joint.start}` : joint.name;
}

function showValues() {
  for (const { index, cell } of values) {
    const value = coordinateAt(now, choice.front, index);
    cell.textContent = `${value.toFixed(3).replace(/^-(0\.0*)$/, "$1")} ${motion.turning[index] ? "rad" : "m"}`;
    cell.classList.toggle("active", shown.limits && limitActive(now, choice.front, index));
  }
}

// Bodies: which leave a trace.
const traceColor = (body) => {
  const [red, green, blue] = motion.colors[body % motion.colors.length];
  return new Color().setRGB(red, green, blue, "srgb").offsetHSL(0, 0.1, -0.08);
};
motion.bodies.forEach((name, body) => {
  const row = make("li", { parent: element("bodies") });
  const label = make("label", { parent: row });
  const box = make("input", { type: "checkbox", title: "trace", parent: label });
  make("span", { kind: "name", text: name, title: name, parent: label });
  const points = motion.traces.filter((trace) => trace.body === body).map((trace) => trace.point);
  const draw = () => {
    removeTraces(body);
    for (let environment = 0; box.checked && environment < environments; environment++) {
      const k = place(channels.com, environment, body);
      const all = points.length ? points : [channels.com.values.slice(k, k + 3)];
      for (const point of all) addTrace(body, point, environment, traceColor(body));
    }
    refresh();
  };
  box.checked = points.length > 0;
  box.dataset.body = body;
  box.addEventListener("change", draw);
  draw();
});

// Plot, linked with the time.
const PLOT_COLORS = ["#2f6db3", "#d9822b", "#3a8f5c", "#b8474f", "#7a5fb0", "#2a9d9d", "#93822f", "#5d6875"];
let chart = null, opened = false;

/** Names, colours, values over time and bounds of what is plotted. */
function series() {
  const key = quantityNames[Number(element("quantity").value)];
  const of = (array, item) => Array.from({ length: frames }, (_, f) => array.values[place(array, f, choice.front, item)]);
  if (key in wholes) {
    const { title, array, series: names } = wholes[key];
    const stride = key === "energies" ? 3 : 0;
    let items = names.map((name, i) => ({ name, values: stride
      ? Array.from({ length: frames }, (_, f) => array.values[place(array, f, choice.front) + i]) : of(array, i) }));
    items = items.filter((item) => item.values.some((x) => Math.abs(x) > 0));
    if (stride) items.push({ name: "total", values: items.length ? items[0].values.map((_, f) => items.reduce((sum, item) => sum + item.values[f], 0)) : [] });
    return { title, items: items.slice(0, 12) };
  }
  const { title, unit, array } = quantities[key], chosen = [...plotted].sort((a, b) => a - b);
  const units = [...new Set(chosen.map(unit))].join(", ");
  const items = chosen.map((k) => ({
    name: coordinateName(k), values: of(array, k),
    bounds: key === "coordinates" ? limitsOf(choice.front, k).filter(Number.isFinite) : [],
  }));
  return { title: `${title} [${units}]`, items };
}

/** A number as an axis has it, however small. */
const short = (x) => String(Number(x.toPrecision(3)));

/** Ends of the axis of values: room about what is plotted, where that is constant too. */
function valueRange(_, low, high) {
  if (low === null) return [0, 1];
  const room = 0.1 * (high - low) || 0.1 * Math.abs(high) || 0.1;
  return [low - room, high + room];
}

function plotSize() {
  return { width: element("plot").clientWidth - 16, height: element("plot").clientHeight - 12 };
}

function replot(open = false) {
  const { title, items } = series(), box = element("plot");
  opened = open === true || items.length > 0;
  if (chart) chart.destroy();
  chart = null;
  // A single frame has no course to plot.
  box.hidden = frames < 2 || !items.length || !opened;
  relayout();
  if (box.hidden) return;
  const style = { stroke: "#6b7683", grid: { stroke: "#e3e7ec", width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 54 };
  chart = new vendor.uPlot({
    ...plotSize(), padding: [26, 14, 0, 0], legend: { show: false },
    scales: { x: { time: false }, y: { range: valueRange } },
    cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
    axes: [{ ...style, size: 26 }, { ...style, values: (_, marks) => marks.map(short) }],
    series: [{}, ...items.map((item, i) => ({ label: `${i}`, stroke: PLOT_COLORS[i % PLOT_COLORS.length], width: 1.6 }))],
    hooks: { draw: [(u) => drawOnPlot(u, title, items)], drawClear: [(u) => shadeBounds(u, items)] },
  }, [Array.from(channels.time.values), ...items.map((item) => item.values)], box);
  chart.over.addEventListener("pointerdown", (event) => scrub(event));
  chart.over.addEventListener("pointermove", (event) => event.buttons && scrub(event));
}

function scrub(event) {
  play(false);
  seek(chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, "x"));
}

/** What lies beyond the bounds of a coordinate, shaded. */
function shadeBounds(u, items) {
  const { left, top, width, height } = u.bbox, c = u.ctx;
  c.save();
  c.beginPath();
  c.rect(left, top, width, height);
  c.clip();
  items.forEach((item, i) => {
    if (!item.bounds) return;
    for (const bound of item.bounds) {
      const y = u.valToPos(bound, "y", true), lower = bound === Math.min(...item.bounds);
      const upperOnly = item.bounds.length === 1 && item.values[0] < bound;
      c.fillStyle = `${PLOT_COLORS[i % PLOT_COLORS.length]}1c`;
      if (lower && !upperOnly) c.fillRect(left, y, width, top + height - y);
      else c.fillRect(left, top, width, y - top);
      c.strokeStyle = `${PLOT_COLORS[i % PLOT_COLORS.length]}80`;
      c.setLineDash([5, 4]);
      c.strokeRect(left, y, width, 0);
    }
  });
  c.restore();
}

/** The line of the time, the names of the series and the title. */
function drawOnPlot(u, title, items) {
  const { left, top, width, height } = u.bbox, c = u.ctx, ratio = devicePixelRatio;
  const x = u.valToPos(choice.time, "x", true);
  c.save();
  c.fillStyle = "#27303b";
  if (x >= left && x <= left + width) c.fillRect(x - 0.5 * ratio, top, ratio, height);
  c.font = `${12 * ratio}px system-ui, 'Liberation Sans', sans-serif`;
  c.textAlign = "left";
  c.textBaseline = "middle";
  let at = 10 * ratio;
  const row = 14 * ratio;
  c.fillText(title, at, row);
  at += c.measureText(title).width + 14 * ratio;
  items.forEach((item, i) => {
    const name = item.name.length > 18 ? `${item.name.slice(0, 17)}…` : item.name;
    if (at + c.measureText(name).width > u.ctx.canvas.width - 20 * ratio) return;
    c.fillStyle = PLOT_COLORS[i % PLOT_COLORS.length];
    c.fillText(name, at, row);
    at += c.measureText(name).width + 12 * ratio;
  });
  c.restore();
}

element("close").addEventListener("click", () => {
  plotted.clear();
  for (const box of element("joints").querySelectorAll("input")) box.checked = false;
  element("quantity").value = 0;
  replot();
});

// Panel, heading, notes.
document.querySelector("h1").textContent = motion.title;
const moving = motion.bodies.length, count = motion.joints.length, touching = motion.contacts.length;
element("counts").textContent = [
  `${many.format(moving)} ${moving === 1 ? "body" : "bodies"}`,
  `${many.format(count)} ${count === 1 ? "joint" : "joints"}`,
  ...(touching ? [`${many.format(touching)} ${touching === 1 ? "contact" : "contacts"}`] : []),
  ...(environments > 1 ? [`${environments} environments`] : []),
  `grid of ${Number(spacing.toPrecision(3))} m`,
].join(" · ");
element("remarks").hidden = !motion.notes.length;
for (const note of motion.notes) make("li", { text: note, parent: element("notes") });
element("toggle").addEventListener("click", () => { document.body.classList.toggle("closed"); relayout(); });
if (innerWidth < 760) document.body.classList.add("closed");

function relayout() {
  resize();
  if (chart) chart.setSize(plotSize());
  refresh();
}
addEventListener("resize", relayout);

addEventListener("keydown", (event) => {
  if (/^(INPUT|SELECT)$/.test(event.target.tagName) && event.key !== "Escape") return;
  const step = (end - start) / Math.max(1, frames - 1);
  const keys = {
    " ": () => play(!playing),
    ArrowRight: () => seek(choice.time + step),
    ArrowLeft: () => seek(choice.time - step),
    Home: () => seek(start),
    End: () => seek(end),
    h: () => { document.body.classList.toggle("closed"); relayout(); },
    b: () => { document.body.classList.toggle("bare"); relayout(); },
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

// What is under the pointer, looked for when it rests.
let resting = 0;
addEventListener("pointermove", (event) => {
  element("tip").hidden = true;
  clearTimeout(resting);
  if (event.target !== renderer.domElement || event.buttons) return;
  resting = setTimeout(() => {
    const said = under(event.clientX, event.clientY);
    if (!said) return;
    const tip = element("tip");
    tip.textContent = said;
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  }, 60);
});

function tick(milliseconds) {
  if (playing) {
    choice.time += (Math.min(milliseconds - last, 100) / 1000) * speed;
    // From the end it begins again, after a moment's rest there.
    if (choice.time > end + 0.4 * speed) choice.time = start;
    showTime();
  }
  last = milliseconds;
  if (stale) {
    stale = false;
    choice.time = Math.min(choice.time, playing ? Infinity : end);
    draw();
    showValues();
    if (chart) chart.redraw(false);
  }
  requestAnimationFrame(tick);
}

resize();
look("iso");
showTime();
requestAnimationFrame(tick);

// For scripts: what is shown, and where a body is in the world at the shown time [m].
window.viewer = {
  bodies: motion.bodies,
  environments: motion.environments,
  start, end, seek, play, look,
  position(body, environment = 0) {
    poseAt(frameAt(choice.time), environment, motion.bodies.indexOf(body), p, q);
    return p.toArray();
  },
  drawn: (layer) => [...swarms.values()].filter((s) => s.layer === layer).reduce((sum, s) => sum + s.mesh.count, 0),
};
