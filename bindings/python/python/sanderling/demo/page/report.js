"use strict";
const NS = "http://www.w3.org/2000/svg";
const MIB = 1 << 20;
const LEFT = 92, RIGHT = 16, WIDTH = 1140;
const LANE = 46, GAP = 8, BAND = 190, DOTS = 120;

const css = (name) => `var(--${name})`;
const size = (bytes) => bytes >= 1024 * MIB ? `${(bytes / MIB / 1024).toFixed(2)} GiB`
  : bytes >= MIB ? `${(bytes / MIB).toFixed(1)} MiB` : bytes >= 1024 ? `${(bytes / 1024).toFixed(0)} KiB`
  : `${bytes} B`;
const span = (s) => s === null ? "–" : s < 1 ? `${(s * 1000).toFixed(0)} ms` : `${s.toFixed(2)} s`;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

/** Returns round values from 0 to at least most of `max`, about `count` of them. */
function ticks(max, count) {
  const raw = max / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
  return Array.from({ length: Math.floor(max / step) + 1 }, (_, index) => +(index * step).toFixed(9));
}

function area(points, base) {
  if (!points.length) return "";
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
  return `M${points[0][0].toFixed(1)},${base}L${line}L${points[points.length - 1][0].toFixed(1)},${base}Z`;
}

const line = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
const sum = (...lists) => lists[0].map((_, index) => lists.reduce((all, each) => all + each[index], 0));
const zeros = new Array(Math.ceil(DATA.end / DATA.step) + 1).fill(0);
const series = (name) => DATA.series[name] || zeros;
const READ = series("query_read");
const WRITERS = sum(series("writer_write"), series("writer_read"));
const MOVE = series("relocation");
const LEAVING = DATA.lanes.flat().filter((each) => each.noticed !== null)
  .sort((a, b) => a.noticed - b.noticed);

function timeline() {
  const lanes = DATA.lanes.length, x = (t) => LEFT + (t / DATA.end) * (WIDTH - LEFT - RIGHT);
  const fleetTop = 40, fleetEnd = fleetTop + lanes * (LANE + GAP);
  const bandTop = fleetEnd + 34, dotsTop = bandTop + BAND + 40, height = dotsTop + DOTS + 34;
  const svg = draw(document.getElementById("picture"), "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": "fleet, bandwidth and queries over time" });
  draw(svg, "text", { x: LEFT, y: 16 }, "undisturbed");
  draw(svg, "text", { x: x(DATA.rough) + 6, y: 16 }, "under preemptions");
  draw(svg, "line", { x1: x(DATA.rough), x2: x(DATA.rough), y1: 4, y2: height - 26, class: "grid",
    "stroke-width": 2 });
  for (const each of LEAVING) {
    draw(svg, "rect", { x: x(each.noticed), width: x(each.killed ?? each.noticed) - x(each.noticed),
      y: fleetTop - 4, height: height - fleetTop - 22, fill: css("shade") });
  }
  drawFleet(svg, x, fleetTop);
  drawBandwidth(svg, x, bandTop);
  drawAnswers(svg, x, dotsTop);
  for (const t of ticks(DATA.end, 10)) {
    if (t > DATA.end) continue;
    draw(svg, "text", { x: x(t), y: height - 8, "text-anchor": "middle" }, `${t} s`);
  }
  hover(svg, x, height);
}

function drawFleet(svg, x, top) {
  draw(svg, "text", { x: 4, y: top - 8, class: "title" }, "bytes held");
  const most = Math.max(1, ...DATA.lanes.flat().flatMap((each) => each.samples.map((s) => s[1])));
  DATA.lanes.forEach((lane, slot) => {
    const y0 = top + slot * (LANE + GAP), base = y0 + LANE;
    draw(svg, "text", { x: 4, y: base - LANE / 2 + 4 }, `machine ${slot + 1}`);
    draw(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: base, y2: base, class: "grid" });
    lane.forEach((each, turn) => {
      const points = each.samples.map(([t, held]) => [x(t), base - (held / most) * (LANE - 4)]);
      draw(svg, "path", { d: area(points, base), fill: css(turn % 2 ? "held-next" : "held") });
      draw(svg, "line", { x1: x(each.from), x2: x(each.to), y1: base, y2: base,
        stroke: css(turn % 2 ? "held-next" : "held"), "stroke-width": 3 });
      if (each.noticed !== null) drawDeath(svg, x, each, y0, base);
    });
  });
}

