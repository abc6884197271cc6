// Puts the console together: frames go into the model, and what changed is drawn once a frame.

import { Acts } from "./acts.js";
import { Charts } from "./charts.js";
import { Drains, Fleet, summarize } from "./fleet.js";
import { Durables, Events, Jobs, Losses } from "./lists.js";
import { Stream, call, session } from "./stream.js";
import { $, JobPaths, Names, bytes, setClass, setText } from "./text.js";

/** Everything that the page knows of the cluster. */
const model = {
  names: new Names(),
  jobs: new JobPaths(),
  nodes: new Map(),
  summary: null,
  hello: null,
  /** The server's clock less this one's, in milliseconds. */
  offset: 0,
  now: () => Date.now() + model.offset,
};

const dirty = new Set();
let isDrawing = false;

/** Draws a part with the next frame; many changes are drawn once. */
function draw(...parts) {
  parts.forEach((part) => dirty.add(part));
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    const parts = [...dirty];
    dirty.clear();
    for (const part of parts) part();
  });
}

const stream = new Stream(receive, connection);
const acts = new Acts(model);
const fleet = new Fleet(model, draw, (node, act) => acts.open(node, act));
const drains = new Drains(model, draw, (node, act) => acts.open(node, act));
const charts = new Charts($("charts"), draw);
const jobs = new Jobs(model, draw, (job) => acts.openJob(job));
const losses = new Losses(model, draw);
const durables = new Durables(draw);
const events = new Events(model, draw);

const receivers = {
  hello(body) {
    const before = model.hello;
    model.hello = body;
    setText($("cluster"), `cluster ${body.cluster}`);
    const rights = body.may_administer ? "may administer" : "may look";
    setText($("who"), body.needs_token ? `${body.subject || "token"}, ${rights}` : "");
    $("sign-out").hidden = !body.needs_token;
    if (before && before.version !== body.version) banner("The server was upgraded: reload.");
    if (before && before.cluster !== body.cluster) location.reload();
    show("console");
    connection("live");
    charts.load(() => call("/v1/history"));
  },
  fleet(body) {
    clock(body.now);
    for (const [node, name] of Object.entries(body.names)) model.names.set(Number(node), name);
    const here = new Set(body.nodes.map((node) => node.id));
    const removed = [...model.nodes.keys()].filter((node) => !here.has(node));
    change(body.nodes, removed, body.summary);
  },
  delta(body) {
    clock(body.now);
    change(body.nodes, body.removed, body.summary);
    if (body.sample) charts.add(body.sample);
  },
  events(body) {
    events.add(body);
    drains.learn(body.events);
    for (const { kind } of body.events.slice(-20)) announce(kind);
  },
  jobs(body) {
    jobs.set(body);
    events.nameJobs(body.jobs);
  },
};

function receive(name, body) {
  receivers[name]?.(body);
}

/** The mean of the differences would need the way's time; the smallest error is a frame's. */
function clock(now) {
  model.offset = now / 1000 - Date.now();
}

function change(nodes, removed, summary) {
  const isLost = model.summary && summary.lost_objects !== model.summary.lost_objects;
  if (!model.summary || isLost) losses.load(() => call("/v1/report"));
  model.summary = summary;
  for (const node of nodes) {
    model.names.set(node.id, node.name);
    model.nodes.set(node.id, node);
  }
  drains.change(nodes, removed);
  for (const node of removed) model.nodes.delete(node);
  fleet.change(nodes, removed);
  acts.change();
  draw(drawSummary);
}

function drawSummary() {
  summarize($("summary"), model);
  const draining = [...model.nodes.values()].filter((it) => it.policy === "draining").length;
  const title = draining ? `(${draining}) Sanderling` : "Sanderling";
  if (document.title !== title) document.title = title;
}

/** What a screen reader must not miss is read out. */
function announce(kind) {
  const name = (node) => model.names.of(node);
  const text = kind.node_noticed ? `${kind.node_noticed.name} got a notice`
    : kind.node_drained ? `${name(kind.node_drained.node)} is empty`
    : kind.blocks_lost ? `${bytes(kind.blocks_lost.bytes)} lost with ${name(kind.blocks_lost.node)}`
    : null;
  if (text && model.isSettled) setText($("announcer"), text);
}

function connection(state, error) {
  const words = { live: "Live", lost: "Reconnecting", paused: "Paused", refused: "Signed out" };
  setText($("connection"), words[state]);
  setClass($("connection"), `pill ${state}`);
  document.body.classList.toggle("stale", state !== "live");
  if (state === "live") setTimeout(() => { model.isSettled = true; }, 1000);
  if (state === "refused") login(error);
}

function banner(text) {
  setText($("banner"), text);
  $("banner").hidden = !text;
}

function show(part) {
  $("login").hidden = part !== "login";
  $("console").hidden = part !== "console";
  if (part === "console") banner("");
}

function login(error) {
  const had = session.token !== null;
  session.token = null;
  acts.close();
  setText($("login-why"), had ? `The server refused the token: ${error.message}`
    : "This cluster requires a token.");
  $("login-why").classList.toggle("bad", had);
  $("sign-out").hidden = true;
  show("login");
  $("token").focus();
}

$("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  $("token").value = "";
  if (!/^[\x21-\x7e]+$/.test(token)) {
    setText($("login-why"), "That is no token: it has letters, digits, dots, - and _ only.");
    $("login-why").classList.add("bad");
    return;
  }
  session.token = token;
  connection("lost");
  stream.start();
});

$("sign-out").addEventListener("click", () => {
  session.token = null;
  location.reload();
});

acts.onRefused = (error) => {
  stream.stop();
  connection("refused", error);
};

const DURABLE_MILLIS = 2000;

setInterval(() => drains.tick(), 100);
setInterval(() => {
  const isLive = model.hello && !document.hidden && !document.body.classList.contains("stale");
  if (isLive) durables.load(() => call("/v1/durable"));
}, DURABLE_MILLIS);
stream.start();
