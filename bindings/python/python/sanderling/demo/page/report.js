"use strict";
const NS = "http://www.w3.org/2000/svg";
const MIB = 1 << 20;
const LEFT = 92, RIGHT = 16, WIDTH = 1140, PLOT = WIDTH - LEFT - RIGHT;
const LANE = 46, GAP = 8, BAND = 150, MOVES = 80, DOTS = 120, BETWEEN = 40;
const SMOOTH_SECONDS = 1;

const css = (name) => `var(--${name})`;
const span = (s) => s === null ? "–" : s < 1 ? `${(s * 1000).toFixed(0)} ms` : `${s.toFixed(2)} s`;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function size(bytes) {
  if (bytes >= 1024 * MIB) return `${(bytes / MIB / 1024).toFixed(2)} GiB`;
  if (bytes >= MIB) return `${(bytes / MIB).toFixed(1)} MiB`;
  return bytes >= 1024 ? `${(bytes / 1024).toFixed(0)} KiB` : `${Math.round(bytes)} B`;
}

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

function canvas(id, height, label) {
  const attributes = { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label };
  return draw(document.getElementById(id), "svg", attributes);
}

/** Returns round values from 0 to at least most of `max`, about `count` of them. */
function ticks(max, count) {
  const raw = max / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
  const last = Math.floor(max / step);
  return Array.from({ length: last + 1 }, (_, index) => +(index * step).toFixed(9));
}

function level(svg, y, text) {
  draw(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, class: "grid" });
  draw(svg, "text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, text);
}

const joined = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
const line = (points) => "M" + joined(points);

function area(points, base) {
  if (!points.length) return "";
  const first = points[0][0].toFixed(1), last = points[points.length - 1][0].toFixed(1);
  return `M${first},${base}L${joined(points)}L${last},${base}Z`;
}

function curve(svg, points, colour, width, opacity = 1) {
  const attributes = { fill: "none", stroke: css(colour), "stroke-width": width, opacity };
  draw(svg, "path", { d: line(points), "stroke-linejoin": "round", ...attributes });
}

function sum(...lists) {
  return lists[0].map((_, index) => lists.reduce((all, each) => all + each[index], 0));
}

/** Returns the moving mean over `SMOOTH_SECONDS`. */
function smooth(values) {
  const half = Math.max(1, Math.round(SMOOTH_SECONDS / DATA.step / 2));
  return values.map((_, index) => {
    const part = values.slice(Math.max(0, index - half), index + half + 1);
    return part.reduce((all, each) => all + each, 0) / part.length;
  });
}

const zeros = new Array(Math.floor(DATA.end / DATA.step) + 1).fill(0);
const series = (name) => DATA.series[name] || zeros;
const READ = series("query_read");
const WRITERS = sum(series("writer_write"), series("writer_read"));
const MOVE = series("relocation");
const LEAVING = DATA.lanes.flat().filter((each) => each.noticed !== null)
  .sort((a, b) => a.noticed - b.noticed);
const CALM_READ = READ.slice(0, Math.floor(DATA.rough / DATA.step));
const USUAL_READ = CALM_READ.reduce((all, each) => all + each, 0) / Math.max(1, CALM_READ.length);

function timeline() {
  const x = (t) => LEFT + (t / DATA.end) * PLOT;
  const fleetTop = 44, bandTop = fleetTop + DATA.lanes.length * (LANE + GAP) + 34;
  const movesTop = bandTop + BAND + BETWEEN, dotsTop = movesTop + MOVES + BETWEEN;
  const height = dotsTop + DOTS + 34, rough = x(DATA.rough);
  const svg = canvas("picture", height, "fleet, bandwidth and queries over time");
  draw(svg, "text", { x: LEFT, y: 16 }, "undisturbed");
  draw(svg, "text", { x: rough + 6, y: 16 }, "under preemptions");
  const border = { x1: rough, x2: rough, y1: 4, y2: height - 26 };
  draw(svg, "line", { ...border, class: "grid", "stroke-width": 2 });
  for (const each of LEAVING) {
    const from = x(each.noticed), width = x(each.killed ?? each.noticed) - from;
    const box = { y: fleetTop - 4, height: height - fleetTop - 22, fill: css("shade") };
    draw(svg, "rect", { x: from, width, ...box });
  }
  drawFleet(svg, x, fleetTop);
  drawBandwidth(svg, x, bandTop);
  drawMoves(svg, x, movesTop);
  drawAnswers(svg, x, dotsTop);
  for (const t of ticks(DATA.end, 10)) {
    draw(svg, "text", { x: x(t), y: height - 8, "text-anchor": "middle" }, `${t} s`);
  }
  hover(svg, x, height);
}

