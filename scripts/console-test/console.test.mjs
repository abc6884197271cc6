// Drives the web console in headless Chromium against real clusters: docs/CONSOLE.md has what it
// promises. Screenshots go to target/console.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { Cluster, SOON, browser, program, until } from "./fleet.mjs";

const PICTURES = join(import.meta.dirname, "../../target/console");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDTHS = [400, 800, 1400];
/** A name and a reason that would run as HTML. */
const HOSTILE = '<img src=x onerror="window.hostile=1">';
/** Bytes per second of the node that drains slowly. */
const SLOW = 4 << 20;

let chromium;
before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  chromium = await browser();
});
after(() => chromium.close());

/** Opens a page that records what it requests and what fails in it. */
async function open(url, width = 1400) {
  const context = await chromium.createBrowserContext();
  const page = await context.newPage();
  page.requests = [];
  page.failures = [];
  page.on("request", (request) => page.requests.push(request));
  page.on("pageerror", (error) => page.failures.push(String(error)));
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted/.test(message.text())) page.failures.push(message.text());
  });
  await page.setViewport({ width, height: 1000 });
  await page.goto(url);
  return page;
}

const text = (page, selector) =>
  page.$eval(selector, (element) => element.textContent).catch(() => "");

const texts = (page, selector) =>
  page.$$eval(selector, (elements) => elements.map((element) => element.innerText));

const waitText = (page, selector, wanted) =>
  until(`${selector} has ${wanted}`, async () => {
    const shown = await texts(page, selector);
    return shown.find((one) => wanted.test(one));
  }).catch(async (error) => {
    throw new Error(`${error.message}; it has ${JSON.stringify(await texts(page, selector))}`);
  });

async function close(page) {
  assert.deepEqual(page.failures, []);
  await page.browserContext().close();
}

/** Fails with what axe finds, at each width, in light and dark. */
async function accessible(page, name) {
  // A policy of the page may not hold off the check: it is run by the debugger.
  const session = await page.createCDPSession();
  await session.send("Runtime.evaluate", { expression: AXE });
  for (const scheme of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    for (const width of WIDTHS) {
      await page.setViewport({ width, height: 1000 });
      await page.screenshot({ path: join(PICTURES, `${name}-${width}-${scheme}.png`) });
      const { result } = await session.send("Runtime.evaluate", {
        expression: "axe.run().then((found) => JSON.stringify(found.violations))",
        awaitPromise: true, returnByValue: true,
      });
      const violations = JSON.parse(result.value).map(({ id, nodes }) =>
        `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join("; ")}`);
      assert.deepEqual(violations, [], `${name} at ${width}, ${scheme}`);
      const overflow = await page.evaluate(() =>
        document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `${name} at ${width} is ${overflow} px too wide`);
    }
  }
  await session.detach();
  await page.setViewport({ width: 1400, height: 1000 });
}

/** Opens the dialog of a node for an act, and waits for its forecast. */
async function plan(page, node, seconds) {
  const button = `tr[data-node="${node}"] td.act button`;
  await page.waitForSelector(button);
  await page.click(button);
  await page.waitForSelector("dialog[open] form");
  await page.$eval("#act-seconds", (input, value) => {
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }, seconds);
  await page.waitForSelector("dialog button[type=submit]:not(:disabled)");
  return text(page, "dialog .plan");
}

