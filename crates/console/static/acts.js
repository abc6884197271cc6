// The dialog of a node or a job: what it is, and acts on it. A drain shows its forecast first.

import { stateOf } from "./fleet.js";
import { Refused, call } from "./stream.js";
import { $, bytes, count, el, forecastText, lateText, plural, rate, setText, span, time }
  from "./text.js";

const WEEK_SECONDS = 604800;
/** How long typing must rest before the next forecast is requested. */
const REST_MILLIS = 300;

export class Acts {
  #model;
  #node = null;
  #facts = null;
  #abort = null;
  #timer = 0;
  #submit = null;
  onRefused = () => {};

  constructor(model) {
    this.#model = model;
    $("dialog").addEventListener("close", () => {
      this.#abort?.abort();
      clearTimeout(this.#timer);
      this.#node = null;
    });
  }

  close() {
    if ($("dialog").open) $("dialog").close();
  }

  /** Opens the dialog of a node; with `act` the focus is on what is done to it. */
  open(id, act) {
    const node = this.#model.nodes.get(id);
    if (!node) return;
    this.#node = node;
    this.#facts = el("dl", { className: "facts" });
    const parts = [this.#facts];
    const isLeaving = node.policy !== "active" || node.is_at_risk;
    if (!this.#model.hello?.may_administer) {
      parts.push(el("p", { className: "faint",
        textContent: "Notices and decommissions need a token with the right to administer." }));
    } else {
      parts.push(isLeaving ? this.#cancelForm(node) : this.#drainForm(node));
    }
    this.#show(node.name, parts);
    this.#fillFacts(node);
    if (act) $("dialog").querySelector("form input, form button")?.focus();
  }

  /** Follows the node while its dialog is open. */
  change() {
    const node = this.#node && this.#model.nodes.get(this.#node.id);
    if (!node || node === this.#node) return;
    this.#node = node;
    this.#fillFacts(node);
  }

  #show(title, parts) {
    const shut = el("button", { type: "button", className: "link", textContent: "Close" });
    shut.addEventListener("click", () => this.close());
    $("dialog").replaceChildren(
      el("div", { className: "head" },
        el("h2", { id: "dialog-title", textContent: title }), shut),
      ...parts);
    if (!$("dialog").open) $("dialog").showModal();
  }

  #fillFacts(node) {
    const rows = [
      ["State", stateOf(node)[0] + (node.reason ? `: ${node.reason}` : "")],
      ["Address", node.address + (node.host ? ` on ${node.host}` : "")],
      ["Holds", `${plural(node.blocks, "block")}, ${bytes(node.home_bytes)}` +
        (node.copy_bytes ? `, ${bytes(node.copy_bytes)} of copies` : "")],
      ["Exposed", `${bytes(node.exposure_bytes)} of a budget of ${bytes(node.budget_bytes)}`],
      ["Kind", node.is_spot ? `spot, notice of ${span(node.notice_min)}`
        : `no notice declared, ${span(node.notice_min)} assumed`],
      ["Sends", `${rate(node.egress_bytes_per_second)} at most`],
      ["Joined", time(node.registered_at / 1000)],
    ];
    this.#facts.replaceChildren(...rows.map(([name, text]) =>
      el("div", {}, el("dt", { textContent: name }), el("dd", { textContent: text }))));
  }