function drawFleet(svg, x, top) {
  draw(svg, "text", { x: 4, y: top - 12, class: "title" }, "bytes held");
  const held = DATA.lanes.flat().flatMap((each) => each.samples.map((sample) => sample[1]));
  const most = Math.max(1, ...held);
  DATA.lanes.forEach((lane, slot) => {
    const y0 = top + slot * (LANE + GAP), base = y0 + LANE;
    draw(svg, "text", { x: 4, y: base - LANE / 2 + 4 }, `machine ${slot + 1}`);
    draw(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: base, y2: base, class: "grid" });
    lane.forEach((each, turn) => {
      const colour = css(turn % 2 ? "held-next" : "held");
      const points = each.samples.map(([t, bytes]) => [x(t), base - (bytes / most) * (LANE - 4)]);
      draw(svg, "path", { d: area(points, base), fill: colour });
      const ends = { x1: x(each.from), x2: x(each.to), y1: base, y2: base };
      draw(svg, "line", { ...ends, stroke: colour, "stroke-width": 3 });
      if (each.noticed !== null) drawDeath(svg, x, each, y0, base);
    });
  });
}

function drawDeath(svg, x, each, y0, base) {
  const n = x(each.noticed), empty = each.drainedAfter ?? DATA.noticeSeconds;
  const width = Math.max(1.5, x(each.noticed + empty) - n);
  draw(svg, "rect", { x: n, y: y0, width, height: LANE, fill: css("move"), opacity: .55 });
  draw(svg, "path", { d: `M${n},${y0}l-5,-7h10Z`, fill: css("move") });
  if (each.killed === null) return;
  const k = x(each.killed) - 4, y = base - 13;
  const stroke = { stroke: css("bad"), "stroke-width": 2.2, fill: "none" };
  draw(svg, "path", { d: `M${k},${y}l8,8M${k},${y + 8}l8,-8`, ...stroke });
}

function drawBandwidth(svg, x, top) {
  const shown = [smooth(READ), smooth(WRITERS)], base = top + BAND;
  const most = Math.max(...shown.flat(), MIB) * 1.05;
  const y = (value) => base - Math.min(value / most, 1) * BAND;
  const middle = (index) => Math.min((index + .5) * DATA.step, DATA.end);
  const points = (values) => values.map((value, index) => [x(middle(index)), y(value)]);
  draw(svg, "text", { x: 4, y: top - 12, class: "title" },
    "bandwidth of the clients, MiB/s (moving means over a second)");
  for (const tick of ticks(most / MIB, 4)) level(svg, y(tick * MIB), tick);
  draw(svg, "path", { d: area(points(shown[0]), base), fill: css("query"), opacity: .3 });
  curve(svg, points(shown[0]), "query", 1.6);
  curve(svg, points(shown[1]), "writer", 1.6);
}

function drawMoves(svg, x, top) {
  const base = top + MOVES, most = Math.max(...MOVE, MIB) * 1.05;
  const y = (value) => base - value / most * MOVES;
  draw(svg, "text", { x: 4, y: top - 12, class: "title" }, "relocation, MiB/s");
  for (const tick of ticks(most / MIB, 2)) level(svg, y(tick * MIB), tick);
  const points = MOVE.map((value, index) => [x(Math.min(index * DATA.step, DATA.end)), y(value)]);
  draw(svg, "path", { d: area(points, base), fill: css("move") });
}

