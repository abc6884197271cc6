// Draws the plots of a page. A plot is described by JSON: an x axis, and panels below each other,
// each with a y axis and marks. The charts of the web console import what they share with pages.

const SVG = "http://www.w3.org/2000/svg";
/** Width of every plot in its own units; the page scales it. */
const WIDTH = 1140;
/** Space above a panel with a name (between two panels, first) and without, below, and right. */
const BETWEEN = 44, NAMED = 30, PLAIN = 8, BOTTOM = 28, NAME = 18, RIGHT = 24;
/** Width of a letter of a text in a bar, about. */
const LETTER = 5.9;

/** Returns an element of SVG. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Returns the next round number: 1, 2 or 5 and a power of ten. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/** Returns the points between gaps, which are points that are `null`. */
function runs(points) {
  const all = [[]];
  for (const point of points) {
    if (point) all.at(-1).push(point);
    else all.push([]);
  }
  return all.filter((run) => run.length);
}

const text = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;

/** Returns the path of a curve through points in units of the picture, with gaps at `null`. */
export const line = (points) => runs(points).map((run) => `M${run.map(text).join("L")}`).join("");

/** Returns the path of what is between a curve and a height. */
export const area = (points, base) => runs(points).map((run) =>
  `${line(run)}L${text([run.at(-1)[0], base])}L${text([run[0][0], base])}Z`).join("");

/** Returns where values of an axis lie between two places; those beyond its ends lie on an edge. */
function scale({ ends: [low, high], log = false }, [from, to], slack = 0) {
  const place = log ? (value) => Math.log(Math.max(value, low * 1e-3)) : (value) => value;
  const first = place(low), span = place(high) - first || 1;
  return (value) => {
    const part = (place(value) - first) / span;
    return from + Math.max(-slack, Math.min(1 + slack, part)) * (to - from);
  };
}

/** Returns the numbers on an axis as pairs of value and label, and of class where it has one. */
function ticks({ ends, at, count = 5, step, unit = {} }) {
  const low = Math.min(...ends), high = Math.max(...ends);
  if (at) return at.filter(([value]) => value >= low && value <= high);
  const { before = "", after = "", times = 1, digits } = unit;
  const wide = step ?? roundUp(Math.max(high - low, 1e-9) / count);
  const decimals = digits ?? Math.max(0, Math.ceil(-Math.log10(wide * times) - 1e-9));
  const first = Math.ceil(low / wide - 1e-9), last = Math.floor(high / wide + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => {
    const value = (first + index) * wide;
    return [value, `${before}${(value * times).toFixed(decimals)}${after}`];
  });
}

/** Returns the smaller and the larger place of two values; without any, the ends of an axis. */
const between = (place, pair, { ends }) =>
  (pair ?? ends).map(place).sort((one, other) => one - other);

const shapes = {
  cross: (x, y) => `M${x - 4} ${y - 4}l8 8M${x - 4} ${y + 4}l8 -8`,
  down: (x, y) => `M${x} ${y}l-5 -7h10Z`,
  up: (x, y) => `M${x} ${y}l-5 9h10Z`,
};

/** What each kind of mark adds to a panel. `x` and `y` return the places of values. */
const marks = {
  curve(mark, { x, y, base }) {
    const points = mark.points.map((point) => point && [x(point[0]), y(point[1])]);
    const filled = mark.area && svg("path", { class: `area ${mark.class}`, d: area(points, base) });
    const curve = svg("path", { class: `curve ${mark.class}`, d: line(points) });
    return filled ? [filled, curve] : [curve];
  },
  dots(mark, { x, y }) {
    return mark.points.map(([at, value, title]) => {
      const [cx, cy] = [x(at), y(value)];
      const shape = mark.shape
        ? svg("path", { class: `${mark.shape} ${mark.class}`, d: shapes[mark.shape](cx, cy) })
        : svg("circle", { class: mark.class, cx, cy, r: mark.r ?? 4 });
      return titled(shape, title);
    });
  },
  bar(mark, { x, y, axes }) {
    const [left, right] = between(x, mark.x, axes.x), [top, bottom] = between(y, mark.y, axes.y);
    const size = { width: Math.max(right - left, 1), height: Math.max(bottom - top, 0.5) };
    return [titled(svg("rect", { class: mark.class, x: left, y: top, rx: 1.5, ...size }),
      mark.title)];
  },
  line(mark, { x, y, axes, above }) {
    const [x1, x2] = between(x, mark.x, axes.x), [y1, y2] = between(y, mark.y, axes.y);
    const drawn = [svg("line", { class: mark.class, x1, x2, y1, y2 })];
    if (!mark.text) return drawn;
    const at = x1 === x2
      ? { x: x1 + 5, y: y1 + (above ? -4 : 12) }
      : { x: x1 + 6, y: y1 - 5, class: "strong" };
    return [...drawn, svg("text", at, mark.text)];
  },
  whisker({ x: at, y: ends }, { x, y }) {
    const [top, bottom] = ends.map(y).sort((one, other) => one - other), middle = x(at);
    const ticks = [top, bottom].map((end) => `M${middle - 4} ${end}h8`).join("");
    return [svg("path", { class: "whisker", d: `M${middle} ${top}V${bottom}${ticks}` })];
  },
  text(mark, { x, y }) {
    const [dx, dy] = mark.by ?? [0, 0], [at, height] = [x(mark.at[0]), y(mark.at[1])];
    const place = mark.room ? fitting(mark, at, mark.room.map(x)) : mark;
    if (!place) return [];
    const side = place.anchor === "end" ? -Math.abs(dx) : dx;
    return [svg("text", { class: mark.class ?? "strong", x: at + side, y: height + dy,
      "text-anchor": place.anchor ?? "start" }, place.text)];
  },
};

