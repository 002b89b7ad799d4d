import { spark } from "../charts.js";
import { address, duration, empty, estimate, field, h, link, metricValue, moment, percent, put, select, table } from "../dom.js";
import { METRICS } from "../metrics.js";

const HEADS = ["", "Run", { text: "State", class: "middle" }, { text: "Step", class: "num middle" }, { text: "Trend", class: "wide" }, { text: "Result", class: "num" }, { text: "Best on dev", class: "num wide" }, { text: "Time", class: "num middle" }, { text: "Started (UTC)", class: "wide" }];
const ORDERS = [["", "newest"], ["name", "name"], ["result", "best result"], ["time", "longest"]];
const STATES = ["running", "failed", "unreadable", "stopped", "imported", "finished"];

export async function render(main, context) {
  const { params } = context;
  const chosen = new Set((params.chosen ?? "").split(",").filter(Boolean));
  let filter = params.q ?? "";
  let reports = [];
  const body = h("div", {});
  const compare = h("div", { class: "actions", "aria-live": "polite" });

  function drawActions() {
    const ids = [...chosen];
    put(compare, ids.length > 0 && link("curves", { runs: ids.join(",") }, ids.length === 1 ? "Curves of it" : `Curves of ${ids.length} runs`),
      ids.length === 2 && link("settings", { a: ids[0], b: ids[1] }, "Compare settings"),
      ids.length > 0 && h("button", { class: "plain", type: "button", onclick: () => { chosen.clear(); context.set({ chosen: "" }); draw(); } }, "None"));
  }

  function choose(id) {
    if (!chosen.delete(id)) chosen.add(id);
    context.set({ chosen: [...chosen].join(",") });
    drawActions();
  }

  // Pipelines whose stages are not as they would be: open, or closed.
  const turned = () => new Set((params.turned ?? "").split(",").filter(Boolean));
  const isOpen = (item, isAlone) => (isAlone || item.runs.some((run) => run.state === "running") || filter !== "") !== turned().has(item.name);

  function turn(name) {
    const names = turned();
    if (!names.delete(name)) names.add(name);
    context.set({ turned: [...names].join(",") });
    draw();
    [...body.querySelectorAll("button.fold")].find((button) => button.dataset.item === name)?.focus();
  }

  function rows(items) {
    return items.map((item) => {
      if (!item.name) return item.runs.map((run) => row(run, ""));
      const isShown = isOpen(item, items.length === 1);
      return [head(item, isShown), isShown && item.runs.map((run) => row(run, item.name))];
    });
  }

  // A pipeline in one line: what it trained, from where to where, and how long it took.
  function head(item, isShown) {
    const { trained } = item;
    const facts = trained.id === undefined ? [`${item.runs.length} runs`] : [trained.task, trained.algo, trained.seed === null || trained.seed === undefined ? null : `seed ${trained.seed}`];
    return h("tr", { class: "pipeline" },
      h("td", {}, h("button", { class: "plain fold", type: "button", "data-item": item.name, "aria-expanded": String(isShown), "aria-label": `Stages of ${item.name}`, onclick: () => turn(item.name) }, isShown ? "▾" : "▸")),
      h("th", { scope: "rowgroup" }, item.name, report(item.name),
        h("div", { class: "quiet small" }, facts.filter(Boolean).join(" · ")), h("div", { class: "narrow" }, state(item.state))),
      h("td", { class: "middle" }, state(item.state)),
      h("td", { class: "num middle" }, trained.step ? steps(trained) : ""),
      h("td", { class: "wide" }, trained.spark ? spark(trained.spark, trained.headline) : null),
      h("td", { class: "num" }, item.results.length > 1 ? [h("span", { class: "nowrap" }, `${percent(item.results[0].mean)} → `), h("strong", { class: "nowrap" }, percent(item.results.at(-1).mean)), h("div", { class: "quiet small" }, "pass@1")] : item.results.length > 0 && [estimate(item.results[0]), h("div", { class: "quiet small" }, "pass@1")]),
      h("td", { class: "num wide" }, trained.validation === null || trained.validation === undefined ? "" : percent(trained.validation)),
      h("td", { class: "num middle" }, item.seconds ? duration(item.seconds) : "", item.runs.map(left)),
      h("td", { class: "wide quiet nowrap" }, moment(item.started).replace(" UTC", "")));
  }

  function report(...folders) {
    const folder = folders.find((name) => reports.includes(name));
    return folder === undefined ? null : [" ", h("a", { class: "report small", href: `/report?folder=${encodeURIComponent(folder)}`, target: "_blank", rel: "noopener" }, "report")];
  }

  const state = (name) => h("span", { class: `state ${name}` }, name);
  const steps = (run) => `${run.step.toLocaleString("en")}${run.steps ? ` / ${run.steps.toLocaleString("en")}` : ""}`;

  function row(run, folder) {
    const words = run.headline ? `${run.headline}, now ${metricValue(run.headline, run.value)}` : "";
    const result = run.result ? [estimate(run.result), h("div", { class: "quiet small" }, "pass@1")]
      : run.headline ? [metricValue(run.headline, run.value), h("div", { class: "quiet small" }, run.headline)] : null;
    return h("tr", { class: folder ? "stage-row" : null },
      h("td", {}, h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `Choose ${run.id}`, onchange: () => choose(run.id) })),
      h("td", {}, h("a", { href: address("run", { run: run.id }), "data-item": run.id }, run.id === "." ? "this folder" : run.id.slice(folder ? folder.length + 1 : 0)),
        !folder && report(run.id, parent(run)),
        h("div", { class: "quiet small" }, [run.kind, run.task, run.algo, folder || run.seed === null || run.seed === undefined ? null : `seed ${run.seed}`].filter(Boolean).join(" · ")),
        h("div", { class: "narrow" }, state(run.state))),
      h("td", { class: "middle" }, state(run.state)),
      h("td", { class: "num middle" }, run.step ? steps(run) : ""),
      h("td", { class: "wide" }, run.spark?.length > 1 ? spark(run.spark, words) : null),
      h("td", { class: "num", title: METRICS[run.headline] ?? run.headline }, result),
      h("td", { class: "num wide" }, run.validation === null || run.validation === undefined ? "" : percent(run.validation)),
      h("td", { class: "num middle" }, run.seconds ? duration(run.seconds) : "", left(run)),
      h("td", { class: "wide quiet nowrap" }, folder ? "" : moment(run.started).replace(" UTC", "")));
  }

  function draw() {
    const runs = context.runs().filter((run) => `${run.id} ${run.kind} ${run.task} ${run.state}`.toLowerCase().includes(filter.toLowerCase()));
    const items = sorted(pipelines(runs), params.sort);
    put(body, items.length ? table(HEADS, rows(items), { label: "Runs", class: "runs" })
      : context.runs().length ? empty("No run fits", "Another word may find it.")
      : empty("No runs here yet", "whet run, sft, rl, teach and eval write run folders; this page finds them below the folder that is shown, also while they train."));
    drawActions();
  }

  const search = h("input", { type: "search", placeholder: "Filter runs", value: filter, "aria-label": "Filter runs",
    oninput: (event) => { filter = event.target.value; context.set({ q: filter }); draw(); } });
  put(main, h("div", { class: "head" }, h("h1", {}, "Runs"), search, field("Order", select("sort", params.sort, ORDERS, (value) => { context.set({ sort: value }); draw(); })), compare), body);
  ({ data: { reports } } = await context.ask("runs"));
  draw();
  context.keys.x = () => {
    const id = document.activeElement?.dataset?.item;
    const box = document.activeElement?.closest?.("tr")?.querySelector("input");
    if (id && box) { choose(id); box.checked = chosen.has(id); }
  };
  context.poll(async () => {
    const { data, isNew } = await context.ask("runs");
    if (!isNew) return;
    const focused = document.activeElement?.dataset?.item;
    context.runs().splice(0, Infinity, ...data.runs);
    reports = data.reports;
    draw();
    if (focused) [...document.querySelectorAll("[data-item]")].find((item) => item.dataset.item === focused)?.focus();
  });
}