describe("an open cluster", () => {
  let cluster;
  before(async () => {
    cluster = new Cluster(["--datanodes", "3", "--dram", "128MiB"]);
    const limit = ["--egress-limit", String(SLOW), "--notice-min", "30s", "--dram", "128MiB"];
    await cluster.start(["datanode", "--name", "slow", ...limit]);
    await cluster.start(["datanode", "--name", "late", ...limit]);
    cluster.run(["job", "new", "/job", "--lease", "1h"]);
    for (const name of ["a", "b", "c"]) cluster.put(`/job/${name}`, 32);
  });
  after(() => cluster.stop());

  test("shows the fleet, jobs and events, and fetches nothing from elsewhere", async () => {
    const page = await open(cluster.url);
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#nodes tbody tr", /slow[\s\S]*spot, 30\ss/);
    await waitText(page, "#nodes tbody tr", /datanode-0[\s\S]*lasting/);
    await waitText(page, "#jobs tbody tr", /\/job[\s\S]*9\d\.\d\sMiB/);
    await waitText(page, "#events tbody tr", /slow joined/);
    await page.select("#events-kind", "jobs");
    assert.deepEqual(await page.$$eval("#events tbody tr", (rows) => rows.length), 1);
    await page.select("#events-kind", "");
    await page.type("#nodes-filter", "spot");
    await until("the filter", async () => (await page.$$("#nodes tbody tr")).length === 2);
    const origins = new Set(page.requests.map((request) => new URL(request.url()).origin));
    assert.deepEqual([...origins], [new URL(cluster.url).origin]);
    const streams = page.requests.filter((request) => request.url().includes("/v1/stream"));
    assert.equal(streams.length, 1, "one stream, and no request for each node or second");
    await close(page);
  });

  test("a notice shows its forecast first, and its drain is seen until empty in two tabs",
    async () => {
      const [page, other] = [await open(cluster.url), await open(cluster.url, 400)];
      await waitText(page, "#connection", /Live/);
      const forecast = await plan(page, "slow", 300);
      assert.match(forecast, /Everything makes it in time/);
      assert.match(forecast, /MiB to \d nodes, at .* done in/);
      const state = JSON.parse(cluster.run(["--json", "node", "ls"])).nodes
        .find((node) => node.name === "slow");
      assert.equal(state.policy, "active", "a forecast changes nothing");
      await page.click("dialog button[type=submit]");
      for (const tab of [page, other]) {
        await waitText(tab, '.drain[data-node="slow"] .clock', /^(\d\d:\d\d|\d+\.\d s)$/);
      }
      await waitText(page, '.drain[data-node="slow"]', /MiB left in \d+ blocks?/);
      await page.screenshot({ path: join(PICTURES, "drain.png") });
      for (const tab of [page, other]) {
        await waitText(tab, '.drain[data-node="slow"] .clock', /Empty/);
        await waitText(tab, '.drain[data-node="slow"]', /MiB safe[\s\S]*Emptied in/);
      }
      await waitText(page, "#events tbody tr", /slow is empty: .* moved in/);
      await waitText(page, "#events tbody tr", /from slow to datanode-\d/);
      await page.click('tr[data-node="slow"] td.act button');
      await page.waitForSelector("dialog[open] form");
      await page.click("dialog button[type=submit]");
      await waitText(page, '#nodes tr[data-node="slow"]', /up/);
      await close(page);
      await close(other);
    });

  test("what will not make it is red before and during, and the losses name the objects",
    async () => {
      const page = await open(cluster.url);
      await waitText(page, "#connection", /Live/);
      assert.match(await plan(page, "late", 1.5), /will not make it/);
      assert.match(await text(page, "dialog button[type=submit]"), /Give notice, lose .*MiB/);
      await page.$eval("#act-reason", (input, value) => { input.value = value; }, HOSTILE);
      await page.screenshot({ path: join(PICTURES, "late-dialog.png") });
      await page.click("dialog button[type=submit]");
      await waitText(page, '.drain[data-node="late"] .clock', /Gone/);
      await waitText(page, '.drain[data-node="late"] .verdict', /MiB lost/);
      await waitText(page, "#losses tbody tr", /late[\s\S]*\/job\/[abc][\s\S]*MiB/);
      await waitText(page, "#events tbody tr", /Lost .*MiB .*with late, of job/);
      await waitText(page, "#events tbody tr", /<img src=x onerror/);
      assert.equal(await page.evaluate(() => window.hostile ?? document.images.length), 0);
      await accessible(page, "console");
      await plan(page, "datanode-1", 30);
      await accessible(page, "dialog");
      await close(page);
    });

  test("comes back after the namenode was killed, without a reload", async () => {
    const page = await open(cluster.url);
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#nodes tbody tr", /datanode-0/);
    await page.evaluate(() => { window.isSame = true; });
    process.kill(cluster.namenodeProcess().pid, "SIGKILL");
    await waitText(page, "#connection", /Reconnecting/);
    assert.ok((await page.$$("#nodes tbody tr")).length >= 3, "what was known stays in view");
    await cluster.start(["namenode", "--listen", cluster.namenode, "--http", cluster.http,
      "--dir", join(cluster.directory, "cluster/namenode")]);
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#events tbody tr", /The namenode started, with [1-9]/);
    await waitText(page, "#nodes tbody tr", /datanode-0[\s\S]*up/);
    assert.equal(await page.evaluate(() => window.isSame), true);
    await close(page);
  });

  test("a page of another site may neither act nor look nor frame the console", async () => {
    const evil = createServer((_, response) => {
      response.setHeader("content-type", "text/html");
      response.end(`<!doctype html><title>evil</title><iframe src="${cluster.url}"></iframe>`);
    });
    await new Promise((done) => evil.listen(0, "127.0.0.1", done));
    const page = await open(`http://127.0.0.1:${evil.address().port}/`);
    const tried = await page.evaluate(async (url) => {
      const act = fetch(`${url}v1/nodes/datanode-1/decommission`, { method: "POST" });
      const look = fetch(`${url}v1/stream`);
      return (await Promise.allSettled([act, look])).map(({ status }) => status);
    }, cluster.url);
    assert.deepEqual(tried, ["rejected", "rejected"]);
    const frame = page.frames().find((one) => one !== page.mainFrame());
    assert.equal(await frame.$("#console").catch(() => null), null, "the frame stays empty");
    const nodes = JSON.parse(cluster.run(["--json", "node", "ls"])).nodes;
    assert.equal(nodes.find((node) => node.name === "datanode-1").policy, "active");
    await page.browserContext().close();
    evil.close();
  });

  test("the first page of other servers leads to the console", async () => {
    const node = JSON.parse(cluster.run(["--json", "node", "ls"])).nodes
      .find(({ name }) => name === "datanode-1");
    const { ready } = await cluster.start(["manager", "--console", cluster.url]);
    for (const address of [node.http_address, ready.http_address]) {
      const page = await open(`http://${address}/`);
      await Promise.all([page.waitForNavigation(), page.click("p a")]);
      await waitText(page, "#connection", /Live/);
      await close(page);
    }
  });

  test("a job is ended after the page said what goes with it", async () => {
    const page = await open(cluster.url);
    await page.waitForSelector("#jobs td.act button:not([hidden])");
    await page.click("#jobs td.act button");
    await waitText(page, "dialog .plan", /MiB below \/job are deleted/);
    await page.click("dialog button[type=submit]");
    await waitText(page, "#jobs tbody tr", /No job runs/);
    await close(page);
  });
});

