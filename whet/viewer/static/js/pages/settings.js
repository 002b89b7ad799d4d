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
  const count = data.differences.length;
  return [
    h("p", { class: "lead" }, count ? `${count} setting${count === 1 ? "" : "s"} differ, ${data.same} are the same.` : `All ${data.same} settings are the same.`),
    h("p", { class: "small" }, "A is ", link("run", { run: data.a }, data.a), ", B is ", link("run", { run: data.b }, data.b), "."),
    count > 0 && table(["Setting", "Difference", "What it means"], data.differences.map((row) => h("tr", {},
      h("td", { class: "mono nowrap" }, row.key), h("td", { class: "break" }, row.words), h("td", { class: "quiet" }, words(row.meaning || "–")))), { label: "Differences" }),
  ];
}

function all(settings) {
  return table(["Setting", "Value", "From", "What it means"], settings.map((row) => h("tr", {},
    h("td", { class: "mono nowrap" }, row.key), h("td", { class: "mono break" }, row.value),
    h("td", { class: row.origin === "default" ? "quiet" : "" }, row.origin), h("td", { class: "quiet" }, words(row.meaning || "–")))), { label: "Settings" });
}
