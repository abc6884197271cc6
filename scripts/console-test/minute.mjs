// Measures the first minute: from `pip install` of the newest wheel in target/wheels, in an empty
// environment, to a drain that the console shows as over. Fails when that takes more than 60 s.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { browser, until } from "./fleet.mjs";

const ROOT = join(import.meta.dirname, "../..");
const LIMIT_SECONDS = 60;

/** Returns the wheel that was built last: WHEEL, else one of target/wheels. */
function wheel() {
  if (process.env.WHEEL) return process.env.WHEEL;
  const place = join(ROOT, process.env.CARGO_TARGET_DIR ?? "target", "wheels");
  const found = readdirSync(place).filter((name) => /^sanderling-.*\.whl$/.test(name))
    .map((name) => join(place, name))
    .sort((one, two) => statSync(two).mtimeMs - statSync(one).mtimeMs);
  if (!found.length) throw new Error("target/wheels has no wheel: make wheel");
  return found[0];
}

const directory = mkdtempSync(join(tmpdir(), "sanderling-minute-"));
const environment = {
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) =>
    !name.startsWith("SANDERLING_"))),
  SANDERLING_LOCAL_DIR: join(directory, "cluster"),
  SANDERLING_CONFIG_HOME: join(directory, "config"),
};
const program = join(directory, "venv/bin/sanderling");
const run = (command, words) => execFileSync(command, words, {
  env: environment, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"],
});

const chromium = await browser();
try {
  run(process.env.PYTHON ?? "python3", ["-m", "venv", join(directory, "venv")]);
  const began = Date.now();
  const elapsed = () => (Date.now() - began) / 1000;
  const lap = (what) => console.log(`${elapsed().toFixed(1).padStart(6)} s  ${what}`);
  run(join(directory, "venv/bin/python"),
    ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel()]);
  lap("pip install");
  const tour = spawn(program, ["tour", "--port", "0"], {
    env: environment, stdio: ["ignore", "pipe", "pipe"],
  });
  let printed = "";
  const ended = new Promise((done) => tour.on("close", done));
  for (const stream of [tour.stdout, tour.stderr]) {
    stream.on("data", (text) => { printed += text; });
  }
  const address = await until("the console's address", () =>
    printed.match(/^console +(http\S+)/m)?.[1]);
  const page = await (await chromium.createBrowserContext()).newPage();
  await page.setViewport({ width: 1400, height: 1000 });
  await page.goto(address);
  lap(`console open: ${address}`);
  const shown = (selector, wanted) => until(`${selector} has ${wanted}`, async () =>
    wanted.test(await page.$eval(selector, (element) => element.innerText).catch(() => "")));
  await shown('.drain[data-node="spot-0"]', /MiB left/);
  mkdirSync(join(ROOT, "target/console"), { recursive: true });
  await page.screenshot({ path: join(ROOT, "target/console/minute.png") });
  lap("the drain is seen");
  await shown('.drain[data-node="spot-0"]', /Emptied in/);
  lap("the node is empty");
  const seconds = elapsed();
  const code = await ended;
  lap("the tour has ended");
  console.log(`\n${printed}`);
  if (code !== 0) throw new Error(`sanderling tour: exit code ${code}`);
  if (seconds > LIMIT_SECONDS) {
    throw new Error(`${seconds.toFixed(1)} s are more than ${LIMIT_SECONDS} s`);
  }
} finally {
  await chromium.close();
  try {
    run(program, ["local", "stop"]);
  } catch {
    // No cluster runs.
  }
  rmSync(directory, { recursive: true, force: true });
}
