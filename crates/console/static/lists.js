// Jobs, losses and events. Lists are bounded: what is left out is counted.

import { $, bytes, count, el, forecastText, lateText, plural, setText, span, time }
  from "./text.js";

const EVENTS_KEPT = 5000;
const ROWS_SHOWN = 200;

function head(table, titles) {
  const cells = titles.map(([title, className]) => el("th", { scope: "col", className },
    className === "act" ? el("span", { className: "unseen", textContent: title }) : title));
  table.tHead.append(el("tr", {}, ...cells));
}

function empty(table, text) {
  const cell = el("td", { colSpan: table.tHead.rows[0].cells.length, className: "faint",
    textContent: text });
  table.tBodies[0].replaceChildren(el("tr", {}, cell));
}

export class Jobs {
  #model;
  #draw;
  #open;
  #jobs = [];
  #total = 0;

  constructor(model, draw, open) {
    this.#model = model;
    this.#draw = draw;
    this.#open = open;
    head($("jobs"), [["Job"], ["Path", "path"], ["Holds", "number"], ["Quota", "number"],
      ["Began"], ["Lease"], ["Acts", "act"]]);
    empty($("jobs"), "No job runs.");
  }

  set({ jobs, total }) {
    this.#jobs = jobs;
    this.#total = total;
    this.#draw(this.draw);
  }