function drawAnswers(svg, x, top) {
  const low = Math.log2(.25), high = Math.log2(8), base = top + DOTS;
  const share = (ratio) => (clamp(Math.log2(ratio), low, high) - low) / (high - low);
  const y = (ratio) => base - share(ratio) * DOTS;
  draw(svg, "text", { x: 4, y: top - 12, class: "title" },
    "time of each query over its mean of the whole run");
  for (const tick of [.25, .5, 1, 2, 4, 8]) level(svg, y(tick), `${tick}×`);
  for (const [t, seconds, query, isRight, mean] of DATA.answers) {
    const look = isRight ? { r: 2.6, fill: css("query"), opacity: .6 } : { r: 5, fill: css("bad") };
    const at = { cx: x(t + seconds / 2), cy: y(seconds / mean) };
    const dot = draw(svg, "circle", { ...at, ...look });
    dot.dataset.tip = `<b>query ${query}</b> ${isRight ? "right" : "WRONG"}<br>${span(seconds)}` +
      `, mean ${span(mean)}`;
  }
  if (!DATA.stall) return;
  const [t, who, kind, took] = DATA.stall;
  const mark = draw(svg, "path", { d: `M${x(t)},${base + 2}l-5,9h10Z`, fill: css("bad") });
  mark.dataset.tip = `<b>longest stall</b><br>a ${who}’s ${kind} took ${span(took)}`;
}

function hover(svg, x, height) {
  const ends = { y1: 24, y2: height - 26 };
  const cross = draw(svg, "line", { ...ends, class: "cross", visibility: "hidden" });
  const leave = () => { cross.setAttribute("visibility", "hidden"); tip.hidden = true; };
  svg.addEventListener("mouseleave", leave);
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    const t = (at - LEFT) / PLOT * DATA.end;
    if (t < 0 || t > DATA.end) return leave();
    cross.setAttribute("x1", at);
    cross.setAttribute("x2", at);
    cross.setAttribute("visibility", "visible");
    show(event, event.target.dataset.tip || moment(t));
  });
}

const tip = document.getElementById("tip");

function show(event, text) {
  tip.innerHTML = text;
  tip.hidden = false;
  const isRight = event.clientX + 18 + tip.offsetWidth > innerWidth;
  const lowest = Math.max(0, innerHeight - tip.offsetHeight - 8);
  tip.style.left = `${isRight ? event.clientX - tip.offsetWidth - 14 : event.clientX + 16}px`;
  tip.style.top = `${clamp(event.clientY + 14, 0, lowest)}px`;
}

function moment(t) {
  const bin = Math.min(Math.floor(t / DATA.step), zeros.length - 1);
  const row = (name, value) => `<div class=row><span>${name}</span><span>${value}</span></div>`;
  const rate = (values) => `${size(values[bin] || 0)}/s`;
  let text = `<b>${t.toFixed(2)} s</b>` + row("queries read", rate(READ)) +
    row("writers", rate(WRITERS)) + row("relocation", rate(MOVE));
  DATA.lanes.forEach((lane, slot) => {
    const each = lane.findLast((one) => one.from <= t);
    text += row(`machine ${slot + 1}`, each ? state(each, t) : "starts");
  });
  return text;
}

function state(each, t) {
  if (each.killed !== null && t >= each.killed) return "killed, replacement starts";
  const sample = each.samples.findLast((one) => one[0] <= t);
  const held = sample ? size(sample[1]) : "joins";
  if (each.noticed === null || t < each.noticed) return `node ${each.node}: ${held}`;
  const left = Math.max((each.killed ?? DATA.end) - t, 0);
  return `node ${each.node} leaves in ${span(left)}: ${held}`;
}

