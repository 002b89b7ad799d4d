import { spark } from "../charts.js";
import { address, duration, empty, estimate, h, link, metricValue, moment, percent, put, table } from "../dom.js";

const HEADS = ["", "Run", { text: "State", class: "middle" }, { text: "Step", class: "num middle" }, { text: "Trend", class: "wide" }, { text: "Now", class: "num" }, { text: "Best on dev", class: "num middle" }, { text: "Time", class: "num middle" }, { text: "Started (UTC)", class: "wide" }];

export async function render(main, context) {
  const chosen = new Set((context.params.chosen ?? "").split(",").filter(Boolean));
  let filter = context.params.q ?? "";
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

  // The stages of a pipeline stand together, under the name of its folder.
  function grouped(runs) {
    const parents = new Map();
    for (const run of runs) parents.set(parent(run), [...(parents.get(parent(run)) ?? []), run]);
    return [...parents].flatMap(([name, members]) => [name && h("tr", { class: "pipeline" }, h("th", { colspan: HEADS.length, scope: "rowgroup" }, name)), members.map((run) => row(run, name))]);
  }

  function row(run, folder) {
    const words = run.headline ? `${run.headline}, now ${metricValue(run.headline, run.value)}` : "";
    return h("tr", { class: run.state === "running" ? "live" : null },
      h("td", {}, h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `Choose ${run.id}`, onchange: () => choose(run.id) })),
      h("td", {}, h("a", { href: address("run", { run: run.id }), "data-item": run.id }, run.id === "." ? "this folder" : run.id.slice(folder ? folder.length + 1 : 0)),
        h("div", { class: "quiet small" }, [run.kind, run.task, run.algo, run.seed === null || run.seed === undefined ? null : `seed ${run.seed}`].filter(Boolean).join(" · ")),
        h("div", { class: "narrow" }, h("span", { class: `state ${run.state}` }, run.state))),
      h("td", { class: "middle" }, h("span", { class: `state ${run.state}` }, run.state)),
      h("td", { class: "num middle" }, run.step ? `${run.step.toLocaleString("en")}${run.steps ? ` / ${run.steps.toLocaleString("en")}` : ""}` : "–"),
      h("td", { class: "wide" }, spark(run.spark ?? [], words)),
      h("td", { class: "num", title: run.headline }, run.result ? estimate(run.result) : metricValue(run.headline, run.value), h("div", { class: "quiet small" }, run.result ? "pass@1" : run.headline ?? "")),
      h("td", { class: "num middle" }, run.validation === null || run.validation === undefined ? "–" : percent(run.validation)),
      h("td", { class: "num middle" }, duration(run.seconds), left(run)),
      h("td", { class: "wide quiet nowrap" }, moment(run.started).replace(" UTC", "")));
  }

  function draw() {
    const runs = context.runs().filter((run) => `${run.id} ${run.kind} ${run.task} ${run.state}`.toLowerCase().includes(filter.toLowerCase()));
    const order = newestFirst(runs);
    put(body, order.length ? table(HEADS, grouped(order), { label: "Runs", class: "runs" })
      : context.runs().length ? empty("No run fits", "Another word may find it.")
      : empty("No runs here yet", "whet run, sft, rl, teach and eval write run folders; this page finds them below the folder that is shown, also while they train."));
    drawActions();
  }

  const search = h("input", { type: "search", placeholder: "Filter runs", value: filter, "aria-label": "Filter runs",
    oninput: (event) => { filter = event.target.value; context.set({ q: filter }); draw(); } });
  put(main, h("div", { class: "head" }, h("h1", {}, "Runs"), search, compare), body);
  draw();
  context.keys.x = () => {
    const id = document.activeElement?.dataset?.item;
    const box = document.activeElement?.closest?.("tr")?.querySelector("input");
    if (id) { choose(id); if (box) box.checked = chosen.has(id); }
  };
  context.poll(async () => {
    const { data, isNew } = await context.ask("runs");
    if (!isNew) return;
    const focused = document.activeElement?.dataset?.item;
    context.runs().splice(0, Infinity, ...data.runs);
    draw();
    if (focused) [...document.querySelectorAll("[data-item]")].find((item) => item.dataset.item === focused)?.focus();
  });
}

// Pipelines with a running stage first, then those that began last; stages in their order.
function newestFirst(runs) {
  const latest = new Map();
  for (const run of runs) {
    const key = `${run.state === "running" ? 1 : 0}${run.started ?? ""}`;
    if (key > (latest.get(parent(run)) ?? "")) latest.set(parent(run), key);
  }
  return [...runs].sort((a, b) => (latest.get(parent(b)) ?? "").localeCompare(latest.get(parent(a)) ?? "") || parent(a).localeCompare(parent(b)));
}

function parent(run) {
  const cut = run.id.lastIndexOf("/");
  return cut < 0 ? "" : run.id.slice(0, cut);
}

function left(run) {
  if (run.state !== "running" || !run.steps || !run.seconds_per_step) return null;
  return h("div", { class: "quiet small" }, `${duration((run.steps - run.step) * run.seconds_per_step)} left`);
}
