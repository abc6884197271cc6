// The nodes: figures of all, the drains with their countdowns, one square each, and the table.

import {
  $, bytes, count, countdown, el, forecastText, lateText, plural, rate, setClass, setText, span,
} from "./text.js";

const PAGE = 50;
/** How long the end of a drain stays in view. */
const ENDED_MILLIS = 600000;
const DRAINS_MAX = 24;

const isLeaving = (node) => node.policy === "draining" || node.policy === "decommissioning";

const sum = (nodes, value) => nodes.reduce((total, node) => total + value(node), 0);

const used = (node) => sum(node.tiers, (tier) => tier.used_bytes);
const capacity = (node) => sum(node.tiers, (tier) => tier.capacity_bytes);
const isOver = (node) => node.exposure_bytes > node.budget_bytes && node.exposure_bytes > 0;

/** A node's state: a word, and the class of its colour and mark. */
export function stateOf(node) {
  if (node.policy === "decommissioning") return ["leaving", "draining"];
  if (node.policy !== "active") return [node.policy, node.policy];
  if (node.availability !== "up") return [node.availability, "suspect"];
  return node.is_at_risk ? ["at risk", "risk"] : ["up", "up"];
}

function tile(list, key, title) {
  let box = list.querySelector(`[data-key="${key}"]`);
  if (!box) {
    box = el("div", { "data-key": key }, el("dt", { textContent: title }), el("dd"), el("dd"));
    list.append(box);
  }
  return (value, more, name = "") => {
    const [first, second] = box.querySelectorAll("dd");
    setText(first, value);
    setText(second, more);
    setClass(box, name);
  };
}

/** Draws the figures of the whole cluster. */
export function summarize(list, { nodes: map, summary }) {
  const nodes = [...map.values()];
  const up = nodes.filter((node) => stateOf(node)[0] === "up").length;
  const leaving = nodes.filter(isLeaving);
  const spot = nodes.filter((node) => node.is_spot).length;
  tile(list, "nodes", "Nodes up")(
    up === nodes.length ? count(up) : `${count(up)} of ${count(nodes.length)}`,
    `${count(spot)} spot, ${count(leaving.length)} leaving`);
  const stored = sum(nodes, used);
  const total = sum(nodes, capacity);
  tile(list, "stored", "Stored")(bytes(stored), `of ${bytes(total)}, ${percent(stored, total)}`);
  const { room } = summary;
  tile(list, "room", "Room for writers")(
    bytes(room.room_bytes),
    room.missing_bytes > 0
      ? `${bytes(room.missing_bytes)} short for ${plural(room.departures, "departure")}`
      : `${plural(room.departures, "departure")} fit${room.departures === 1 ? "s" : ""}`,
    room.missing_bytes > 0 ? "bad" : "");
  const over = nodes.filter(isOver);
  tile(list, "exposure", "Exposed")(
    bytes(sum(nodes, (node) => node.exposure_bytes)),
    over.length ? `${plural(over.length, "node")} over budget` : "all within budget",
    over.length ? "warn" : "");
  const late = sum(leaving, (node) => {
    const forecast = node.drain?.forecast;
    return forecast ? forecast.late_bytes + forecast.unplaced_bytes : 0;
  });
  tile(list, "late", "Will not make it")(
    bytes(late), leaving.length ? `of ${plural(leaving.length, "drain")}` : "no drain",
    late > 0 ? "bad" : "");
  tile(list, "lost", "Lost so far")(
    bytes(summary.lost_bytes),
    `${plural(summary.notices, "notice")}, ${bytes(summary.moved_bytes)} moved`,
    summary.lost_bytes > 0 ? "bad" : "");
}

