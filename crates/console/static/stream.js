// The connection to the server: one stream of server-sent events, read by fetch because the token
// travels in a header. It comes back after a lost connection, from the last event on.

const TOKEN = "sanderling.token";
const SILENCE_MILLIS = 20000;
const HIDDEN_MILLIS = 30000;
const WAIT_MILLIS = [250, 500, 1000, 2000, 4000];

export const session = {
  get token() {
    return sessionStorage.getItem(TOKEN);
  },
  set token(token) {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
  },
};

/** Why a request was refused: the server's message and status. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  const all = new Headers(more);
  if (session.token) all.set("authorization", `Bearer ${session.token}`);
  return all;
}

async function refusal(response) {
  let message = `the server answered ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not the server's own answer: the status is all there is.
  }
  return new Refused(response.status, message);
}

/** Sends a request of JSON and returns the answer. */
export async function call(path, { method = "GET", body, signal } = {}) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(path, {
    method, body: sent, signal, headers: headers(), cache: "no-store", redirect: "error",
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** Follows the cluster. `receive(name, body)` gets every frame. */
export class Stream {
  #receive;
  #changed;
  #abort = null;
  #after = 0;
  #isOn = false;
  #run = 0;
  #hiddenTimer = 0;

  constructor(receive, changed) {
    this.#receive = receive;
    this.#changed = changed;
    document.addEventListener("visibilitychange", () => this.#visibility());
  }

  start() {
    this.#isOn = true;
    this.#connect(++this.#run);
  }

  stop() {
    this.#isOn = false;
    this.#run += 1;
    this.#abort?.abort();
  }

  /** A hidden page follows nothing: browsers allow a server six connections of all tabs. */
  #visibility() {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) {
      this.#hiddenTimer = setTimeout(() => {
        this.#run += 1;
        this.#abort?.abort();
        this.#changed("paused");
      }, HIDDEN_MILLIS);
    } else if (this.#isOn && this.#abort?.signal.aborted !== false) {
      this.#connect(++this.#run);
    }
  }

  async #connect(run) {
    for (let failures = 0; run === this.#run; ) {
      try {
        await this.#follow(run, () => { failures = 0; });
      } catch (error) {
        if (run !== this.#run) return;
        if (error instanceof Refused && [401, 403].includes(error.status)) {
          this.stop();
          this.#changed("refused", error);
          return;
        }
      }
      if (run !== this.#run) return;
      this.#changed("lost");
      const most = WAIT_MILLIS[Math.min(failures, WAIT_MILLIS.length - 1)];
      failures += 1;
      // Consoles that lost the same server come back one by one.
      await new Promise((done) => setTimeout(done, most * (0.5 + Math.random() / 2)));
    }
  }

  async #follow(run, arrived) {
    const abort = new AbortController();
    this.#abort = abort;
    let watch = setTimeout(() => abort.abort(), SILENCE_MILLIS);
    try {
      const response = await fetch(`/v1/stream?after=${this.#after}`, {
        headers: headers(), signal: abort.signal, cache: "no-store", redirect: "error",
      });
      if (!response.ok) throw await refusal(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let parts = [];
      for (;;) {
        const { value, done } = await reader.read();
        if (done || run !== this.#run) return;
        clearTimeout(watch);
        watch = setTimeout(() => abort.abort(), SILENCE_MILLIS);
        parts = this.#take(parts, value);
        arrived();
      }
    } finally {
      clearTimeout(watch);
      abort.abort();
    }
  }

  /** Hands out whole frames and returns the pieces of the one that is not whole. */
  #take(parts, text) {
    // A frame may end between two pieces.
    const joined = parts.length && parts.at(-1).endsWith("\n") ? parts.pop() + text : text;
    const frames = joined.split("\n\n");
    if (frames.length === 1) return [...parts, joined];
    frames[0] = parts.join("") + frames[0];
    const rest = frames.pop();
    for (const frame of frames) this.#frame(frame);
    return rest ? [rest] : [];
  }

  #frame(frame) {
    const name = /^event: (.*)$/m.exec(frame)?.[1];
    const data = /^data: (.*)$/m.exec(frame)?.[1];
    if (!name || data === undefined) return;
    const body = JSON.parse(data);
    if (name === "events" && body.events.length) this.#after = body.events.at(-1).sequence;
    this.#receive(name, body);
  }
}
