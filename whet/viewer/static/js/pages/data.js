import { bytes, empty, field, h, number, put, select } from "../dom.js";
import { loadMath, raw, rendered } from "../text.js";

const PAGE = 25;

export async function render(main, context) {
  const { params } = context;
  const { data: listed } = await context.ask("datasets");
  if (!listed.files.length) return put(main, empty("No problem files here", "whet data import and the stage make write problems as JSON lines; those below the folder that is shown appear here."));
  await loadMath();
  if (!params.file) context.set({ file: listed.files[0].file });
  const list = h("div", { class: "list" });
  const status = h("p", { class: "lead", role: "status" });
  const more = h("div", { class: "actions" });
  async function load() {
    const offset = Number(params.offset ?? 0);
    const { data } = await context.ask("dataset", { file: params.file, q: params.q, offset, limit: PAGE });
    put(status, `${number(data.total)} of ${number(data.of)} problems`);
    put(list, data.rows.length ? data.rows.map((row) => problem(row, params)) : empty("No problem fits", "Another text may find some."));
    put(more, offset > 0 && h("button", { type: "button", onclick: () => change({ offset: Math.max(offset - PAGE, 0) || "" }) }, "Previous page"),
      data.total > PAGE && h("span", { class: "quiet" }, `${offset + 1} to ${Math.min(offset + PAGE, data.total)}`),
      offset + PAGE < data.total && h("button", { type: "button", onclick: () => change({ offset: offset + PAGE }) }, "Next page"));
  }
  function change(changes) { context.set({ offset: "", ...changes }); load(); }
  let timer = null;
  put(main, h("div", { class: "head" }, h("h1", {}, "Problems"),
    h("input", { type: "search", placeholder: "Text of problems", value: params.q ?? "", "aria-label": "Search problems", oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => change({ q: event.target.value }), 150); } }),
    field("File", select("file", params.file, listed.files.map((item) => [item.file, `${item.file} (${bytes(item.bytes)})`]), (value) => change({ file: value, q: params.q })))),
    status, list, more);
  await load();
}

function problem({ number: index, row }) {
  const messages = Array.isArray(row.prompt) ? row.prompt : [];
  const facts = [row.task, row.split, row.level === null || row.level === undefined ? null : `level ${number(row.level, 2)}`, row.source === row.task ? null : row.source].filter(Boolean).map(String);
  return h("article", { class: "problem", tabindex: "-1", "data-item": String(index) },
    h("p", { class: "meta" }, h("span", {}, `no. ${index + 1}`), facts.map((fact) => h("span", {}, fact)), h("span", { class: "mono" }, String(row.id ?? ""))),
    messages.map((message) => rendered(String(message?.content ?? ""))),
    row.answer !== null && row.answer !== undefined && h("p", { class: "small" }, "Answer ", h("strong", {}, String(row.answer).slice(0, 500))),
    h("details", { class: "small" }, h("summary", {}, "As stored"), raw(JSON.stringify(row, null, 2))));
}