function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)}\u00a0%` : "0\u00a0%";
}

/** The drains: those that run, and for ten minutes those that ended. */
export class Drains {
  #model;
  #draw;
  #open;
  #cards = new Map();

  constructor(model, draw, open) {
    this.#model = model;
    this.#draw = draw;
    this.#open = open;
  }

  change(nodes, removed) {
    const now = this.#model.now();
    for (const node of nodes) {
      const known = this.#cards.get(node.id);
      if (!node.drain || node.policy === "active") {
        if (known && !known.end) known.end = { at: now, what: "cancelled" };
        continue;
      }
      const card = known ?? { element: null };
      card.node = node;
      card.end = node.policy === "drained" ? { at: card.end?.at ?? now, what: "empty" } : null;
      this.#cards.set(node.id, card);
    }
    for (const id of removed) {
      const card = this.#cards.get(id);
      if (card && card.end?.what !== "empty") card.end = { at: now, what: "gone" };
    }
    this.#trim(now);
    this.#draw(this.draw);
  }

  /** Takes the losses of drains that ended from the events: the node is gone by then. */
  learn(events) {
    for (const { kind } of events) {
      const lost = kind.blocks_lost;
      const card = lost && this.#cards.get(lost.node);
      if (card) card.lost = (card.lost ?? 0) + lost.bytes;
    }
    this.#draw(this.draw);
  }

  #trim(now) {
    const ended = [...this.#cards].filter(([, card]) => card.end);
    ended.sort(([, one], [, other]) => one.end.at - other.end.at);
    const most = Math.max(0, ended.length - DRAINS_MAX);
    ended.forEach(([id, card], at) => {
      if (at >= most && now - card.end.at < ENDED_MILLIS) return;
      card.element?.remove();
      this.#cards.delete(id);
    });
  }

  draw = () => {
    $("drains-section").hidden = this.#cards.size === 0;
    for (const [id, card] of this.#cards) {
      if (!card.element) {
        card.element = this.#card(id, card);
        $("drains").prepend(card.element.root);
      }
      this.#fill(card);
    }
    this.tick();
  };

  #card(id, { node }) {
    const name = el("button", { type: "button", className: "link", textContent: node.name });
    name.addEventListener("click", () => this.#open(id));
    const parts = {
      clock: el("span", { className: "clock" }),
      label: el("span", { className: "faint" }),
      reason: el("span", { className: "faint" }),
      moved: el("span", { className: "moved" }),
      late: el("span", { className: "late" }),
      bar: el("div", { className: "track", role: "progressbar", "aria-valuemin": 0,
        "aria-valuemax": 100, "aria-label": `Drain of ${node.name}` }),
      figures: el("p", { className: "figures" }),
      forecast: el("p", { className: "faint" }),
      verdict: el("p", { className: "verdict" }),
    };
    parts.bar.append(parts.moved, parts.late);
    parts.root = el("article", { className: "card drain" },
      el("div", { className: "drain-head" }, el("h3", {}, name), parts.reason),
      el("div", { className: "drain-clock" }, parts.clock, parts.label),
      parts.bar, parts.figures, parts.forecast, parts.verdict);
    parts.remove = () => parts.root.remove();
    return parts;
  }

  #fill(card) {
    const { node, element: it, end } = card;
    const { drain } = node;
    const done = drain.moved_bytes + drain.promoted_bytes;
    const lost = Math.max(drain.lost_bytes, card.lost ?? 0);
    const left = end ? 0 : drain.left_bytes;
    const forecast = end ? null : drain.forecast;
    const late = forecast ? forecast.late_bytes + forecast.unplaced_bytes : lost;
    const all = Math.max(1, done + left + (end ? lost : 0));
    const isEmpty = end?.what === "empty";
    const part = isEmpty && !lost ? 100 : Math.min(100, (100 * done) / all);
    it.moved.style.width = `${part}%`;
    it.late.style.width = `${Math.min(100 - part, (100 * late) / all)}%`;
    it.bar.setAttribute("aria-valuenow", Math.round(part));
    setText(it.reason, node.reason);
    const figures = [`${bytes(done)} safe`];
    if (!end) figures.push(`${bytes(left)} left in ${plural(drain.left_blocks, "block")}`);
    if (drain.promoted_bytes) figures.push(`${bytes(drain.promoted_bytes)} had a copy`);
    setText(it.figures, figures.join(" · "));
    setText(it.forecast, this.#forecast(card));
    const late_ = forecast ? lateText(forecast) : "";
    setText(it.verdict, lost > 0 ? `${bytes(lost)} lost` : late_);
    it.verdict.hidden = !it.verdict.textContent;
    const state = end ? end.what : late > 0 ? "late" : "running";
    setClass(it.root, `card drain ${lost > 0 ? "lossy " : ""}${state}`);
    it.root.dataset.node = node.name;
  }

  #forecast({ node, end }) {
    const { drain } = node;
    if (end?.what === "empty") return `Emptied in ${span(drain.elapsed)}`;
    if (end) return end.what === "cancelled" ? "Takes blocks again" : "The node is gone";
    if (drain.left_bytes === 0) return "Nothing left to move";
    return drain.forecast ? `Forecast: ${forecastText(drain.forecast)}` : "Forecast to come";
  }

  /** Moves the clocks. */
  tick() {
    for (const { node, element: it, end } of this.#cards.values()) {
      if (!it) continue;
      const words = { empty: "Empty", cancelled: "Cancelled", gone: "Gone" };
      if (end) {
        setText(it.clock, words[end.what]);
        setText(it.label, `${span(Math.max(0, this.#model.now() - end.at))} ago`);
      } else if (node.deadline_at === null) {
        setText(it.clock, span(node.drain.elapsed));
        setText(it.label, "so far, no deadline");
      } else {
        setText(it.clock, countdown(node.deadline_at / 1000 - this.#model.now()));
        setText(it.label, "to the deadline");
      }
    }
  }
}

const COLUMNS = [
  { key: "name", title: "Node", value: (node) => node.name },
  { key: "state", title: "State", value: (node) => stateOf(node)[0] },
  { key: "dram", title: "Memory", value: (node) => tierOf(node, "dram"), kind: "meter" },
  { key: "disk", title: "Disk", value: (node) => tierOf(node, "disk"), kind: "meter" },
  { key: "object", title: "Object", value: (node) => tierOf(node, "object"), kind: "meter" },
  { key: "exposure", title: "Exposed of budget", value: exposure, kind: "meter" },
  { key: "spot", title: "Kind", value: (node) => (node.is_spot ? "spot" : "lasting") },
  { key: "read", title: "Read", value: (node) => node.rates.read, kind: "rate" },
  { key: "written", title: "Written", value: (node) => node.rates.written, kind: "rate" },
  { key: "pushed", title: "Moved", value: (node) => node.rates.pushed, kind: "rate" },
];

function tierOf(node, name) {
  const tier = node.tiers.find((one) => one.tier === name);
  return tier ? [tier.used_bytes, tier.capacity_bytes] : null;
}

function exposure(node) {
  return [node.exposure_bytes, node.budget_bytes];
}

const COLLATOR = new Intl.Collator(undefined, { numeric: true });

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "string") return COLLATOR.compare(one, other);
  if (Array.isArray(one)) return one[0] - other[0];
  return one - other;
}