  draw = () => {
    const shown = this.#jobs.slice(0, ROWS_SHOWN);
    const more = this.#total > shown.length ? `, the largest ${count(shown.length)} shown` : "";
    setText($("jobs-count"), `${count(this.#total)}${more}`);
    if (!shown.length) {
      empty($("jobs"), "No job runs.");
      return;
    }
    $("jobs").tBodies[0].replaceChildren(...shown.map((job) => this.#row(job)));
  };

  #row(job) {
    const end = el("button", { type: "button", className: "small", textContent: "End",
      "aria-label": `End job ${job.job} at ${job.path}` });
    end.hidden = !this.#model.hello?.may_end_jobs;
    end.addEventListener("click", () => this.#open(job));
    const text = (textContent, className = "") => el("td", { textContent, className });
    const isOver = job.quota_bytes !== null && job.used_bytes > 0.9 * job.quota_bytes;
    return el("tr", {},
      el("th", { scope: "row", textContent: String(job.job) }),
      text(job.path, "path"),
      text(bytes(job.used_bytes), `number ${isOver ? "bad" : ""}`),
      text(job.quota_bytes === null ? "–" : bytes(job.quota_bytes), "number"),
      text(time(job.created_at / 1000)), text(span(job.lease)),
      el("td", { className: "act" }, end));
  }
}

export class Losses {
  #model;
  #draw;
  #report = null;
  #timer = 0;

  constructor(model, draw) {
    this.#model = model;
    this.#draw = draw;
    head($("losses"), [["Time"], ["Node"], ["Object", "path"], ["Lost", "number"], ["Why", "why"]]);
    empty($("losses"), "Nothing was lost.");
  }

  /** Reads the report soon; many losses in a row are read once. */
  load(read) {
    if (this.#timer) return;
    this.#timer = setTimeout(async () => {
      this.#timer = 0;
      try {
        this.#report = await read();
        this.#draw(this.draw);
      } catch {
        // The next loss, or the next connection, reads it again.
      }
    }, this.#report ? 2000 : 0);
  }

  draw = () => {
    const report = this.#report;
    setText($("losses-count"), report.bytes > 0
      ? `${bytes(report.bytes)} in ${plural(report.blocks, "block")} of ` +
        plural(report.objects, "object")
      : "");
    const shown = report.losses.slice(-ROWS_SHOWN).reverse();
    if (!shown.length) {
      empty($("losses"), "Nothing was lost.");
      return;
    }
    $("losses").tBodies[0].replaceChildren(...shown.map((loss) => this.#row(loss)));
  };

  #row(loss) {
    const lost = loss.ranges.reduce((all, range) => all + lengthOf(range), 0);
    const text = (textContent, className = "") => el("td", { textContent, className });
    return el("tr", {}, text(time(loss.at / 1000)), text(this.#model.names.of(loss.node)),
      el("th", { scope: "row", className: "path", textContent: loss.path }),
      text(bytes(lost), "number bad"), text(loss.why, "why"));
  }
}

function lengthOf(range) {
  return range.bytes;
}

/** Durable directories: what waits for their stores, and why it stalls. Hidden without any. */
export class Durables {
  #draw;
  #all = [];
  #isReading = false;

  constructor(draw) {
    this.#draw = draw;
    head($("durable"), [["Directory", "path"], ["Store"], ["Changes", "number"],
      ["Bytes", "number"], ["Oldest", "number"], ["State", "why"]]);
  }

  /** Reads them anew, unless that is under way. */
  async load(read) {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      this.#all = (await read()).directories;
      this.#draw(this.draw);
    } catch {
      // An earlier release has none; else the next reading brings them.
    } finally {
      this.#isReading = false;
    }
  }

  draw = () => {
    $("durable-section").hidden = !this.#all.length;
    const changes = this.#all.reduce((all, it) => all + it.backlog_changes, 0);
    setText($("durable-count"), changes ? `${plural(changes, "change")} volatile` : "");
    $("durable").tBodies[0].replaceChildren(...this.#all.map((it) => this.#row(it)));
  };

  #row(it) {
    const text = (textContent, className = "") => el("td", { textContent, className });
    const isAdopting = it.adoption && !it.adoption.is_done;
    const state = it.stalled ? `Stalled: ${it.stalled}`
      : isAdopting ? `${plural(it.adoption.objects, "object")} adopted so far`
      : it.backlog_changes ? "Copying" : "Durable";
    return el("tr", {},
      el("th", { scope: "row", className: "path", textContent: it.directory }),
      text(it.store), text(count(it.backlog_changes), "number"),
      text(bytes(it.backlog_bytes), "number"),
      text(it.backlog_age === null ? "–" : span(it.backlog_age), "number"),
      text(state, it.stalled ? "why bad" : "why"));
  }
}

const moved = (it, name) =>
  `${plural(it.blocks, "block")}, ${bytes(it.bytes)} from ${name(it.from)} to ${name(it.to)}`;

/** Each kind of event: its group, whether it is bad, and its text. */
const KINDS = {
  node_registered: ["nodes", (it) => `${it.name} joined at ${it.address}`],
  node_noticed: ["drains", (it) =>
    `${it.name} got a notice: ${bytes(it.bytes)} to move in ${span(it.deadline_in)}` +
    because(it.reason)],
  node_decommissioning: ["drains", (it) =>
    `${it.name} is decommissioned: ${bytes(it.bytes)} to move${because(it.reason)}`],
  node_fenced: ["drains", (it, name) => `${name(it.node)} takes no more writes`],
  node_cancelled: ["drains", (it, name) => `${name(it.node)} takes blocks again`],
  blocks_moved: ["moves", (it, name) => `Moved ${moved(it, name)}`],
  blocks_promoted: ["moves", (it, name) => `${plural(it.blocks, "block")}, ${bytes(it.bytes)} of ` +
    `${name(it.from)} had a copy: no byte had to move`],
  blocks_copied: ["moves", (it, name) => `Copied ${moved(it, name)}`],
  blocks_rebalanced: ["moves", (it, name) => `Balanced ${moved(it, name)}`],
  drain_forecast: ["drains", (it, name) => {
    const late = lateText(it.forecast);
    return `${name(it.node)}: ${forecastText(it.forecast)}${late ? `, ${late}` : ""}`;
  }],
  node_at_risk: ["drains", (it) =>
    `${it.name} is likely to get a notice soon${because(it.reason)}`],
  node_drained: ["drains", (it, name) =>
    `${name(it.node)} is empty: ${bytes(it.moved_bytes)} moved in ${span(it.elapsed)}`],
  node_gone: ["nodes", (it) => `${it.name} is gone: ${it.why}`],
  blocks_lost: ["losses", (it, name, job) =>
    `Lost ${bytes(it.bytes)} in ${plural(it.blocks, "block")} of ` +
    `${plural(it.objects, "object")} with ${name(it.node)}${ofJobs(it.jobs, job)}`],
  job_registered: ["jobs", (it) => `Job ${it.job} began at ${it.path}`],
  job_ended: ["jobs", (it) => `Job ${it.job} at ${it.path} ` +
    `${it.is_expired ? "was not renewed" : "ended"}: ${bytes(it.freed_bytes)} freed`],
  manager_changed: ["namenode", (it) => `Manager ${it.name} leads from now on`],
  namenode_started: ["namenode", (it) => `The namenode started, with ${count(it.commands)} ` +
    `changes in its log${it.cut_bytes ? `, ${bytes(it.cut_bytes)} of torn tail cut` : ""}`],
  namenode_absent: ["namenode", (it) => `The namenode was away for ${span(it.millis)}`],
  log_end_lost: ["losses", (it) => `${it.name} had received ` +
    `${it.commands === null ? "changes" : plural(it.commands, "change")} that the log lacks`],
  blocks_orphaned: ["losses", (it, name) =>
    `${plural(it.blocks, "block")}, ${bytes(it.bytes)} on ${name(it.node)} ` +
    "of a lost end of the log"],
  reserve_short: ["drains", (it) =>
    `No room for ${plural(it.departures, "departure")}: ${bytes(it.missing_bytes)} short`],
  reserve_restored: ["drains", (it) => `Room for ${plural(it.departures, "departure")} again`],
  journal_cut: ["losses", (it) =>
    `${plural(it.records, "record")} of the journal given up: ${it.why}`],
  namenode_leads: ["namenode", (it) => `Namenode ${it.member} (${it.address}) leads from now on`],
  group_changed: ["namenode", (it) => [
    it.joined.length && `Namenodes that vote now: ${it.joined.join(", ")}`,
    it.left.length && `left: ${it.left.join(", ")}`].filter(Boolean).join("; ")],
  group_at_risk: ["namenode", (it) => `The group of namenodes is at risk: ${it.why}`],
  group_restored: ["namenode", (it) =>
    `The group survives the loss of a namenode again: ${count(it.voters)} vote`],
  directory_durable: ["durable", (it) => `${it.path} is durable: copied to the store ${it.store}`],
  objects_durable: ["durable", (it) => `The store ${it.store} has all of ${it.path}: ` +
    `${plural(it.objects, "object")} more, ${bytes(it.bytes)}`],
  durable_stalled: ["durable", (it) =>
    `The store ${it.store} of ${it.path} does not do what is needed: ${it.why}`],
  durable_dropped: ["durable", (it) => `${it.path} was deleted; ${plural(it.changes, "change")} ` +
    `never got to the store ${it.store}`],
  store_adopted: ["durable", (it) => `${it.path} has what was in the store ${it.store}: ` +
    `${plural(it.objects, "object")}, ${bytes(it.bytes)}` +
    (it.skipped ? `; ${count(it.skipped)} were left out` : "")],
  snapshot_skipped: ["namenode", (it) => `A damaged snapshot was not used: ${it.why}`],
  blocks_damaged: ["losses", (it, name) => `${plural(it.blocks, "block")} damaged on ` +
    `${name(it.node)}, ${count(it.saved)} with another copy`],
};

const BAD = new Set(["blocks_lost", "log_end_lost", "blocks_orphaned", "journal_cut",
  "blocks_damaged", "reserve_short", "group_at_risk", "durable_stalled"]);

const GROUPS = { "": "All events", drains: "Notices and drains", moves: "Moves and copies",
  losses: "Losses and damage", nodes: "Nodes", jobs: "Jobs", namenode: "Namenode",
  durable: "Durable directories" };

const because = (reason) => (reason ? `, because of ${reason}` : "");

const ofJobs = (jobs, job) =>
  jobs.length === 1 ? `, of ${job(jobs[0])}` : jobs.length ? `, of ${jobs.length} jobs` : "";

export class Events {
  #model;
  #draw;
  #kept = [];
  #last = 0;
  #dropped = 0;
  #matched = 0;
  /** Those that came since the last drawing; `null` when all rows must be drawn again. */
  #fresh = null;
  #group = "";
  #filter = "";
  #paused = null;

  constructor(model, draw) {
    this.#model = model;
    this.#draw = draw;
    head($("events"), [["Time"], ["Kind"], ["What", "what"]]);
    empty($("events"), "No event.");
    for (const [value, textContent] of Object.entries(GROUPS)) {
      $("events-kind").append(el("option", { value, textContent }));
    }
    $("events-kind").addEventListener("change", (event) => {
      this.#group = event.target.value;
      this.#again();
    });
    $("events-filter").addEventListener("input", (event) => {
      this.#filter = event.target.value.trim().toLowerCase();
      this.#again();
    });
    $("events-pause").addEventListener("click", (event) => {
      this.#paused = this.#paused ? null : [...this.#kept];
      event.target.ariaPressed = String(this.#paused !== null);
      setText(event.target, this.#paused ? "Resume" : "Pause");
      this.#again();
    });
  }

  #again() {
    this.#fresh = null;
    this.#draw(this.draw);
  }

  add({ events, skipped }) {
    if (!events.length) return;
    // Smaller numbers than before: the end of the log was lost, and the list with it.
    if (events.at(-1).sequence < this.#last) {
      this.#kept = [];
      this.#last = 0;
      this.#fresh = null;
    }
    this.#dropped += skipped;
    const added = events.filter((event) => event.sequence > this.#last).map((event) => {
      const [[name, body]] = Object.entries(event.kind);
      return { sequence: event.sequence, at: event.at / 1000, name, body };
    });
    const named = new Set();
    for (const { body } of added) {
      if (body.name !== undefined && body.node !== undefined) {
        this.#model.names.set(body.node, body.name);
      }
      if (body.job !== undefined && body.path !== undefined
        && this.#model.jobs.set(body.job, body.path)) named.add(body.job);
    }
    // Those that came with the path are drawn with it.
    if (this.#isShown(named)) this.#fresh = null;
    this.#last = events.at(-1).sequence;
    this.#kept.push(...added);
    const most = this.#kept.length - EVENTS_KEPT;
    if (most > 0) {
      this.#kept.splice(0, most);
      this.#dropped += most;
    }
    this.#fresh?.push(...added);
    this.#draw(this.draw);
  }

  /** Takes the paths of jobs that run. Losses shown without the path are drawn again. */
  nameJobs(jobs) {
    const named = new Set(jobs.filter((it) => this.#model.jobs.set(it.job, it.path))
      .map((it) => it.job));
    if (this.#isShown(named)) this.#again();
  }

  /** Returns whether a row names one of these jobs: that of a loss of one job alone does. */
  #isShown(named) {
    if (!named.size) return false;
    return (this.#paused ?? this.#kept).some(({ name, body }) =>
      name === "blocks_lost" && body.jobs.length === 1 && named.has(body.jobs[0]));
  }

  #text(event) {
    const kind = KINDS[event.name];
    // An event of a newer server has a name and fields at least.
    if (!kind) return JSON.stringify(event.body);
    const { names, jobs } = this.#model;
    return kind[1](event.body, (node) => names.of(node), (job) => jobs.of(job));
  }

  #fits(event) {
    if (this.#group && KINDS[event.name]?.[0] !== this.#group) return false;
    if (!this.#filter) return true;
    return `${event.name} ${this.#text(event)}`.toLowerCase().includes(this.#filter);
  }

  draw = () => {
    const body = $("events").tBodies[0];
    if (this.#fresh === null) {
      const matched = (this.#paused ?? this.#kept).filter((event) => this.#fits(event));
      this.#matched = matched.length;
      body.replaceChildren(...matched.slice(-ROWS_SHOWN).reverse().map((it) => this.#row(it)));
    } else if (!this.#paused) {
      const matched = this.#fresh.filter((event) => this.#fits(event));
      this.#matched = Math.min(EVENTS_KEPT, this.#matched + matched.length);
      if (matched.length && body.querySelector("td.faint")) body.replaceChildren();
      body.prepend(...matched.slice(-ROWS_SHOWN).reverse().map((it) => this.#row(it)));
      while (body.children.length > ROWS_SHOWN) body.lastChild.remove();
    }
    this.#fresh = [];
    if (!body.children.length) empty($("events"), "No event.");
    const older = this.#dropped ? ", older ones left out" : "";
    const shown = Math.min(this.#matched, ROWS_SHOWN);
    setText($("events-count"), this.#matched > shown
      ? `newest ${count(shown)} of ${count(this.#matched)}${older}` : `${count(shown)}${older}`);
  };

  #row(event) {
    const words = event.name.replaceAll("_", " ");
    const name = BAD.has(event.name) ? "bad" : "";
    return el("tr", { className: name }, el("td", { textContent: time(event.at) }),
      el("td", { textContent: words, className: "kind" }),
      el("td", { textContent: this.#text(event), className: "what" }));
  }
}