  #drainForm(node) {
    const seconds = el("input", { id: "act-seconds", type: "number", min: 1, max: WEEK_SECONDS,
      step: "any", value: 30, required: true });
    const reason = el("input", { id: "act-reason", type: "text", maxLength: 200,
      value: "operator" });
    const kinds = [["notice", "Notice, with a deadline"], ["decommission", "Decommission"]];
    const radios = kinds.map(([value, text], at) => {
      const input = el("input", { type: "radio", name: "act", value, checked: at === 0 });
      return { input, label: el("label", {}, input, ` ${text}`) };
    });
    const plan = el("div", { className: "plan", role: "status" });
    const deadline = el("div", {}, el("label", { htmlFor: "act-seconds",
      textContent: "Seconds until the machine goes" }), seconds);
    const { form, submit } = this.#form(plan, [
      el("fieldset", {}, el("legend", { textContent: "What to do" }),
        ...radios.map(({ label }) => label)),
      deadline,
      el("div", {}, el("label", { htmlFor: "act-reason", textContent: "Reason" }), reason),
      plan,
    ], "Give notice");
    const isNotice = () => radios[0].input.checked;
    const look = () => {
      deadline.hidden = !isNotice();
      submit.disabled = true;
      clearTimeout(this.#timer);
      // Its answer would be a forecast of what was typed before.
      this.#abort?.abort();
      if (isNotice() && !seconds.checkValidity()) {
        plan.replaceChildren(el("p", { textContent: "Give a time between 1 s and 7 days." }));
        return;
      }
      plan.replaceChildren(el("p", { className: "faint", textContent: "Forecast to come" }));
      const query = isNotice() ? `?deadline_seconds=${seconds.valueAsNumber}` : "";
      this.#timer = setTimeout(() => this.#forecast(node, query, plan, submit, isNotice()),
        REST_MILLIS);
    };
    seconds.addEventListener("input", look);
    radios.forEach(({ input }) => input.addEventListener("change", look));
    this.#submit = () => {
      const body = { reason: reason.value };
      if (isNotice()) body.deadline_seconds = seconds.valueAsNumber;
      return this.#post(node, isNotice() ? "notice" : "decommission", body);
    };
    look();
    return form;
  }

  async #forecast(node, query, plan, submit, isNotice) {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    try {
      const path = `/v1/nodes/${node.id}/forecast${query}`;
      const answer = await call(path, { signal: abort.signal });
      if (abort.signal.aborted) return;
      const late = answer.forecast.late_bytes + answer.forecast.unplaced_bytes;
      plan.replaceChildren(...planParts(answer, isNotice));
      const verb = isNotice ? "Give notice" : "Decommission";
      setText(submit, late > 0 ? `${verb}, ${isNotice ? "lose" : "strand"} ${bytes(late)}` : verb);
      submit.className = late > 0 ? "danger" : "primary";
      submit.disabled = false;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#failed(error, plan);
    }
  }

  #cancelForm(node) {
    const moved = node.drain ? node.drain.moved_bytes + node.drain.promoted_bytes : 0;
    const text = node.policy === "active" ? "The cloud's recommendation is withdrawn."
      : `The node takes blocks again. ${bytes(moved)} that have left stay where they are.`;
    const plan = el("div", { className: "plan", role: "status" }, el("p", { textContent: text }));
    const { form, submit } = this.#form(plan, [plan],
      node.policy === "active" ? "Withdraw" : "Cancel the drain");
    submit.disabled = false;
    this.#submit = () => this.#post(node, "cancel");
    return form;
  }

  openJob(job) {
    const text = job.keep_after_job
      ? `Its lease ends. ${bytes(job.used_bytes)} below ${job.path} stay, as it asked for.`
      : `${bytes(job.used_bytes)} below ${job.path} are deleted.`;
    const plan = el("div", { className: "plan" }, el("p", { textContent: text }));
    const { form, submit } = this.#form(plan, [plan], "End the job");
    submit.className = "danger";
    submit.disabled = false;
    this.#submit = () => call(`/v1/jobs/${job.job}/end`, { method: "POST" });
    this.#show(`Job ${job.job}`, [form]);
  }

  #post(node, act, body) {
    // By number: a new incarnation may have the same name.
    return call(`/v1/nodes/${node.id}/${act}`, { method: "POST", body });
  }

  #form(plan, parts, verb) {
    const submit = el("button", { type: "submit", className: "primary", textContent: verb,
      disabled: true });
    const form = el("form", { method: "post", className: "act-form" }, ...parts, submit);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (submit.disabled) return;
      submit.disabled = true;
      try {
        await this.#submit();
        this.close();
      } catch (error) {
        this.#failed(error, plan);
      }
    });
    return { form, submit };
  }

  #failed(error, plan) {
    if (error instanceof Refused && error.status === 401) {
      this.onRefused(error);
      return;
    }
    const text = error instanceof Refused ? error.message
      : "No answer came. The events show whether it was done.";
    plan.replaceChildren(el("p", { className: "bad", role: "alert", textContent: text }));
  }
}

/** A plan: the verdict, what moves where, and what does not. */
function planParts(answer, isNotice) {
  const { forecast } = answer;
  const late = lateText(forecast);
  const verdict = late ? el("p", { className: "bad" }, late)
    : el("p", { className: "good",
      textContent: isNotice ? "Everything makes it in time." : "Everything has a place." });
  const parts = [verdict, el("p", {}, answer.bytes > 0
    ? `${plural(answer.blocks, "block")}, ${forecastText(forecast)}` : "No byte has to move.")];
  if (answer.safe_bytes > 0) {
    parts.push(el("p", { textContent: `${bytes(answer.safe_bytes)} survive without a move` }));
  }
  const shown = answer.targets.slice(0, 5).map((target) =>
    el("li", { textContent: `${target.name}, ${target.tier}: ${bytes(target.bytes)}` }));
  if (answer.targets.length > shown.length) {
    shown.push(el("li", { textContent: `${count(answer.targets.length - shown.length)} more` }));
  }
  if (shown.length) parts.push(el("ul", {}, ...shown));
  return parts;
}
