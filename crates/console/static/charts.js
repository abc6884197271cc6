// The last hour as four charts. The server has the samples; new ones come with the stream.

import { area, line, roundUp, svg } from "./plot.js";
import { bytes, count, el, rate, setText, time } from "./text.js";

const HOUR = 3600;
/** The shortest time that a chart shows, and the step by which it grows with the samples. */
const SPAN = 600;
const WIDTH = 360;
const HEIGHT = 96;

const SPECS = [
  {
    title: "Client traffic", format: rate,
    series: [["Read", "read_bytes_per_second"], ["Written", "written_bytes_per_second"]],
  },
  {
    title: "Moved between nodes", format: rate,
    series: [["Moved", "pushed_bytes_per_second"]],
  },
  {
    title: "Stored and exposed", format: bytes,
    series: [["Stored", "used_bytes"], ["Exposed", "exposure_bytes"]],
  },
  {
    title: "Nodes", format: count,
    series: [["All", "nodes"], ["Draining", "draining_nodes"]],
  },
];

/** The next round number, so that the axis has a mark that reads well. */
function ceiling(value, isBytes) {
  if (value <= 1) return 1;
  return isBytes ? 2 ** Math.ceil(Math.log2(value)) : roundUp(value);
}

export class Charts {
  #draw;
  #fields = [];
  #samples = [];
  #step = 5;
  #charts;
  #loading = false;

  constructor(place, draw) {
    this.#draw = draw;
    this.#charts = SPECS.map((spec) => this.#chart(place, spec));
  }