/** Returns the bytes per second that left one node in each step of its window. */
function moved(each, before, count) {
  const bins = new Array(count).fill(0), samples = each.samples;
  for (let index = 1; index < samples.length; index++) {
    const bytes = samples[index][2] - samples[index - 1][2];
    const bin = Math.floor((samples[index][0] - each.noticed + before) / DATA.step);
    if (bytes > 0 && bin >= 0 && bin < count) bins[bin] += bytes / DATA.step;
  }
  return bins;
}

/** The notices laid over each other: what a reader sees before, during and after. */
function around() {
  const before = 3, after = DATA.noticeSeconds + 4, top = 30, movesTop = top + BAND + BETWEEN;
  const windows = LEAVING.filter((each) => each.noticed + after <= DATA.end);
  if (!windows.length) return document.getElementById("around").closest("section").remove();
  const svg = canvas("around", movesTop + MOVES + 34, "bandwidth around a notice");
  const x = (t) => LEFT + (t + before) / (before + after) * PLOT;
  const count = Math.floor((before + after) / DATA.step);
  const start = (each) => Math.floor((each.noticed - before) / DATA.step);
  const reads = windows.map((each) => READ.slice(start(each), start(each) + count));
  const moves = windows.map((each) => moved(each, before, count));
  const width = x(DATA.noticeSeconds) - x(0), height = movesTop + MOVES - top + 6;
  draw(svg, "rect", { x: x(0), y: top - 6, width, height, fill: css("shade") });
  draw(svg, "text", { x: x(0) + 4, y: top - 12 }, "notice");
  draw(svg, "text", { x: x(DATA.noticeSeconds) + 4, y: top - 12 }, "SIGKILL");
  const mean = (lists) => sum(...lists).map((value) => value / lists.length);
  const at = (index) => x(-before + (index + .5) * DATA.step);
  const panel = (lists, title, colour, y0, high, marks) => {
    const most = Math.max(MIB, USUAL_READ * (colour === "query"), ...lists.flat()) * 1.05;
    const y = (value) => y0 + high - value / most * high;
    const points = (values) => values.map((value, index) => [at(index), y(value)]);
    draw(svg, "text", { x: 4, y: y0 - 12, class: "title" }, title);
    for (const tick of ticks(most / MIB, marks)) level(svg, y(tick * MIB), tick);
    for (const values of lists) curve(svg, points(values), colour, 1, .35);
    curve(svg, points(mean(lists)), colour, 3);
    return y;
  };
  const y = panel(reads.map(smooth), "queries read, MiB/s", "query", top, BAND, 4);
  panel(moves, "relocation, MiB/s", "move", movesTop, MOVES, 2);
  const usual = { x1: LEFT, x2: WIDTH - RIGHT, y1: y(USUAL_READ), y2: y(USUAL_READ) };
  draw(svg, "line", { ...usual, stroke: css("query"), "stroke-dasharray": "6 5" });
  for (let t = -before; t <= after; t++) {
    const place = { x: x(t), y: movesTop + MOVES + 20, "text-anchor": "middle" };
    draw(svg, "text", place, `${t} s`);
  }
}

function tables() {
  const body = document.querySelector("#preempted tbody");
  for (const each of LEAVING) {
    const slot = DATA.lanes.findIndex((lane) => lane.includes(each));
    const hours = each.livedHours === null ? "–" : `${each.livedHours.toFixed(1)} h`;
    const cells = [`machine ${slot + 1}`, each.node, hours, `${each.noticed.toFixed(1)} s`,
      each.deferred > 0 ? span(each.deferred) : "–", size(each.held), size(each.moved),
      span(each.drainedAfter),
      each.killed === null ? "–" : span(each.killed - each.noticed), size(each.lost)];
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  const names = [["held", "bytes held by a machine"], ["held-next", "by its replacement"],
    ["move", "notice, and relocation"], ["bad", "SIGKILL, a wrong result, the longest stall"],
    ["query", "read by queries"], ["writer", "written and read by the writers"]];
  document.getElementById("legend").innerHTML = names.map(([colour, name]) =>
    `<li><i style="background:${css(colour)}"></i>${name}</li>`).join("");
}

timeline();
around();
tables();
