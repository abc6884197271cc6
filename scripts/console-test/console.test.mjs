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

/** A node as `sanderling node ls` shows it. */
const nodeOf = (cluster, name) => JSON.parse(cluster.run(["--json", "node", "ls"])).nodes
  .find((one) => one.name === name);

/** A property of an element as the browser draws it. */
const look = (page, selector, property) =>
  page.$eval(selector, (element, name) => getComputedStyle(element)[name], property);

function assertRed(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  assert.ok(red > 2 * Math.max(green, blue), `${colour} is no red`);
}

/** Waits until a drain that still runs is marked as late, in red. */
async function seenLate(page, name) {
  const card = await until(`the drain of ${name} is late`, () =>
    page.$eval(`.drain.late[data-node="${name}"]`, (element) => {
      const part = (selector) => element.querySelector(selector);
      const colour = (selector) => getComputedStyle(part(selector)).color;
      return {
        clock: part(".clock").textContent, verdict: part(".verdict").textContent,
        colours: [colour(".clock"), colour(".verdict"), getComputedStyle(element).borderLeftColor,
          getComputedStyle(part(".track .late")).backgroundColor],
        width: part(".track .late").getBoundingClientRect().width,
      };
    }).catch(() => null));
  assert.match(card.clock, /^\d+\.\d\ss$/, "the drain still runs");
  assert.match(card.verdict, /MiB\swill not make it/);
  card.colours.forEach(assertRed);
  assert.ok(card.width > 0, "the bar shows what is late");
}

