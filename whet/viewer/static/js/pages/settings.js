import { empty, field, h, link, put, select, table, words } from "../dom.js";

export async function render(main, context) {
  const { params } = context;
  const runs = context.runs().filter((run) => run.origin === "whet");
  if (!runs.length) return put(main, empty("No runs here yet", "Runs of whet store all their settings."));
  if (!params.a) {
    const first = runs.find((run) => run.kind === "rl") ?? runs[0];
    const second = runs.find((run) => run.kind === first.kind && run.id !== first.id);
    context.set({ a: first.id, b: second?.id ?? "" });
  }
  const names = runs.map((run) => [run.id, run.id]);
  const body = h("div", {});
  async function draw() {
    if (params.b) put(body, differences((await context.ask("compare", { a: params.a, b: params.b })).data, params));
    else put(body, all((await context.ask("run", { run: params.a })).data.settings, params));
  }
  put(main, h("div", { class: "head" }, h("h1", {}, "Settings"),
    field("A", select("a", params.a, names, (value) => { context.set({ a: value }, true); draw(); })),
    field("B", select("b", params.b, [["", "none: all settings of A"], ...names], (value) => { context.set({ b: value }, true); draw(); })),
    h("button", { type: "button", onclick: () => { context.set({ a: params.b || params.a, b: params.a }, true); render(main, context); } }, "Swap")), body);
  await draw();
}

function differences(data) {
  const paths = data.differences.filter((row) => row.is_path);
  const rows = data.differences.filter((row) => !row.is_path);
  return [
    h("p", { class: "lead" }, rows.length ? `${rows.length} setting${rows.length === 1 ? " differs" : "s differ"}, ${data.same} are the same.` : `All ${data.same} settings are the same${paths.length ? " but for folders" : ""}.`),
    h("p", { class: "small" }, "A is ", link("run", { run: data.a }, data.a), ", B is ", link("run", { run: data.b }, data.b), "."),
    rows.length > 0 && compared(rows),
    paths.length > 0 && h("details", {}, h("summary", {}, `${paths.length} path${paths.length === 1 ? "" : "s"} into another folder`), compared(paths)),
  ];
}

function compared(rows) {
  return table(["Setting", "A", "B", ""], rows.map((row) => h("tr", {},
    h("td", {}, h("span", { class: "mono" }, row.key), row.meaning && h("div", { class: "quiet small" }, words(row.meaning))),
    h("td", { class: "mono break", "data-name": "A" }, bare(row.a)), h("td", { class: "mono break", "data-name": "B" }, bare(row.b)),
    h("td", { class: "quiet small" }, row.words))), { label: "Differences", class: "stacked" });
}

// A text without its quotes, a setting that is not there as a dash.
function bare(value) {
  return value === null ? "–" : value.replace(/^"(.*)"$/, "$1");
}

function all(settings) {
  return table(["Setting", "Value", "From"], settings.map((row) => h("tr", {},
    h("td", {}, h("span", { class: "mono" }, row.key), row.meaning && h("div", { class: "quiet small" }, words(row.meaning))),
    h("td", { class: "mono break", "data-name": "value" }, row.value),
    h("td", { class: row.origin === "default" ? "quiet" : "", "data-name": "from" }, row.origin))), { label: "Settings", class: "stacked" });
}
