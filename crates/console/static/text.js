// Numbers and names as text, and elements of them. Text of tenants becomes text nodes, never HTML.

export const $ = (id) => document.getElementById(id);

/** Makes an element: properties, `data-` and `aria-` attributes by name, then children. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key in element && !key.includes("-")) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets an element's text if it differs: what stays the same costs no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets the class of an element if it differs. */
export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes in IEC units, three digits. */
export function bytes(value) {
  let at = 0;
  let scaled = value;
  while (scaled >= 999.5 && at < UNITS.length - 1) {
    scaled /= 1024;
    at += 1;
  }
  const digits = at === 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${scaled.toFixed(digits)}\u00a0${UNITS[at]}`;
}

export const rate = (value) => `${bytes(value)}/s`;

export const count = (value) => value.toLocaleString("en");

export const plural = (value, one) => `${count(value)} ${one}${value === 1 ? "" : "s"}`;

/** A span as people read it. */
export function span(millis) {
  const seconds = millis / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}\u00a0s`;
  if (seconds < 120) return `${Math.round(seconds)}\u00a0s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)}\u00a0h`;
  return `${Math.round(seconds / 86400)}\u00a0days`;
}

/** A countdown to tenths of a second below a minute. */
export function countdown(millis) {
  const left = Math.max(0, millis);
  if (left < 60000) return `${(Math.floor(left / 100) / 10).toFixed(1)}\u00a0s`;
  const seconds = Math.floor(left / 1000);
  const two = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const rest = `${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return hours ? `${hours}:${rest}` : rest;
}

const TIME = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** The time of day of milliseconds since 1970, with the day unless it is today. */
export function time(millis) {
  const at = new Date(millis);
  const text = TIME.format(at);
  return at.toDateString() === new Date().toDateString() ? text : `${DAY.format(at)} ${text}`;
}

/** Names of nodes by their number; bounded, the oldest go first. */
export class Names {
  static #MAX = 5000;
  #names = new Map();

  set(node, name) {
    this.#names.delete(node);
    this.#names.set(node, name);
    if (this.#names.size > Names.#MAX) this.#names.delete(this.#names.keys().next().value);
  }

  of(node) {
    return this.#names.get(node) ?? `node ${node}`;
  }
}

/** Paths of jobs by their number; bounded, the oldest go first. */
export class JobPaths {
  static #MAX = 5000;
  #paths = new Map();

  /** Takes the path of a job. Returns whether it was another one, or none, before. */
  set(job, path) {
    if (this.#paths.get(job) === path) return false;
    this.#paths.set(job, path);
    if (this.#paths.size > JobPaths.#MAX) this.#paths.delete(this.#paths.keys().next().value);
    return true;
  }

  /** Names a job as the list of events does; by its number alone while its path is not there. */
  of(job) {
    const path = this.#paths.get(job);
    return path === undefined ? `job ${job}` : `job ${job} at ${path}`;
  }
}

/** What a forecast expects, in words. */
export function forecastText(forecast) {
  const parts = [];
  if (forecast.left_bytes > 0) {
    parts.push(`${bytes(forecast.left_bytes)} to ${plural(forecast.targets, "node")}`);
    if (forecast.bytes_per_second > 0) parts.push(`at ${rate(forecast.bytes_per_second)}`);
    if (forecast.finish_in !== null) parts.push(`done in ${span(forecast.finish_in)}`);
  } else {
    parts.push("nothing left to move");
  }
  if (forecast.skipped_bytes > 0) {
    parts.push(`${bytes(forecast.skipped_bytes)} expire by themselves`);
  }
  return parts.join(", ");
}

/** What of a forecast will not make it, in words; empty when all will. */
export function lateText(forecast) {
  const parts = [];
  if (forecast.late_bytes > 0) parts.push(`${bytes(forecast.late_bytes)} will not make it`);
  if (forecast.unplaced_bytes > 0) parts.push(`${bytes(forecast.unplaced_bytes)} have no room`);
  return parts.join(", ");
}