// Runs by the folder that they are in, the stages of a pipeline in their order; one alone has no head.
function pipelines(runs) {
  const parents = new Map();
  for (const run of runs) parents.set(parent(run) || `/${run.id}`, [...(parents.get(parent(run) || `/${run.id}`) ?? []), run]);
  return [...parents].map(([key, members]) => {
    // Stages have numbers; other runs in one folder are not a before and an after.
    const isPipeline = members.every((run) => /(^|\/)\d+-[^/]*$/.test(run.id));
    const results = members.map((run) => run.result).filter(Boolean);
    const started = members.map((run) => run.started ?? "").sort();
    return {
      name: key.startsWith("/") || members.length === 1 ? "" : key,
      key,
      runs: members,
      results: isPipeline ? results : [],
      trained: (isPipeline && members.findLast((run) => run.step > 0)) || {},
      state: STATES.find((name) => members.some((run) => run.state === name)) ?? members[0].state,
      seconds: members.reduce((sum, run) => sum + (run.seconds ?? 0), 0),
      started: started.find(Boolean),
      latest: started.at(-1),
      score: results.at(-1)?.mean ?? members.findLast((run) => run.validation !== null && run.validation !== undefined)?.validation ?? -1,
    };
  });
}

// Those with a running stage come first, then those that began last.
function sorted(items, order) {
  const live = (item) => (item.state === "running" ? 1 : 0);
  const ways = {
    name: (a, b) => a.key.localeCompare(b.key, "en", { numeric: true }),
    result: (a, b) => b.score - a.score,
    time: (a, b) => b.seconds - a.seconds,
  };
  const newest = (a, b) => live(b) - live(a) || b.latest.localeCompare(a.latest);
  return [...items].sort((a, b) => (ways[order] ?? newest)(a, b) || ways.name(a, b));
}

function parent(run) {
  const cut = run.id.lastIndexOf("/");
  return cut < 0 ? "" : run.id.slice(0, cut);
}

function left(run) {
  if (run.state !== "running" || !run.steps || !run.seconds_per_step) return null;
  return h("div", { class: "quiet small" }, `${duration((run.steps - run.step) * run.seconds_per_step)} left`);
}