function drawDeath(svg, x, each, y0, base) {
  const n = x(each.noticed);
  draw(svg, "rect", { x: n, width: Math.max(1.5, x(each.noticed + (each.drainedAfter ?? DATA.noticeSeconds)) - n),
    y: y0, height: LANE, fill: css("move"), opacity: .55 });
  draw(svg, "path", { d: `M${n},${y0}l-5,-7h10Z`, fill: css("move") });
  if (each.killed === null) return;
  const k = x(each.killed), y = base - 9;
  draw(svg, "path", { d: `M${k - 4},${y - 4}l8,8M${k - 4},${y + 4}l8,-8`, stroke: css("bad"),
    "stroke-width": 2.2, fill: "none" });
}

function drawBandwidth(svg, x, top) {
  const most = Math.max(...READ, ...WRITERS, ...MOVE, MIB) * 1.05, base = top + BAND;
  const y = (value) => base - (value / most) * BAND;
  draw(svg, "text", { x: 4, y: top - 12, class: "title" }, "bandwidth, MiB/s");
  for (const tick of ticks(most / MIB, 4)) {
    draw(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick * MIB), y2: y(tick * MIB), class: "grid" });
    draw(svg, "text", { x: LEFT - 8, y: y(tick * MIB) + 4, "text-anchor": "end" }, tick);
  }
  const points = (values) => values.map((value, index) => [x(Math.min(index * DATA.step + DATA.step / 2,
    DATA.end)), y(value)]);
  draw(svg, "path", { d: area(points(READ), base), fill: css("query"), opacity: .3 });
  draw(svg, "path", { d: line(points(READ)), fill: "none", stroke: css("query"), "stroke-width": 1 });
  draw(svg, "path", { d: line(points(WRITERS)), fill: "none", stroke: css("writer"), "stroke-width": 1.3 });
  draw(svg, "path", { d: area(points(MOVE), base), fill: css("move"), opacity: .85 });
}

function drawAnswers(svg, x, top) {
  const low = Math.log2(.25), high = Math.log2(8), base = top + DOTS;
  const y = (ratio) => base - (clamp(Math.log2(ratio), low, high) - low) / (high - low) * DOTS;
  draw(svg, "text", { x: 4, y: top - 12, class: "title" }, "each query’s time over its undisturbed mean");
  for (const tick of [.25, .5, 1, 2, 4, 8]) {
    draw(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick), class: "grid" });
    draw(svg, "text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, `${tick}×`);
  }
  for (const [t, seconds, query, isRight, mean] of DATA.answers) {
    const dot = draw(svg, "circle", { cx: x(t + seconds / 2), cy: y(mean ? seconds / mean : 1),
      r: isRight ? 2.6 : 5, fill: css(isRight ? "query" : "bad"), opacity: isRight ? .6 : 1 });
    dot.dataset.tip = `<b>query ${query}</b> ${isRight ? "right" : "WRONG"}<br>${span(seconds)}` +
      (mean ? `, undisturbed ${span(mean)}` : "");
  }
  if (DATA.stall) {
    const [t, who, kind, took] = DATA.stall, at = x(t);
    const mark = draw(svg, "path", { d: `M${at},${base + 2}l-5,9h10Z`, fill: css("bad") });
    mark.dataset.tip = `<b>longest stall</b><br>a ${who}’s ${kind} took ${span(took)}`;
  }
}

function hover(svg, x, height) {
  const cross = draw(svg, "line", { y1: 24, y2: height - 26, class: "cross", visibility: "hidden" });
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    const t = (at - LEFT) / (WIDTH - LEFT - RIGHT) * DATA.end;
    if (t < 0 || t > DATA.end) return leave();
    cross.setAttribute("x1", at); cross.setAttribute("x2", at);
    cross.setAttribute("visibility", "visible");
    show(event, event.target.dataset.tip || moment(t));
  });
  const leave = () => { cross.setAttribute("visibility", "hidden"); tip.hidden = true; };
  svg.addEventListener("mouseleave", leave);
}

