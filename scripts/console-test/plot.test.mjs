// Draws the pages of measuring commands in headless Chromium: every kind of mark, both colour
// schemes, and what the pointer shows. Screenshots go to target/console.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { browser } from "./fleet.mjs";

const ROOT = join(import.meta.dirname, "../..");
const PICTURES = join(ROOT, "target/console");
const SPEC = {
  about: "every kind of mark",
  x: { name: "time", ends: [0, 10], count: 5, unit: { after: " s" } },
  panels: [
    {
      title: "rates", height: 100, y: { ends: [0, 40], count: 4 },
      marks: [
        { kind: "bar", class: "held", x: [1, 3], y: [0, 20], title: "node 3 <b>holds</b> 20" },
        { kind: "bar", class: "shade", x: [4, 6] },
        { kind: "curve", class: "blue", name: "reads", unit: " MiB/s", area: true,
          points: [[0, 10], [2, 30], null, [6, 20], [10, 35]] },
        { kind: "line", class: "cut", x: [4, 4], text: "notice" },
        { kind: "line", class: "mark", y: [25, 25] },
        { kind: "whisker", x: 8, y: [5, 15] },
        { kind: "text", at: [4, 5], by: [4, 0], room: [0, 4.1], text: "left of it", short: "no" },
      ],
    },
    {
      height: 60, y: { ends: [0.25, 4], log: true, at: [[0.25, "¼"], [1, "1"], [4, "4"]] },
      marks: [
        { kind: "dots", class: "blue", points: [[1, 1], [2, 4], [3, 99]] },
        { kind: "dots", class: "red", shape: "cross", points: [[5, 1]] },
      ],
    },
    {
      height: 50, y: { ends: [2, 0], at: [[0.5, "first"], [1.5, "second"]], grid: false },
      marks: [],
    },
  ],
};

/** Returns the page that the commands write, around this plot. */
function html() {
  const file = (name) => readFileSync(join(ROOT, "crates/plot/static", name), "utf8");
  const json = JSON.stringify(SPEC).replaceAll("<", "\\u003c");
  const parts = { title: "Plots", style: file("plot.css"), script: file("plot.js"), verdict: "",
    version: "0", body: `<div class=picture><script class=plot type="application/json">${json}` +
      "</script></div>" };
  return Object.entries(parts).reduce((page, [name, part]) =>
    page.replaceAll(`<!--${name}-->`, () => part), file("page.html"));
}

let chromium, page;
before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  chromium = await browser();
  page = await chromium.newPage();
  page.failures = [];
  page.on("pageerror", (error) => page.failures.push(String(error)));
  page.on("console", (message) => page.failures.push(message.text()));
  await page.setViewport({ width: 1240, height: 600 });
  await page.setContent(html());
  await page.waitForSelector(".picture svg");
});
after(() => chromium.close());

const all = (selector, read) => page.$$eval(selector, (found, name) =>
  found.map((one) => name === "text" ? one.textContent : Number(one.getAttribute(name))), read);

test("every mark is drawn inside the picture", async () => {
  assert.deepEqual(page.failures, []);
  const counts = { rect: 2, ".curve": 1, ".area": 1, "circle": 3, ".cross": 1, ".whisker": 1 };
  for (const [selector, count] of Object.entries(counts)) {
    assert.equal((await page.$$(`.picture ${selector}`)).length, count, selector);
  }
  const path = await page.$eval(".picture .curve", (one) => one.getAttribute("d"));
  assert.equal(path.match(/M/g).length, 2, "the gap is drawn");
  const boxes = await page.$$eval(".picture svg g *", (found) => {
    const outer = document.querySelector(".picture svg").getBoundingClientRect();
    return found.filter((one) => {
      const box = one.getBoundingClientRect();
      return box.left < outer.left - 1 || box.right > outer.right + 1 ||
        box.top < outer.top - 1 || box.bottom > outer.bottom + 1;
    }).length;
  });
  assert.equal(boxes, 0, "a mark lies outside");
});

test("axes have round numbers, factors of equal length, the first place at the top", async () => {
  const words = await all(".picture text", "text");
  for (const word of ["0 s", "2 s", "10 s", "time", "rates", "0", "40", "notice", "left of it"]) {
    assert.ok(words.includes(word), `${word} is not in ${words}`);
  }
  assert.ok(!words.includes("no"));
  const heights = await all("circle", "cy"), log = heights[0] - heights[1];
  assert.ok(log > 25 && log < 35, "1 is not in the middle of 1/4 and 4");
  assert.ok(heights[2] <= heights[1], "a value beyond the axis is not at its edge");
  const [first, second] = await page.$$eval(".picture text", (found) => ["first", "second"]
    .map((word) => Number(found.find((one) => one.textContent === word).getAttribute("y"))));
  assert.ok(first < second);
});

test("the pointer shows a mark's title as text, or the values of named curves", async () => {
  await page.hover(".picture rect");
  assert.equal(await page.$eval("#tip", (tip) => tip.textContent), "node 3 <b>holds</b> 20");
  const box = await (await page.$(".picture svg")).boundingBox();
  await page.mouse.move(box.x + box.width * 0.9, box.y + 45);
  const shown = await page.$eval("#tip", (tip) => tip.textContent);
  assert.match(shown, /^9\.\d\d s\nreads: 20\.0 MiB\/s$/);
  await page.mouse.move(box.x + 2, box.y - 20);
  assert.ok(await page.$eval("#tip", (tip) => tip.hidden));
});

test("texts are readable in both colour schemes", async () => {
  for (const value of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
    const contrast = await page.evaluate(() => {
      const light = (colour) => {
        const part = colour.match(/[\d.]+/g).slice(0, 3).map((one) => {
          const share = one / 255;
          return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
      };
      const back = light(getComputedStyle(document.querySelector(".picture")).backgroundColor);
      return Math.min(...[...document.querySelectorAll(".picture text")].map((one) => {
        const [low, high] = [light(getComputedStyle(one).fill), back].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
      }));
    });
    assert.ok(contrast >= 4.5, `${value}: ${contrast}`);
    await page.screenshot({ path: join(PICTURES, `plot-${value}.png`) });
  }
});
