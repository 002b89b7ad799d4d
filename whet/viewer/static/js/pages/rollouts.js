import { address, count, empty, field, h, number, percent, put, select, verdict } from "../dom.js";
import { line, loadMath } from "../text.js";

const FILTERS = ["set", "task", "verdict", "finish", "step", "level", "reward", "length", "q", "problem", "group", "answer", "part"];
const ENDS = { stop: "ended by itself", length: "cut at the limit" };
const PAGE = 50;
const SORTS = [["-step", "newest step"], ["step", "oldest step"], ["-reward", "highest reward"], ["reward", "lowest reward"], ["-length", "longest"], ["length", "shortest"], ["logprob", "least likely"], ["-logprob", "most likely"], ["-level", "hardest"], ["level", "easiest"]];

export async function render(main, context) {
  const { params } = context;
  if (!params.run) return put(main, empty("No rollouts yet", "Runs of teach, rl, distill, tango and eval store what a model wrote. Folders of verl dumps and W&B tables are shown, too."));
  const unit = context.runs().find((run) => run.id === params.run)?.origin === "whet" ? "token" : "word";
  const list = h("div", { class: "list", "aria-live": "off" });
  const summary = h("p", { class: "lead", role: "status" });
  const facets = h("div", { class: "facets" });
  const more = h("div", { class: "actions" });
  let asked = 0;

  const filters = () => Object.fromEntries(FILTERS.filter((name) => params[name]).map((name) => [name, params[name]]));

  async function load(isPoll) {
    if (!isPoll) asked += 1;  // a poll never displaces what the user asked for
    const mine = asked;
    const start = performance.now();
    const { data, isNew } = await context.ask("rollouts", { run: params.run, ...filters(), sort: params.sort ?? "-step", offset: params.offset, limit: PAGE });
    if (mine !== asked || (isPoll && !isNew)) return;
    draw(data);
    performance.measure("filter", { start, end: performance.now() });
    if (data.indexing) setTimeout(() => { if (mine === asked && !context.signal.aborted) load().catch(show); }, 400);
  }

  function change(changes) {
    context.set({ offset: "", ...changes });
    load().catch(show);
  }

  function show(error) {
    if (error.name !== "AbortError") put(summary, h("span", { role: "alert" }, error.message));
  }

  function draw(data) {
    put(summary, data.indexing ? progress(data.indexing) : null,
      data.of > 0 && `${data.total.toLocaleString("en")} of ${data.of.toLocaleString("en")} rollouts`,
      data.total > 0 && h("span", { class: "quiet" }, ` · ${percent(data.correct)} correct · mean reward ${number(data.reward, 3)} · mean length ${number(data.length, 3)} ${unit}s`),
      data.broken.length > 0 && h("span", { class: "warning" }, ` · ${data.broken.length} files cannot be read: ${data.broken[0]}`));
    put(facets, ["verdict", "task", "set", "finish"].map((name) => facet(name, data.facets[name])));
    const focused = document.activeElement?.dataset?.item;
    put(list, data.rows.length ? data.rows.map(row) : data.indexing ? null : empty("No rollout fits", "Wider filters may find some."));
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

  function row(item) {
    const key = `${item.file}:${item.row}`;
    return h("a", { class: "rollout", href: address("rollout", { run: params.run, file: item.file, row: item.row }), "data-item": key },
      h("span", { class: "meta" }, verdict(item.verdict), h("span", {}, `step ${item.step}`), h("span", {}, item.task),
        item.reward !== null && h("span", {}, `reward ${number(item.reward, 3)}`), h("span", {}, count(item.length, unit)), item.finish === "length" && h("span", {}, "cut")),
      h("span", { class: "question" }, line(item.question)), h("span", { class: "snippet" }, mark(item.snippet, params.q)));
  }

  const ranged = (name, label, hint) => field(label, h("input", { type: "text", inputmode: "text", class: "range", placeholder: hint, value: params[name] ?? "", onchange: (event) => change({ [name]: event.target.value.trim() }) }));
  let timer = null;
  const search = h("input", { type: "search", placeholder: "Text of questions and responses", value: params.q ?? "", "aria-label": "Search text",
    oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => change({ q: event.target.value }), 80); } });
  put(main, h("div", { class: "head" }, h("h1", {}, "Rollouts"), search),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      ranged("step", "Step", "1..40"), ranged("level", "Level", "0..0.4"), ranged("reward", "Reward", "0.5.."), ranged("length", "Length", "..200"),
      field("Order", select("sort", params.sort ?? "-step", SORTS, (value) => change({ sort: value === "-step" ? "" : value }))),
      ["problem", "group", "answer", "part"].filter((name) => params[name]).map((name) => h("button", { type: "button", class: "chip", "aria-pressed": "true", onclick: (event) => { change({ [name]: "" }); event.currentTarget.remove(); } }, `${name}: ${params[name]} ×`)),
      h("button", { type: "button", class: "plain", onclick: () => { context.set(Object.fromEntries(FILTERS.map((name) => [name, ""]))); render(main, context); } }, "Clear")),
    facets, summary, list, more);
  await Promise.all([load(), loadMath()]);
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