  /** Reads the last hour; what the page has from before a restart of the server stays. */
  async load(read) {
    if (this.#loading) return;
    this.#loading = true;
    try {
      const history = await read();
      this.#fields = history.fields;
      this.#step = history.step_millis / 1000;
      const first = history.samples[0]?.[0] ?? Infinity;
      const kept = this.#samples.filter((sample) => sample[0] < first);
      this.#samples = [...kept, ...history.samples];
      this.#trim();
      this.#draw(this.draw);
    } catch {
      // The stream brings the samples from now on.
    } finally {
      this.#loading = false;
    }
  }

  add(sample) {
    if (sample[0] <= (this.#samples.at(-1)?.[0] ?? 0)) return;
    this.#samples.push(sample);
    this.#trim();
    this.#draw(this.draw);
  }

  #trim() {
    const first = (this.#samples.at(-1)?.[0] ?? 0) - HOUR;
    const at = this.#samples.findIndex((sample) => sample[0] >= first);
    if (at > 0) this.#samples.splice(0, at);
  }

  #chart(place, spec) {
    const legend = spec.series.map(([name], at) => {
      const value = el("b");
      const item = el("span", { className: `key key-${at}` }, el("i"), `${name} `, value);
      return { item, value };
    });
    const paths = spec.series.map((_, at) => svg("path", { class: `line line-${at}` }));
    const shade = svg("path", { class: "area" });
    const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, x1: -9, x2: -9 });
    const grid = [0.5, 1].map((part) => svg("line", {
      class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * (1 - part) + 0.5, y2: HEIGHT * (1 - part) + 0.5,
    }));
    const picture = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    }, ...grid, shade, ...paths, cursor);
    const chart = {
      spec, legend, paths, shade, cursor, picture, hover: null,
      start: el("span"),
      top: el("span", { className: "axis" }), when: el("span", { className: "axis when" }),
      table: el("tbody"),
    };
    const head = spec.series.map(([name]) => el("th", { scope: "col", textContent: name }));
    const table = el("table", {}, el("thead", {}, el("tr", {},
      el("th", { scope: "col", textContent: "Time" }), ...head)), chart.table);
    const details = el("details", {}, el("summary", { textContent: "As a table" }), table);
    details.addEventListener("toggle", () => this.#draw(this.draw));
    chart.details = details;
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      chart.hover = (event.clientX - box.left) / box.width;
      this.#draw(this.draw);
    });
    picture.addEventListener("pointerleave", () => {
      chart.hover = null;
      this.#draw(this.draw);
    });
    place.append(el("article", { className: "card chart" },
      el("h3", { textContent: spec.title }),
      el("p", { className: "legend" }, ...legend.map(({ item }) => item)),
      el("div", { className: "plot" }, picture, chart.top, chart.when),
      el("p", { className: "span", "aria-hidden": "true" }, chart.start,
        el("span", {}, "now")), details));
    return chart;
  }

  draw = () => {
    for (const chart of this.#charts) this.#fill(chart);
  };

  #fill(chart) {
    const { spec } = chart;
    const last = this.#samples.at(-1)?.[0] ?? 0;
    const known = last - (this.#samples[0]?.[0] ?? last);
    const shownSeconds = Math.min(HOUR, Math.max(1, Math.ceil(known / SPAN)) * SPAN);
    chart.seconds = shownSeconds;
    setText(chart.start, shownSeconds === HOUR ? "1 h ago" : `${shownSeconds / 60} min ago`);
    const columns = spec.series.map(([, field]) => this.#fields.indexOf(field));
    const values = (sample) => columns.map((column) => sample[column] ?? 0);
    const most = Math.max(...this.#samples.map((sample) => Math.max(...values(sample))), 0);
    const top = ceiling(most, spec.format !== count);
    const x = (sample) => WIDTH * (1 - (last - sample[0]) / shownSeconds);
    const y = (value) => HEIGHT * (1 - value / top);
    columns.forEach((column, at) => {
      const points = this.#points((sample) => [x(sample), y(sample[column] ?? 0)]);
      chart.paths[at].setAttribute("d", line(points));
      if (at === 0) chart.shade.setAttribute("d", area(points, HEIGHT));
    });
    setText(chart.top, most > 0 ? spec.format(top) : "");
    const shown = this.#at(chart, last);
    setText(chart.when, chart.hover === null || !shown ? "" : time(shown[0] * 1000));
    spec.series.forEach((_, at) => {
      setText(chart.legend[at].value, shown ? spec.format(values(shown)[at]) : "–");
    });
    const where = chart.hover === null || !shown ? -9 : x(shown);
    chart.cursor.setAttribute("x1", where);
    chart.cursor.setAttribute("x2", where);
    const now = spec.series.map(([name], at) => {
      const of = this.#samples.map((sample) => values(sample)[at]);
      const [first, peak] = [of.at(-1) ?? 0, Math.max(0, ...of)];
      return `${name} now ${spec.format(first)}, at most ${spec.format(peak)}`;
    });
    chart.picture.setAttribute("aria-label", `${spec.title}, last hour: ${now.join("; ")}`);
    if (chart.details.open) this.#rows(chart, values);
  }

  /** The points of a curve, with a gap where samples are missing. */
  #points(point) {
    const times = this.#samples.map((sample) => sample[0]);
    const isLate = (at) => at > 0 && times[at] - times[at - 1] > 3 * this.#step;
    return this.#samples.flatMap((sample, at) =>
      isLate(at) ? [null, point(sample)] : [point(sample)]);
  }

  #at(chart, last) {
    if (chart.hover === null) return this.#samples.at(-1);
    const wanted = last - chart.seconds * (1 - chart.hover);
    return this.#samples.find((sample) => sample[0] >= wanted) ?? this.#samples.at(-1);
  }

  /** One row for five minutes: the mean of each series. */
  #rows({ spec, table }, values) {
    const groups = new Map();
    for (const sample of this.#samples) {
      const at = Math.floor(sample[0] / 300) * 300;
      groups.set(at, [...(groups.get(at) ?? []), values(sample)]);
    }
    const mean = (rows, at) => rows.reduce((all, row) => all + row[at], 0) / rows.length;
    table.replaceChildren(...[...groups].reverse().map(([at, rows]) => el("tr", {},
      el("th", { scope: "row", textContent: time(at * 1000) }),
      ...spec.series.map((_, series) => el("td", {
        textContent: spec.format(Math.round(mean(rows, series))),
      })))));
  }
}