/** Returns the text and side that has room right or left of a place, or the short text. */
function fitting({ text: whole, short }, at, [left, right]) {
  const wide = (words) => words.length * LETTER + 8;
  if (wide(whole) <= right - at) return { text: whole, anchor: "start" };
  if (wide(whole) <= at - left) return { text: whole, anchor: "end" };
  return short && wide(short) <= right - at ? { text: short, anchor: "start" } : null;
}

function titled(element, title) {
  if (title) element.dataset.title = title;
  return element;
}

/** Draws the axes and marks of one panel, whose plotted area is from `top` to `base`. */
function panel(spec, { left, end, x, axis }, top, base) {
  const y = scale(spec.y, [base, top], 0.02), group = svg("g"), lines = spec.y.grid ?? true;
  for (const [value, label, kind = "grid"] of ticks(spec.y)) {
    const at = y(value);
    if (lines) group.append(svg("line", { class: kind, x1: left, x2: end, y1: at, y2: at }));
    group.append(svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, label));
  }
  const name = spec.title ?? spec.y.name;
  if (name) group.append(svg("text", { class: "title", x: 0, y: top - 16 }, name));
  for (const [value, , kind = "grid"] of axis.grid ? ticks(axis) : []) {
    group.append(svg("line", { class: kind, x1: x(value), x2: x(value), y1: top, y2: base }));
  }
  const places = { x, y, base, axes: { x: axis, y: spec.y } };
  for (const mark of spec.marks) group.append(...marks[mark.kind](mark, places));
  return group;
}

/** Returns a plot as an SVG element. */
export function plot(spec) {
  const left = spec.left ?? 92, end = WIDTH - (spec.right ?? RIGHT);
  const x = scale(spec.x, [left, end]), frame = { left, end, x, axis: spec.x };
  const groups = [];
  let bottom = 0, first;
  for (const each of spec.panels) {
    const named = bottom > 0 ? BETWEEN : NAMED;
    const top = bottom + (each.title ?? each.y.name ? named : PLAIN);
    first ??= top;
    bottom = top + each.height;
    groups.push(panel(each, frame, top, bottom));
  }
  const height = bottom + BOTTOM + (spec.x.name ? NAME : 0);
  const unit = { ends: [0, 1] }, whole = { x, y: scale(unit, [bottom, first]), above: true };
  const over = (spec.over ?? []).flatMap((mark) =>
    marks[mark.kind](mark, { ...whole, axes: { x: spec.x, y: unit } }));
  const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img",
    "aria-label": spec.about }, ...over, ...groups);
  for (const [value, label] of ticks(spec.x)) {
    drawn.append(svg("text", { x: x(value), y: bottom + 18, "text-anchor": "middle" }, label));
  }
  if (spec.x.name) {
    const at = { x: (left + end) / 2, y: bottom + 38, "text-anchor": "middle" };
    drawn.append(svg("text", at, spec.x.name));
  }
  follow(drawn, spec, { left, end, first, bottom });
  return drawn;
}

/** Shows what is under the pointer: the title of a mark, or the values of curves with a name. */
function follow(drawn, spec, { left, end, first, bottom }) {
  const curves = Map.groupBy(spec.panels.flatMap((each) => each.marks)
    .filter((mark) => mark.name), (mark) => mark.name);
  const cursor = svg("line", { class: "mark", y1: first, y2: bottom, visibility: "hidden" });
  drawn.append(cursor);
  const leave = () => { cursor.setAttribute("visibility", "hidden"); tip().hidden = true; };
  drawn.addEventListener("pointerleave", leave);
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    const { ends: [low, high] } = spec.x, value = low + (at - left) / (end - left) * (high - low);
    const { title } = event.target.dataset;
    if (!title && (!curves.size || value < low || value > high)) return leave();
    if (curves.size) {
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      cursor.setAttribute("visibility", "visible");
    }
    const unit = spec.x.unit?.after ?? "";
    show(event, title ?? [`${value.toFixed(2)}${unit}`, ...[...curves].map(([name, parts]) => {
      const points = parts.flatMap((curve) => curve.points);
      const point = points.findLast((each) => each && each[0] <= value);
      return `${name}: ${point ? `${point[1].toFixed(1)}${parts[0].unit ?? ""}` : "–"}`;
    })].join("\n"));
  });
}

function tip() {
  const shown = document.getElementById("tip");
  if (shown) return shown;
  document.body.append(Object.assign(document.createElement("div"), { id: "tip", hidden: true }));
  return document.getElementById("tip");
}

function show(event, words) {
  const box = tip();
  box.textContent = words;
  box.hidden = false;
  const isRight = event.clientX + 18 + box.offsetWidth > innerWidth;
  const lowest = Math.max(0, innerHeight - box.offsetHeight - 8);
  box.style.left = `${isRight ? event.clientX - box.offsetWidth - 14 : event.clientX + 16}px`;
  box.style.top = `${Math.max(0, Math.min(event.clientY + 14, lowest))}px`;
}

for (const place of document.querySelectorAll("script.plot")) {
  place.replaceWith(plot(JSON.parse(place.textContent)));
}
