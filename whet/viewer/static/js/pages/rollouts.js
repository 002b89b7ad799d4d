import { address, empty, field, h, length, number, percent, put, select, verdict } from "../dom.js";
import { line, loadMath } from "../text.js";

export const FILTERS = ["set", "task", "verdict", "finish", "step", "level", "reward", "length", "q", "problem", "group", "answer", "part"];
export const ENDS = { stop: "ended by itself", length: "cut at the limit" };
// An evaluation answers twice; the two are never counted together.
export const EVAL_SETS = ["sampled", "greedy"];
const PAGE = 50;
const SORTS = [["-step", "newest step"], ["step", "oldest step"], ["-reward", "highest reward"], ["reward", "lowest reward"], ["-length", "longest"], ["length", "shortest"], ["logprob", "least likely"], ["-logprob", "most likely"], ["-level", "hardest"], ["level", "easiest"]];

export function isEvalRun(context) {
  return context.runs().find((run) => run.id === context.params.run)?.kind === "eval";
}

// The set that is shown: of an evaluation always one of the two.
export function setOf(context) {
  const { set } = context.params;
  if (!isEvalRun(context)) return set;
  return EVAL_SETS.includes(set) ? set : EVAL_SETS[0];
}

export function setChips(context, onChange, counts = new Map()) {
  return h("div", { class: "facet", role: "group", "aria-label": "Answers" }, EVAL_SETS.map((name) =>
    h("button", { type: "button", class: "chip", "aria-pressed": String(setOf(context) === name), onclick: () => { context.set({ set: name === EVAL_SETS[0] ? "" : name, offset: "" }); onChange(); } },
      name, counts.has(name) && h("span", { class: "count" }, counts.get(name).toLocaleString("en")))));
}

// The filters in an address, as the viewer is asked for them.
export function filtersOf(context) {
  const { params } = context;
  const chosen = Object.fromEntries(FILTERS.filter((name) => params[name]).map((name) => [name, params[name]]));
  return { ...chosen, set: setOf(context) };
}