describe("a cluster with a secret", () => {
  let cluster;
  before(() => {
    cluster = new Cluster(["--datanodes", "1", "--dram", "64MiB", "--secure"]);
  });
  after(() => cluster.stop());

  const token = (words) => cluster.run(["token", "new", "--secret-file",
    join(cluster.directory, "cluster/keys/secret"), ...words]).trim();

  async function signIn(page, shown) {
    await page.waitForSelector("#login:not([hidden])");
    await page.type("#token", shown);
    await page.click("#login-form button");
  }

  test("a token is requested, kept in the tab alone, and never in a URL", async () => {
    const page = await open(cluster.url);
    await page.waitForSelector("#login:not([hidden])");
    await accessible(page, "login");
    await signIn(page, "wrong.token.here");
    await waitText(page, "#login-why", /refused the token/);
    const shown = token(["--role", "admin", "--subject", "olga"]);
    await signIn(page, shown);
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#who", /olga, may administer/);
    await page.reload();
    await waitText(page, "#connection", /Live/);
    const kept = await page.evaluate(() => [localStorage.length, document.cookie]);
    assert.deepEqual(kept, [0, ""]);
    assert.ok(page.requests.every((request) => !request.url().includes(shown.slice(0, 20))));
    await page.click("#sign-out");
    await page.waitForSelector("#login:not([hidden])");
    await close(page);
  });

  test("who may only look is offered no act, and the server would refuse it", async () => {
    const page = await open(cluster.url);
    const shown = token(["--rights", "metrics", "--subject", "otto"]);
    await signIn(page, shown);
    await waitText(page, "#who", /otto, may look/);
    await waitText(page, "#nodes tbody tr", /datanode-0/);
    assert.equal(await page.$("#nodes td.act button:not([hidden])"), null);
    const status = await page.evaluate(async (token) => {
      const headers = { authorization: `Bearer ${token}` };
      const path = "/v1/nodes/datanode-0/decommission";
      return (await fetch(path, { method: "POST", headers })).status;
    }, shown);
    assert.equal(status, 403);
    await close(page);
  });

  test("an expired token ends what is shown live, and the page says why", async () => {
    const page = await open(cluster.url);
    await signIn(page, token(["--rights", "metrics", "--expires", "4s"]));
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#login-why", /refused the token: .*expired/);
    assert.equal(await page.$("#console:not([hidden])"), null);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    await close(page);
  });
});

describe("a large cluster, played to the page", () => {
  test("a hundred thousand events and a thousand nodes leave the page small", async (t) => {
    const { serve } = await import("./played.mjs");
    const played = await serve({ nodes: 1000, events: 100000 });
    // Also when it fails: the tests end with their last server.
    t.after(() => played.close());
    const page = await open(played.url);
    await waitText(page, "#events-count", /newest 200 of 5,000, older ones left out/);
    await waitText(page, "#nodes-count", /1,000/);
    const elements = await page.evaluate(() => document.querySelectorAll("*").length);
    assert.ok(elements < 6000, `${elements} elements`);
    await page.type("#events-filter", "node-999 ");
    await waitText(page, "#events tbody tr", /node-999 /);
    await close(page);
  });
});
