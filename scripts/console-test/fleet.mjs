// Real clusters for the tests of the console, and a browser that looks at them.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

const ROOT = join(import.meta.dirname, "../..");
export const SOON = 60000;

/** Returns the program under test: SANDERLING_BIN, else one that was built here. */
export function program() {
  const named = process.env.SANDERLING_BIN;
  const built = [".venv/bin/sanderling", "target/release/sanderling", "target/debug/sanderling"];
  const found = (named ? [named] : built.map((path) => join(ROOT, path))).find(existsSync);
  if (!found) throw new Error("sanderling is not there: make build, or set SANDERLING_BIN");
  return found;
}

/** Returns the browser: CHROMIUM, else one of the usual names. */
export function chromium() {
  const names = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome"];
  const found = names.find((name) => name && existsSync(name));
  if (!found) throw new Error("chromium is not there: apt install chromium, or set CHROMIUM");
  return found;
}

export async function browser() {
  const args = ["--no-sandbox", "--disable-gpu", "--ignore-certificate-errors"];
  return puppeteer.launch({ executablePath: chromium(), args });
}

/** Waits until a condition holds and returns its value. */
export async function until(what, condition, within = SOON) {
  const end = Date.now() + within;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${within} ms`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A cluster of `sanderling local start`, and servers beside it. */
export class Cluster {
  #own = [];

  constructor(words = []) {
    this.directory = mkdtempSync(join(tmpdir(), "sanderling-console-test-"));
    const start = ["--json", "local", "start", "--port", "0", ...words];
    const record = JSON.parse(this.run(start));
    this.namenode = record.namenode;
    this.http = record.http_address;
    this.keys = record.keys;
    this.scheme = words.includes("--secure") ? "https" : "http";
    this.url = `${this.scheme}://${this.http}/`;
  }

  environment() {
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("SANDERLING_"));
    const own = { SANDERLING_LOCAL_DIR: join(this.directory, "cluster") };
    if (this.namenode) own.SANDERLING_NAMENODE = this.namenode;
    if (this.keys) {
      own.SANDERLING_TLS_CA = this.keys.tls_ca;
      own.SANDERLING_TOKEN_FILE = this.keys.token_file;
    }
    return { ...Object.fromEntries(kept), ...own };
  }

  /** Runs a command of the cluster and returns what it prints. */
  run(words) {
    return execFileSync(program(), words, {
      env: this.environment(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"],
    });
  }

  /** Stores a file of so many MiB. */
  put(path, mebibytes) {
    const file = join(this.directory, "bytes");
    writeFileSync(file, Buffer.alloc(mebibytes << 20, path));
    this.run(["fs", "put", "-q", file, path]);
  }

  /** Starts a server that ends with the tests, and waits until it serves. */
  async start(words) {
    const ready = join(this.directory, `ready-${this.#own.length}`);
    const child = spawn(program(), [...words, "--exit-with-parent", "--ready-file", ready], {
      env: this.environment(), stdio: "ignore",
    });
    this.#own.push(child);
    await until(`${words[0]} serves`, () => existsSync(ready) && readFileSync(ready, "utf8"));
    return { child, ready: JSON.parse(readFileSync(ready, "utf8")) };
  }

  /** Returns the record of the namenode's process. */
  namenodeProcess() {
    const path = join(this.directory, "cluster/cluster.json");
    const record = JSON.parse(readFileSync(path, "utf8"));
    return record.processes.find((server) => server.role === "namenode");
  }

  stop() {
    for (const child of this.#own) child.kill("SIGKILL");
    try {
      this.run(["local", "stop"]);
    } finally {
      rmSync(this.directory, { recursive: true, force: true });
    }
  }
}