/** The squares and the table. */
export class Fleet {
  #model;
  #draw;
  #open;
  #squares = new Map();
  #rows = new Map();
  #page = 0;
  #sort = { column: COLUMNS[0], isDown: false };
  #filter = "";
  #isOrdered = false;
  #order = [];
  #tierKeys = "";

  constructor(model, draw, open) {
    this.#model = model;
    this.#draw = draw;
    this.#open = open;
    this.#head();
    $("nodes-filter").addEventListener("input", (event) => {
      this.#filter = event.target.value.trim().toLowerCase();
      this.#turn(0);
    });
    $("nodes-before").addEventListener("click", () => this.#turn(this.#page - 1));
    $("nodes-next").addEventListener("click", () => this.#turn(this.#page + 1));
  }

  #turn(page) {
    this.#page = page;
    this.#isOrdered = false;
    this.#draw(this.draw);
  }

  #head() {
    const cells = COLUMNS.map((column) => {
      const button = el("button", { type: "button", textContent: column.title });
      button.addEventListener("click", () => {
        const isDown = this.#sort.column === column ? !this.#sort.isDown : Boolean(column.kind);
        this.#sort = { column, isDown };
        this.#turn(0);
      });
      return el("th", { scope: "col", className: `${column.key} ${column.kind ?? ""}` }, button);
    });
    cells.push(el("th", { scope: "col", className: "act" },
      el("span", { className: "unseen", textContent: "Acts" })));
    $("nodes").tHead.append(el("tr", {}, ...cells));
  }

  change(nodes, removed) {
    for (const node of nodes) this.#square(node);
    for (const id of removed) {
      this.#squares.get(id)?.remove();
      this.#squares.delete(id);
    }
    const isNamed = this.#sort.column.key === "name" && !this.#filter;
    if (removed.length || !isNamed || nodes.some((node) => !this.#rows.has(node.id))) {
      this.#isOrdered = false;
    }
    this.#draw(this.draw);
  }

  #square(node) {
    let square = this.#squares.get(node.id);
    if (!square) {
      square = el("i");
      this.#squares.set(node.id, square);
      $("fleet").append(square);
    }
    const fill = Math.round((4 * used(node)) / Math.max(1, capacity(node)));
    setClass(square, `${stateOf(node)[1]} fill-${fill}${isOver(node) ? " over" : ""}`);
    if (square.title !== node.name) square.title = node.name;
  }