/** Opens the dialog of a node for an act, and waits for its forecast. */
async function plan(page, name, seconds) {
  const button = `tr[data-node="${name}"] td.act button`;
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

/** The points of a curve of a chart, as places in its picture, whose height is 96. */
const points = (page, title, at) => page.$$eval("#charts .chart", (charts, wanted, number) => {
  const chart = charts.find((one) => one.querySelector("h3").textContent === wanted);
  const path = chart.querySelector(`path.line-${number}`).getAttribute("d") ?? "";
  return path.split(/[ML]/).filter(Boolean).map((point) => point.split(" ").map(Number));
}, title, at);

const isFocused = (page, selector) =>
  page.evaluate((wanted) => document.activeElement.matches(wanted), selector);

/** Presses Tab until a control has the focus, which must be seen; returns what had it before. */
async function tabTo(page, selector) {
  const passed = [];
  while (!await isFocused(page, selector)) {
    assert.ok(passed.length < 100, `Tab does not reach ${selector}`);
    await page.keyboard.press("Tab");
    passed.push(await page.evaluateHandle(() => document.activeElement));
  }
  assert.notEqual(await look(page, `${selector}:focus`, "outlineStyle"), "none");
  return passed;
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

  test("the charts draw the traffic of clients as curves, in words and as a table", async () => {
    const page = await open(cluster.url);
    // Traffic is what counters have grown by since an earlier sample.
    // A node's first report is a beginning, too, so the traffic goes on until it is drawn.
    const move = () => {
      cluster.put("/charted", 16);
      cluster.run(["fs", "get", "-q", "--force", "/charted", join(cluster.directory, "charted")]);
      cluster.run(["fs", "rm", "-q", "/charted"]);
    };
    for (const [name, at] of [["Read", 0], ["Written", 1]]) {
      const curve = await until(`the curve of ${name} rises`, async () => {
        move();
        const found = await points(page, "Client traffic", at);
        return found.length > 1 && found.some(([, y]) => y < 95) && found;
      });
      assert.ok(curve.every(([x, y]) => x >= 0 && x <= 360 && y >= 0 && y <= 96), `${curve}`);
      assert.ok(curve.every(([x], place) => place === 0 || x > curve[place - 1][0]), `${curve}`);
      const label = await page.$eval("#charts .chart svg", (one) => one.ariaLabel);
      assert.match(label, new RegExp(`${name} now [^;]*, at most [\\d.]+\\s[KM]iB/s`));
    }
    for (const title of ["Moved between nodes", "Stored and exposed", "Nodes"]) {
      assert.ok((await points(page, title, 0)).length > 1, `${title} has a curve`);
    }
    await page.click("#charts .chart details summary");
    await waitText(page, "#charts .chart details[open] tbody tr", /\d[\s\S]*[KM]iB\/s/);
    await close(page);
  });

  test("a notice shows its forecast first, and its drain is seen until empty in two tabs",
    async () => {
      const [page, other] = [await open(cluster.url), await open(cluster.url, 400)];
      await waitText(page, "#connection", /Live/);
      const forecast = await plan(page, "slow", 300);
      assert.match(forecast, /Everything makes it in time/);
      assert.match(forecast, /MiB to \d nodes, at .* done in/);
      assert.equal(nodeOf(cluster, "slow").policy, "active", "a forecast changes nothing");
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
      cluster.put("/job/d", 96);
      // Half of the time that its link needs: the drain is seen, and half of it is lost.
      const seconds = nodeOf(cluster, "late").exposure_bytes / SLOW / 2;
      assert.match(await plan(page, "late", seconds), /will not make it/);
      assert.match(await text(page, "dialog button[type=submit]"), /Give notice, lose .*MiB/);
      assertRed(await look(page, "dialog .plan p.bad", "color"));
      assertRed(await look(page, "dialog button.danger[type=submit]", "backgroundColor"));
      await page.$eval("#act-reason", (input, value) => { input.value = value; }, HOSTILE);
      await page.screenshot({ path: join(PICTURES, "late-dialog.png") });
      await page.click("dialog button[type=submit]");
      await seenLate(page, "late");
      await waitText(page, '.drain[data-node="late"] .clock', /Gone/);
      await waitText(page, '.drain[data-node="late"] .verdict', /MiB lost/);
      await waitText(page, "#losses tbody tr", /late[\s\S]*\/job\/[abcd][\s\S]*MiB/);
      await waitText(page, "#events tbody tr", /Lost .*MiB .*with late, of job \d+ at \/job/);
      await waitText(page, "#events tbody tr", /<img src=x onerror/);
      assert.equal(await page.evaluate(() => window.hostile ?? document.images.length), 0);
      await accessible(page, "console");
      await plan(page, "datanode-1", 30);
      await accessible(page, "dialog");
      await close(page);
    });

  test("a forecast of what was typed before is given up at once", async () => {
    const page = await open(cluster.url);
    await waitText(page, "#connection", /Live/);
    await page.evaluate(() => {
      window.signals = [];
      const requested = window.fetch;
      window.fetch = (url, options) => {
        if (String(url).includes("/forecast")) window.signals.push(options.signal);
        return requested(url, options);
      };
    });
    await page.click('tr[data-node="datanode-1"] td.act button');
    await page.waitForFunction(() => window.signals.length > 0);
    const isGivenUp = await page.$eval("#act-seconds", (input) => {
      input.value = 40;
      input.dispatchEvent(new Event("input"));
      return window.signals[0].aborted;
    });
    assert.ok(isGivenUp, "its answer would offer the act with another forecast");
    await page.waitForSelector("dialog button[type=submit]:not(:disabled)");
    await close(page);
  });

  test("the keyboard alone reaches each act, and a screen reader gets what happens", async () => {
    const page = await open(cluster.url);
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#nodes tbody tr", /datanode-2[\s\S]*up/);
    // The page reads out nothing in its first second: its timer was set before this one.
    const settled = page.evaluate(() => new Promise((done) => { setTimeout(done, 1000); }));
    await page.evaluate(() => {
      window.spoken = [];
      new MutationObserver((records) => {
        for (const { addedNodes } of records) {
          window.spoken.push(...[...addedNodes].map((one) => one.textContent));
        }
      }).observe(document.getElementById("announcer"), { childList: true });
    });
    const live = await page.$eval("#announcer", (element) => [element.role, element.hidden]);
    assert.deepEqual(live, ["status", false]);

    const act = 'tr[data-node="datanode-2"] td.act button';
    const passed = await tabTo(page, act);
    const order = [".skip", "#nodes-filter", '[aria-label="Table of nodes"]',
      "#nodes thead button", 'tr[data-node="datanode-2"] th button', act];
    const places = await page.evaluate((selectors, ...elements) => selectors.map((one) =>
      elements.findIndex((element) => element.matches(one))), order, ...passed);
    assert.ok(places.every((place) => place >= 0), `not reached: ${places}`);
    assert.deepEqual(places, places.toSorted((one, other) => one - other));

    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open] form");
    assert.ok(await isFocused(page, 'dialog form input[value="notice"]'), "focus is in the form");
    await tabTo(page, "#act-seconds");
    await tabTo(page, "#act-reason");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog:not([open])");
    assert.ok(await isFocused(page, act), "focus is back");
    assert.equal(nodeOf(cluster, "datanode-2").policy, "active");

    await settled;
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog button[type=submit]:not(:disabled)");
    await tabTo(page, "dialog button[type=submit]");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog:not([open])");
    assert.ok(await isFocused(page, act), "focus is back");
    for (const words of [/^datanode-2 got a notice$/, /^datanode-2 is empty$/]) {
      await until(`${words} is read out`, async () =>
        (await page.evaluate(() => window.spoken)).some((one) => words.test(one)));
    }
    await waitText(page, act, /Cancel/);
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open] form");
    assert.ok(await isFocused(page, "dialog button[type=submit]"), "focus is in the form");
    await page.keyboard.press("Enter");
    await waitText(page, '#nodes tr[data-node="datanode-2"]', /up/);
    await close(page);
  });

  test("a decommission shows where all goes, is seen until empty, and can be taken back",
    async () => {
      const page = await open(cluster.url);
      await waitText(page, "#connection", /Live/);
      const act = 'tr[data-node="datanode-1"] td.act button';
      await page.waitForSelector(act);
      await page.click(act);
      await page.waitForSelector("dialog[open] form");
      await page.click('dialog input[value="decommission"]');
      // Not that of the notice, which was chosen first.
      await waitText(page, "dialog button[type=submit]:not(:disabled)", /^Decommission$/);
      assert.match(await text(page, "dialog .plan"), /Everything has a place/);
      const isShown = await page.$eval("#act-seconds", (input) => input.offsetParent !== null);
      assert.equal(isShown, false, "a decommission has no deadline");
      assert.equal(nodeOf(cluster, "datanode-1").policy, "active", "a forecast changes nothing");
      await page.$eval("#act-reason", (input) => { input.value = "another machine"; });
      await page.click("dialog button[type=submit]");
      await page.waitForSelector("dialog:not([open])");
      await waitText(page, "#events tbody tr",
        /datanode-1 is decommissioned: .* to move.*another machine/);
      await waitText(page, '.drain[data-node="datanode-1"] .clock', /Empty/);
      await waitText(page, '.drain[data-node="datanode-1"]', /another machine[\s\S]*Emptied in/);
      await waitText(page, '#nodes tr[data-node="datanode-1"]', /drained/);
      assert.equal(nodeOf(cluster, "datanode-1").policy, "drained");
      await page.click(act);
      await page.waitForSelector("dialog[open] form");
      await page.click("dialog button[type=submit]");
      await waitText(page, '#nodes tr[data-node="datanode-1"]', /up/);
      await until("the node is active", () => nodeOf(cluster, "datanode-1").policy === "active");
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
    assert.equal(nodeOf(cluster, "datanode-1").policy, "active");
    await page.browserContext().close();
    evil.close();
  });

  test("the first page of other servers leads to the console", async () => {
    const node = nodeOf(cluster, "datanode-1");
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
    await signIn(page, token(["--rights", "metrics", "--expires", "20s"]));
    await waitText(page, "#connection", /Live/);
    await waitText(page, "#login-why", /refused the token: .*expired/);
    assert.equal(await page.$("#console:not([hidden])"), null);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    await close(page);
  });

  test("a page that is loaded with a token that has ended requests another one", async () => {
    const page = await open(cluster.url);
    const shown = token(["--rights", "metrics", "--expires", "20s"]);
    const { exp } = JSON.parse(Buffer.from(shown.split(".")[1], "base64url"));
    await signIn(page, shown);
    await waitText(page, "#connection", /Live/);
    // The page is away when the token ends; what the tab keeps has it still.
    await page.goto("about:blank");
    await until("the token ends", () => Date.now() > 1000 * (exp + 1));
    const answers = [];
    page.on("response", (response) => {
      if (response.url().includes("/v1/stream")) answers.push(response.status());
    });
    await page.goto(cluster.url);
    await page.waitForSelector("#login:not([hidden])");
    await waitText(page, "#login-why", /^The server refused the token: .*expired/);
    await until("the answer", () => answers.length > 0);
    assert.deepEqual(answers, [401], "it is shown once, and nothing came with it");
    assert.equal(await page.$("#console:not([hidden])"), null);
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    await signIn(page, token(["--rights", "metrics", "--expires", "1h"]));
    await waitText(page, "#connection", /Live/);
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

  test("a loss gets the path of its job when an event has it, and no other row is drawn again",
    async (t) => {
      const { serve } = await import("./played.mjs");
      const played = await serve({ nodes: 3 });
      t.after(() => played.close());
      const page = await open(played.url);
      await waitText(page, "#connection", /Live/);
      let sequence = 0;
      const send = (kind) => {
        sequence += 1;
        const event = { sequence, at: Date.now() * 1000, kind };
        played.send("events", { events: [event], skipped: 0 });
      };
      const lost = (jobs) => send({ blocks_lost: { node: 1, blocks: 1, bytes: 4096, objects: 1,
        jobs } });
      const register = (job) => send({ job_registered: { job, path: `/job-${job}` } });
      lost([8, 9]);
      await waitText(page, "#events tbody tr", /Lost .* with node-1, of 2 jobs/);
      await page.$eval("#events tbody tr", (row) => { row.dataset.drawn = "once"; });
      register(8);
      await waitText(page, "#events tbody tr", /Job 8 began at \/job-8/);
      assert.equal(await text(page, '#events tr[data-drawn="once"] td.kind'), "blocks lost");
      lost([7]);
      await waitText(page, "#events tbody tr", /Lost .* with node-1, of job 7$/);
      register(7);
      await waitText(page, "#events tbody tr", /Lost .* with node-1, of job 7 at \/job-7$/);
      await close(page);
    });
});
