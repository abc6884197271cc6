// Plays a large cluster to the console: the files are the real ones, the stream is made up.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const FILES = join(import.meta.dirname, "../../crates/console/static");
const PLOT = join(import.meta.dirname, "../../crates/plot/static");
const TYPES = { js: "text/javascript", css: "text/css", svg: "image/svg+xml", html: "text/html" };
const MIB = 1 << 20;

const frame = (name, body) => `event: ${name}\ndata: ${JSON.stringify(body)}\n\n`;

function row(id, turn) {
  const used = ((id * 37 + turn * 11) % 100) * MIB;
  return {
    id, name: `node-${id}`, address: `10.0.0.${id}:7610`, http_address: "", host: `host-${id}`,
    policy: "active", availability: "up",
    tiers: [{ tier: "dram", capacity_bytes: 128 * MIB, used_bytes: used, copy_bytes: 0 }],
    blocks: used / MIB, home_bytes: used, exposure_bytes: used, budget_bytes: 90 * MIB,
    copy_bytes: 0, egress_bytes_per_second: 100 * MIB, notice_min: 30000, is_spot: id % 2 === 0,
    is_at_risk: false, expected_life_minutes: null, deadline_at: null, reason: "", drain: null,
    rates: { read: used, written: (turn % 7) * MIB, pushed: 0 }, registered_at: 1.7e15,
  };
}

const SUMMARY = {
  room: { departures: 1, missing_bytes: 0, room_bytes: 1 << 30 }, objects: 1, blocks: 1, notices: 0,
  moved_bytes: 0, promoted_bytes: 0, copied_bytes: 0, rebalanced_bytes: 0, lost_blocks: 0,
  lost_bytes: 0, lost_objects: 0,
};

const FIELDS = ["at_seconds", "nodes", "draining_nodes", "used_bytes", "exposure_bytes",
  "read_bytes_per_second", "written_bytes_per_second", "pushed_bytes_per_second"];

/** The last hour, with waves. */
function samples(nodes) {
  const now = Math.floor(Date.now() / 1000);
  return Array.from({ length: 720 }, (_, at) => {
    const wave = (slow) => Math.round((1 + Math.sin(at / slow)) * nodes * MIB);
    const draining = at % 180 < 12 ? 5 : 0;
    return [now - 5 * (720 - at), nodes - (at % 200 < 20 ? 3 : 0), draining, 40 * wave(90),
      20 * wave(90), wave(40), wave(25), draining * 30 * MIB];
  });
}

function eventsFrom(sequence, count, nodes) {
  const events = Array.from({ length: count }, (_, at) => ({
    sequence: sequence + at, at: Date.now() * 1000,
    kind: { node_fenced: { node: 1 + ((sequence + at) % nodes) } },
  }));
  return frame("events", { events, skipped: 0 });
}

/** Serves the console. With `everySecond`, all rows change and so many events come each second.
 * `send` writes one frame more to every page. */
export async function serve({ nodes, events = 0, everySecond = 0 }) {
  const ids = Array.from({ length: nodes }, (_, at) => at + 1);
  const timers = new Set();
  const responses = new Set();
  function stream(response) {
    responses.add(response);
    response.on("close", () => responses.delete(response));
    response.setHeader("content-type", "text/event-stream");
    const now = () => Date.now() * 1000;
    response.write(frame("hello", { schema: 1, version: "1", cluster: "1", needs_token: false,
      may_administer: true, may_end_jobs: true }));
    response.write(frame("fleet", { now: now(), nodes: ids.map((id) => row(id, 0)), names: {},
      summary: SUMMARY }));
    response.write(frame("jobs", { jobs: [], total: 0 }));
    let sequence = 1;
    for (; sequence <= events; sequence += 1000) response.write(eventsFrom(sequence, 1000, nodes));
    if (!everySecond) return;
    let turn = 0;
    const timer = setInterval(() => {
      turn += 1;
      response.write(frame("delta", { now: now(), nodes: ids.map((id) => row(id, turn)),
        removed: [], summary: SUMMARY, sample: null }));
      response.write(eventsFrom(sequence, everySecond, nodes));
      sequence += everySecond;
    }, 1000);
    timers.add(timer);
    response.on("close", () => clearInterval(timer));
  }
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://x").pathname;
    if (path === "/v1/stream") return stream(response);
    if (path.startsWith("/v1/")) {
      const history = { step_millis: 5000, fields: FIELDS, samples: samples(nodes) };
      const answers = { "/v1/history": history, "/v1/durable": { directories: [] } };
      response.end(JSON.stringify(answers[path]
        ?? { bytes: 0, blocks: 0, objects: 0, losses: [] }));
      return undefined;
    }
    const name = path === "/" ? "index.html" : path.replace("/console/", "");
    response.setHeader("content-type", TYPES[name.split(".").at(-1)] ?? "text/plain");
    return response.end(readFileSync(join(name === "plot.js" ? PLOT : FILES, name)));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    send: (name, body) => responses.forEach((it) => it.write(frame(name, body))),
    close: () => new Promise((done) => {
      timers.forEach(clearInterval);
      server.closeAllConnections();
      server.close(done);
    }),
  };
}