  #reorder() {
    const { column, isDown } = this.#sort;
    const fits = ({ name, address, host, reason, ...node }) =>
      [name, address, host, reason, stateOf(node)[0], node.is_spot ? "spot" : "lasting"]
        .some((text) => text.toLowerCase().includes(this.#filter));
    const all = [...this.#model.nodes.values()];
    const nodes = this.#filter ? all.filter(fits) : all;
    nodes.sort((one, other) =>
      (isDown ? -1 : 1) * compare(column.value(one), column.value(other)) || one.id - other.id);
    this.#order = nodes.map((node) => node.id);
    this.#isOrdered = true;
  }

  draw = () => {
    const { nodes } = this.#model;
    if (!this.#isOrdered) this.#reorder();
    const pages = Math.max(1, Math.ceil(this.#order.length / PAGE));
    this.#page = Math.max(0, Math.min(this.#page, pages - 1));
    const shown = this.#order.slice(this.#page * PAGE, (this.#page + 1) * PAGE);
    const body = $("nodes").tBodies[0];
    const wanted = new Set(shown);
    for (const [id, row] of this.#rows) {
      if (wanted.has(id)) continue;
      row.element.remove();
      this.#rows.delete(id);
    }
    shown.forEach((id, at) => {
      const node = nodes.get(id);
      if (!node) return;
      const row = this.#rows.get(id) ?? this.#row(id, node);
      this.#fill(row, node);
      if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at]);
    });
    this.#around(pages);
  };

  #around(pages) {
    const all = [...this.#model.nodes.values()];
    const tiers = ["disk", "object"].filter((tier) => all.some((node) => tierOf(node, tier)));
    setClass($("nodes"), ["nodes", ...tiers.map((tier) => `with-${tier}`)].join(" "));
    setText($("nodes-count"), this.#filter
      ? `${count(this.#order.length)} of ${count(all.length)}` : count(all.length));
    $("nodes-pager").hidden = pages < 2;
    setText($("nodes-page"), `Page ${this.#page + 1} of ${pages}`);
    $("nodes-before").disabled = this.#page === 0;
    $("nodes-next").disabled = this.#page === pages - 1;
    const states = new Map();
    for (const node of all) {
      const [word] = stateOf(node);
      states.set(word, (states.get(word) ?? 0) + 1);
    }
    const label = [...states].map(([word, nodes]) => `${nodes} ${word}`).join(", ");
    if ($("fleet").ariaLabel !== label) $("fleet").ariaLabel = label || "no nodes";
    [...$("nodes").tHead.rows[0].cells].slice(0, COLUMNS.length).forEach((cell, at) => {
      const isSorted = this.#sort.column === COLUMNS[at];
      const sort = isSorted ? (this.#sort.isDown ? "descending" : "ascending") : "none";
      if (cell.ariaSort !== sort) cell.ariaSort = sort;
    });
  }

  #row(id, node) {
    const row = { element: el("tr"), cells: {}, node: null };
    for (const { key, kind } of COLUMNS) {
      const cell = el(key === "name" ? "th" : "td", { className: `${key} ${kind ?? ""}` });
      if (key === "name") {
        cell.scope = "row";
        const button = el("button", { type: "button", className: "link" });
        button.addEventListener("click", () => this.#open(id));
        cell.append(button);
        row.cells[key] = button;
      } else if (kind === "meter") {
        const [fill, text] = [el("i"), el("span")];
        cell.append(el("span", { className: "gauge", "aria-hidden": "true" }, fill), text);
        row.cells[key] = { fill, text };
      } else {
        const span_ = el("span");
        cell.append(span_);
        row.cells[key] = span_;
      }
      row.element.append(cell);
    }
    const act = el("button", { type: "button", className: "small" });
    act.addEventListener("click", () => this.#open(id, "act"));
    row.cells.act = act;
    row.element.append(el("td", { className: "act" }, act));
    this.#rows.set(id, row);
    row.element.dataset.node = node.name;
    return row;
  }

  #fill(row, node) {
    const mayAct = this.#model.hello?.may_administer ?? false;
    if (row.node === node && row.mayAct === mayAct) return;
    row.node = node;
    row.mayAct = mayAct;
    const { cells } = row;
    setText(cells.name, node.name);
    const [word, state] = stateOf(node);
    setText(cells.state, word);
    setClass(cells.state, `state ${state}`);
    for (const tier of ["dram", "disk", "object"]) this.#meter(cells[tier], tierOf(node, tier));
    this.#meter(cells.exposure, exposure(node), isOver(node));
    const life = node.expected_life_minutes;
    const kind = node.is_spot ? `spot, ${span(node.notice_min)}` : "lasting";
    setText(cells.spot, life === null ? kind : `${kind}, lives ~${span(life * 60000)}`);
    for (const key of ["read", "written", "pushed"]) {
      setText(cells[key], node.rates[key] ? rate(node.rates[key]) : "–");
    }
    const canCancel = isLeaving(node) || node.is_at_risk || node.policy === "drained";
    setText(cells.act, canCancel ? "Cancel" : "Drain");
    cells.act.ariaLabel = `${canCancel ? "Cancel the drain of" : "Drain"} ${node.name}`;
    cells.act.hidden = !mayAct;
  }

  #meter({ fill, text }, pair, isBad = false) {
    const [part, whole] = pair ?? [0, 0];
    const width = whole > 0 ? `${Math.min(100, (100 * part) / whole).toFixed(1)}%` : "0%";
    if (fill.style.width !== width) fill.style.width = width;
    setClass(fill, isBad ? "bad" : "");
    setText(text, pair ? `${bytes(part)} / ${bytes(whole)}` : "–");
  }
}