const tip = document.getElementById("tip");

function show(event, text) {
  tip.innerHTML = text;
  tip.hidden = false;
  const right = event.clientX + 18 + tip.offsetWidth > innerWidth;
  tip.style.left = `${right ? event.clientX - tip.offsetWidth - 14 : event.clientX + 16}px`;
  tip.style.top = `${clamp(event.clientY + 14, 0, Math.max(0, innerHeight - tip.offsetHeight - 8))}px`;
}

function moment(t) {
  const bin = Math.min(Math.floor(t / DATA.step), zeros.length - 1);
  const row = (name, value) => `<div class=row><span>${name}</span><span>${value}</span></div>`;
  const rate = (value) => `${size(value)}/s`;
  let text = `<b>${t.toFixed(2)} s</b>` + row("queries read", rate(READ[bin] || 0)) +
    row("writers", rate(WRITERS[bin] || 0)) + row("relocation", rate(MOVE[bin] || 0));
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
  return `node ${each.node} leaves in ${span(Math.max(each.killed - t, 0))}: ${held}`;
}

/** The notices laid over each other: what a reader sees before, during and after. */
function around() {
  const before = 3, after = DATA.noticeSeconds + 4, high = 240, top = 30;
  const windows = LEAVING.filter((each) => each.noticed + after <= DATA.end);
  const host = document.getElementById("around");
  if (!windows.length) return host.closest("section").remove();
  const svg = draw(host, "svg", { viewBox: `0 0 ${WIDTH} ${high + top + 40}`, role: "img",
    "aria-label": "bandwidth around a notice" });
  const x = (t) => LEFT + (t + before) / (before + after) * (WIDTH - LEFT - RIGHT);
  const count = Math.floor((before + after) / DATA.step);
  const cut = (values, each) => Array.from({ length: count }, (_, index) =>
    values[Math.floor((each.noticed - before) / DATA.step) + index] || 0);
  const sets = [[READ, "query"], [MOVE, "move"]].map(([values, colour]) =>
    ({ colour, lines: windows.map((each) => cut(values, each)) }));
  const most = Math.max(MIB, ...sets.flatMap((set) => set.lines.flat())) * 1.05;
  const y = (value) => top + high - value / most * high;
  draw(svg, "rect", { x: x(0), width: x(DATA.noticeSeconds) - x(0), y: top - 6, height: high + 6,
    fill: css("shade") });
  draw(svg, "text", { x: x(0) + 4, y: top - 12 }, "notice");
  draw(svg, "text", { x: x(DATA.noticeSeconds) + 4, y: top - 12 }, "SIGKILL");
  draw(svg, "text", { x: 4, y: top - 12, class: "title" }, "MiB/s");
  for (const tick of ticks(most / MIB, 4)) {
    draw(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick * MIB), y2: y(tick * MIB), class: "grid" });
    draw(svg, "text", { x: LEFT - 8, y: y(tick * MIB) + 4, "text-anchor": "end" }, tick);
  }
  for (let t = -before; t <= after; t++) {
    draw(svg, "text", { x: x(t), y: top + high + 20, "text-anchor": "middle" }, `${t} s`);
  }
  const points = (values) => values.map((value, index) => [x(-before + (index + .5) * DATA.step), y(value)]);
  for (const { colour, lines } of sets) {
    for (const values of lines) {
      draw(svg, "path", { d: line(points(values)), fill: "none", stroke: css(colour), opacity: .22 });
    }
    const mean = sum(...lines).map((value) => value / lines.length);
    draw(svg, "path", { d: line(points(mean)), fill: "none", stroke: css(colour), "stroke-width": 3 });
  }
}

function tables() {
  const body = document.querySelector("#preempted tbody");
  for (const each of LEAVING) {
    const slot = DATA.lanes.findIndex((lane) => lane.includes(each));
    const hours = each.livedHours === null ? "–" : `${each.livedHours.toFixed(1)} h`;
    const cells = [`machine ${slot + 1}`, each.node, hours, `${each.noticed.toFixed(1)} s`,
      size(each.held), size(each.moved), span(each.drainedAfter),
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
