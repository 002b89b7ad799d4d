import { empty, field, h, isEstimate, number, put, select, table } from "../dom.js";
import { interval, KINDS } from "./result_tables.js";

const DEEPEST = 4;

export async function render(main, context) {
  const { params } = context;
  const { data: listed } = await context.ask("results");
  if (!listed.files.length) return put(main, h("div", { class: "head" }, h("h1", {}, "Results")), empty("No tables of results yet", "Leaderboards, comparisons, studies and the summaries of pipelines below the folder that is shown appear here."));
  if (!params.file) context.set({ file: listed.files[0].file });
  const body = h("div", {});
  async function draw() {
    const { data } = await context.ask("result", { file: params.file });
    put(body, drawKnown(data, listed.files.find((item) => item.file === params.file)?.kind) ?? show(data.value, 0));
  }
  put(main, h("div", { class: "head" }, h("h1", {}, "Results"), field("File", select("file", params.file, listed.files.map((item) => [item.file, `${item.kind}: ${item.file}`]), (value) => { context.set({ file: value }, true); draw(); }))), body);
  await draw();
}

function drawKnown(data, kind) {
  try {
    return KINDS[kind]?.(data.value, data.file);
  } catch (error) {
    if (error instanceof TypeError) return null;  // another program's file of the same name
    throw error;
  }
}

// Any JSON as tables: objects in a list are rows, nested objects are sections, estimates have bars.
function show(value, depth) {
  if (isEstimate(value)) return share(value);
  if (Array.isArray(value)) {
    const rows = value.filter((item) => item !== null && typeof item === "object" && !Array.isArray(item));
    if (rows.length && rows.length === value.length) {
      const isDeep = depth < DEEPEST && rows.some((row) => Object.values(row).some((item) => Array.isArray(item) && item.some((part) => part && typeof part === "object")));
      return isDeep ? rows.slice(0, 100).map((row, i) => h("section", { class: "inner" }, h("h3", {}, plain(row.title ?? row.name ?? i + 1)), show(row, depth + 1))) : rowsTable(rows);
    }
    return value.length > 40 || value.some((item) => typeof item === "object") ? h("pre", { class: "text", tabindex: "0" }, JSON.stringify(value, null, 1).slice(0, 20000)) : value.map((item) => plain(item)).join(", ");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    const simple = entries.filter(([, item]) => isPlain(item));
    const inner = entries.filter(([, item]) => !isPlain(item));
    if (depth > 0 && inner.length > 1 && inner.every(([, item]) => typeof item === "object" && !Array.isArray(item) && !isEstimate(item)) && Object.values(inner[0][1]).some(isPlain)) {
      return [simple.length > 0 && factsTable(simple), rowsTable(inner.map(([name, item]) => ({ name, ...item })))];
    }
    return [simple.length > 0 && factsTable(simple), depth < DEEPEST && inner.map(([name, item]) => h("section", {}, h("h2", {}, name), show(item, depth + 1)))];
  }
  return plain(value);
}

function isPlain(value) { return value === null || typeof value !== "object" || isEstimate(value); }

function plain(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? number(value) : typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function factsTable(entries) {
  return h("dl", { class: "facts" }, entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, isEstimate(value) ? share(value) : plain(value)))));
}

function rowsTable(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const isNumber = (name) => rows.some((row) => typeof row[name] === "number" || isEstimate(row[name]));
  return table(names.map((name) => ({ text: name, class: isNumber(name) ? "num" : "" })), rows.slice(0, 500).map((row) => h("tr", {}, names.map((name) => h("td", { class: isNumber(name) ? "num" : "break" }, cell(row[name]))))), { label: "Results" });
}

function cell(value) {
  if (isEstimate(value)) return share(value);
  if (value !== null && typeof value === "object") return h("details", {}, h("summary", {}, Array.isArray(value) ? `${value.length} entries` : "more"), h("pre", { class: "small" }, JSON.stringify(value, null, 1).slice(0, 5000)));
  return plain(value);
}

function share(value) {
  const isShare = value.low >= 0 && value.high <= 1;
  return isShare ? interval(value) : `${number(value.mean)} [${number(value.low)}, ${number(value.high)}]`;
}