export async function render(main, context) {
  const { params } = context;
  if (!params.run) return put(main, empty("No rollouts yet", "Runs of teach, rl, distill, tango and eval store what a model wrote. Folders of verl dumps and W&B tables are shown, too."));
  const run = context.runs().find((item) => item.id === params.run);
  const unit = run?.origin === "whet" ? "token" : "word";
  const isEval = isEvalRun(context);
  const list = h("div", { class: "list", "aria-live": "off" });
  const summary = h("p", { class: "lead", role: "status" });
  const facets = h("div", { class: "facets" });
  const more = h("div", { class: "actions" });
  const math = loadMath();
  let asked = 0;
  let hasTasks = false;

  async function load(isPoll) {
    if (!isPoll) asked += 1;  // a poll never displaces what the user asked for
    const mine = asked;
    const start = performance.now();
    const { data, isNew } = await context.ask("rollouts", { run: params.run, ...filtersOf(context), sort: params.sort ?? "-step", offset: params.offset, limit: PAGE });
    await math;
    if (mine !== asked || (isPoll && !isNew)) return;
    draw(data);
    performance.measure("filter", { start, end: performance.now() });
    if (data.indexing) setTimeout(() => { if (mine === asked && !context.signal.aborted) load().catch(show); }, 400);
  }

  function change(changes) {
    context.set({ offset: "", ...changes });
    drawToggle();
    load().catch(show);
  }

  function show(error) {
    if (error.name !== "AbortError") put(summary, h("span", { role: "alert" }, error.message));
  }

  function draw(data) {
    const isBare = data.of === 0 && !data.indexing && !data.broken.length;
    form.hidden = search.hidden = toggle.hidden = isBare;
    hasTasks = data.facets.task.length > 1;
    put(summary, data.indexing ? progress(data.indexing) : null,
      data.of > 0 && `${data.total.toLocaleString("en")} of ${data.of.toLocaleString("en")} rollouts`,
      data.total > 0 && h("span", { class: "quiet" }, ` · ${percent(data.correct)} correct`, data.reward !== null && ` · mean reward ${number(data.reward, 3)}`, data.length !== null && ` · mean length ${number(data.length, 3)} ${unit}s`),
      data.broken.length > 0 && h("span", { class: "warning" }, ` · ${data.broken.length} files cannot be read: ${data.broken[0]}`));
    put(facets, isEval && setChips(context, () => load().catch(show), new Map(data.facets.set)), ["verdict", "task", ...(isEval ? [] : ["set"]), "finish"].map((name) => facet(name, data.facets[name])));
    const focused = document.activeElement?.dataset?.item;
    put(list, data.rows.length ? (params.list === "cards" ? data.rows.map(card) : grouped(data.rows)) : data.indexing ? null
      : isBare ? empty("This run keeps no responses", run?.kind === "sft" ? "It trains on texts that another run wrote. " : "", "Validations keep their scores only; runs of teach, rl, distill, tango and eval store what a model wrote.")
      : empty("No rollout fits", "Wider filters may find some."));
    if (focused) [...list.querySelectorAll("[data-item]")].find((item) => item.dataset.item === focused)?.focus();
    const offset = Number(params.offset ?? 0);
    put(more, offset > 0 && h("button", { type: "button", onclick: () => change({ offset: Math.max(offset - PAGE, 0) || "" }) }, "Previous page"),
      data.total > PAGE && h("span", { class: "quiet" }, `${(offset + 1).toLocaleString("en")} to ${Math.min(offset + PAGE, data.total).toLocaleString("en")}`),
      offset + PAGE < data.total && h("button", { type: "button", onclick: () => change({ offset: offset + PAGE }) }, "Next page"));
  }

  function facet(name, counts) {
    if (!counts || (counts.length < 2 && !params[name])) return null;
    return h("div", { class: "facet", role: "group", "aria-label": name }, counts.slice(0, 12).map(([value, count]) =>
      h("button", { type: "button", class: "chip", "aria-pressed": String(params[name] === value), onclick: () => change({ [name]: params[name] === value ? "" : value }) },
        name === "verdict" ? verdict(value) : name === "finish" ? ENDS[value] ?? value : value, h("span", { class: "count" }, count.toLocaleString("en")))));
  }

  const open = (item) => ({ href: address("rollout", { run: params.run, ...filtersOf(context), set: params.set, sort: params.sort, file: item.file, row: item.row }), "data-item": `${item.file}:${item.row}` });
  const time = (item) => (isEval ? item.set : item.step > 0 && `step ${item.step}`);  // 0: no training

  // Neighbours in the list that answer the same question stand under one head.
  function grouped(rows) {
    const groups = [];
    for (const item of rows) {
      if (groups.at(-1)?.[0].group_number === item.group_number) groups.at(-1).push(item);
      else groups.push([item]);
    }
    return groups.every(([first]) => first.group_size === 1) ? h("div", { class: "group lone" }, rows.map(lone)) : groups.map((items) => {
      const [first] = items;
      const facts = [first.gold !== null && `right answer ${first.gold}`, first.group_size > 1 && `${first.group_correct} of ${first.group_size} right`, time(first), hasTasks && first.task].filter(Boolean);
      return h("div", { class: "group" },
        h("div", { class: "group-head" }, h("span", { class: "question" }, line(first.question)), h("span", { class: "quiet small facts-line" }, facts.map((words) => h("span", {}, words)))),
        items.map(row));
    });
  }

  function row(item) {
    const answer = item.answer ?? "–";
    const rest = item.snippet === answer && !params.q ? "" : mark(item.snippet, params.q);
    return h("a", { class: "rollout line", ...open(item) },
      verdict(item.verdict), h("span", { class: "answer", title: answer }, answer), h("span", { class: "tail" }, rest),
      h("span", { class: "num" }, item.reward === null ? "" : h("span", {}, h("span", { class: "quiet" }, "reward "), number(item.reward, 3))),
      h("span", { class: "num quiet" }, item.finish === "length" && h("span", { class: "warning" }, "cut · "), item.length === null ? "" : length(item.length, unit)));
  }

  // A question with one response needs no head.
  function lone(item) {
    const isShort = item.snippet === item.answer && !params.q;
    return h("a", { class: "rollout line", ...open(item) },
      verdict(item.verdict), h("span", { class: "answer question" }, line(item.question)), h("span", { class: "tail" }, item.answer !== null && h("strong", {}, item.answer), " ", item.verdict !== "correct" && item.gold !== null && `right answer ${item.gold} `, isShort ? "" : mark(item.snippet, params.q)),
      h("span", { class: "num quiet" }, item.reward !== null ? `reward ${number(item.reward, 3)}` : isEval ? "" : time(item)),
      h("span", { class: "num quiet" }, item.finish === "length" && h("span", { class: "warning" }, "cut · "), item.length === null ? "" : length(item.length, unit)));
  }

  function card(item) {
    return h("a", { class: "rollout", ...open(item) },
      h("span", { class: "meta" }, verdict(item.verdict), h("span", {}, time(item)), h("span", {}, item.task),
        item.reward !== null && h("span", {}, `reward ${number(item.reward, 3)}`), item.length !== null && h("span", {}, length(item.length, unit)), item.finish === "length" && h("span", {}, "cut"),
        h("span", {}, `answer read ${item.answer ?? "–"}`), item.gold !== null && h("span", {}, `right answer ${item.gold}`)),
      h("span", { class: "question" }, line(item.question)), h("span", { class: "snippet" }, mark(item.snippet, params.q)));
  }

  const ranged = (name, label, hint) => field(label, h("input", { type: "text", inputmode: "text", class: "range", placeholder: hint, value: params[name] ?? "", onchange: (event) => change({ [name]: event.target.value.trim() }) }));
  let timer = null;
  const search = h("input", { type: "search", placeholder: "Text of questions and responses", value: params.q ?? "", "aria-label": "Search text",
    oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => change({ q: event.target.value }), 80); } });
  const form = h("form", { class: "filters", id: "filters", onsubmit: (event) => event.preventDefault() },
    ranged("step", "Step", "1..40"), ranged("level", "Level", "0..0.4"), ranged("reward", "Reward", "0.5.."), ranged("length", "Length", "..200"),
    field("Order", select("sort", params.sort ?? "-step", SORTS, (value) => change({ sort: value === "-step" ? "" : value }))),
    field("Show", select("list", params.list, [["", "lines"], ["cards", "cards"]], (value) => change({ list: value }))),
    ["problem", "group", "answer", "part"].filter((name) => params[name]).map((name) => h("button", { type: "button", class: "chip", "aria-pressed": "true", onclick: (event) => { change({ [name]: "" }); event.currentTarget.remove(); } }, `${name}: ${params[name]} ×`)),
    h("button", { type: "button", class: "plain", onclick: () => { change(Object.fromEntries(FILTERS.map((name) => [name, ""]))); form.querySelectorAll("input").forEach((input) => { input.value = ""; }); search.value = ""; form.querySelectorAll(".chip").forEach((chip) => chip.remove()); } }, "Clear"));
  // On a phone the filters wait behind this button.
  const toggle = h("button", { type: "button", class: "only-narrow", "aria-controls": "filters", "aria-expanded": "false", onclick: () => { toggle.setAttribute("aria-expanded", String(form.classList.toggle("open"))); } });
  const drawToggle = () => {
    const count = ["step", "level", "reward", "length", "sort"].filter((name) => params[name]).length;
    put(toggle, count ? `Filters (${count})` : "Filters");
  };
  drawToggle();
  put(main, h("div", { class: "head" }, h("h1", {}, "Rollouts"), search, toggle), form, facets, summary, list, more);
  await load().catch(show);
  context.poll(() => load(true));
}

export function progress(state) {
  const share = state.total ? state.done / state.total : 0;
  const left = state.left === null ? "" : `, about ${Math.ceil(state.left)} s left`;
  return h("span", { class: "progress" }, h("progress", { max: 1, value: share, "aria-label": "Reading rollouts" }), ` reading ${Math.round(100 * share)} % at ${(state.rate / 1e6).toFixed(0)} MB/s${left}${" · "}`);
}

function mark(text, search) {
  if (!search) return text;
  const at = text.toLowerCase().indexOf(search.toLowerCase());
  if (at < 0) return text;
  return [text.slice(0, at), h("mark", {}, text.slice(at, at + search.length)), text.slice(at + search.length)];
}
