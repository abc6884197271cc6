// Measures the page: first paint, size, and frames per second with 1,000 nodes of which every row
// changes each second, and 100 events a second. Prints one line of JSON.

import { browser } from "./fleet.mjs";
import { serve } from "./played.mjs";

const SECONDS = 10;

const played = await serve({ nodes: 1000, everySecond: 100 });
const chromium = await browser();
const page = await chromium.newPage();
await page.setViewport({ width: 1400, height: 1000 });
await page.goto(played.url);
await page.waitForSelector("#nodes tbody tr");
const frames = await page.evaluate((seconds) => new Promise((done) => {
  const times = [];
  const end = performance.now() + seconds * 1000;
  const step = (now) => {
    times.push(now);
    if (now < end) requestAnimationFrame(step);
    else done(times);
  };
  requestAnimationFrame(step);
}), SECONDS);
const gaps = frames.slice(1).map((time, at) => time - frames[at]).sort((one, two) => one - two);
const result = await page.evaluate(() => ({
  first_paint_ms: Math.round(performance.getEntriesByName("first-contentful-paint")[0].startTime),
  page_bytes: performance.getEntriesByType("resource")
    .filter((entry) => !entry.name.includes("/v1/"))
    .reduce((all, entry) => all + entry.decodedBodySize,
      performance.getEntriesByType("navigation")[0].decodedBodySize),
}));
console.log(JSON.stringify({
  ...result,
  frames_per_second: Number(((frames.length - 1) / SECONDS).toFixed(1)),
  gap_p99_ms: Math.round(gaps[Math.floor(gaps.length * 0.99)]),
  gap_max_ms: Math.round(gaps.at(-1)),
}));
await chromium.close();
await played.close();
