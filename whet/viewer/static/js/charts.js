// Lines: small ones as SVG, large ones by uPlot; and bars.

import { h, number, svg } from "./dom.js";

/* global uPlot */

export const COLOURS = 8;

export function colour(index) {
  return style(`--line-${index % COLOURS}`);
}

export function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function spark(values, words) {
  const width = 120;
  const height = 28;
  if (values.length < 2) return h("span", { class: "quiet" }, "–");
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const points = values.map((value, i) => `${((i / (values.length - 1)) * (width - 4) + 2).toFixed(1)},${(height - 3 - ((value - low) / span) * (height - 6)).toFixed(1)}`);
  const [x, y] = points.at(-1).split(",");
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words },
    svg("polyline", { points: points.join(" ") }), svg("circle", { cx: x, cy: y, r: 2.2 }));
}

// A running mean that starts unbiased, as TensorBoard's does.
export function smooth(values, weight) {
  if (!weight) return values;
  let last = 0;
  let count = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

export function meanOf(columns) {
  return columns[0].map((_, i) => {
    const values = columns.map((column) => column[i]).filter((value) => value !== null && value !== undefined);
    return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
  });
}

// lines: [{name, steps, values, colour, width, dash}]
export function lineChart({ title, lines, range, onRange, height = 190 }) {
  const readout = h("span", { class: "readout quiet" });
  const place = h("div", { class: "plot" });
  const box = h("figure", { class: "chart", "data-metric": title }, h("figcaption", {}, h("span", { class: "metric" }, title), readout), place);
  let plot = null;

  function draw() {
    plot?.destroy();
    const joined = uPlot.join(lines.map((line) => [line.steps, line.values]));
    const ink = style("--quiet");
    const grid = { stroke: style("--rule"), width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const options = {
      width: Math.max(place.clientWidth, 200),
      height,
      legend: { show: false },
      cursor: { sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false, ...(range ? { range: () => range } : {}) } },
      axes: [{ ...axis, size: 28 }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => number(tick, 3)) }],
      series: [{}, ...lines.map((line) => ({ label: line.name, stroke: line.colour, width: line.width ?? 1.6, spanGaps: true, alpha: line.alpha ?? 1, points: { show: line.steps.length < 3, size: 5 } }))],
      hooks: {
        setCursor: [(u) => {
          const at = u.cursor.idx;
          if (at === null || at === undefined) { readout.textContent = ""; return; }
          const values = u.data.slice(1).map((column) => column[at]).filter((value) => value !== null && value !== undefined);
          readout.textContent = values.length ? `step ${u.data[0][at]}: ${values.slice(0, 4).map((value) => number(value)).join(" · ")}${values.length > 4 ? " …" : ""}` : "";
        }],
        setSelect: [(u) => {
          if (u.select.width > 4 && onRange) onRange([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        }],
      },
    };
    plot = new uPlot(options, joined, place);
    plot.over.addEventListener("dblclick", () => onRange?.(null));
  }

  const resizer = new ResizeObserver(() => {
    if (!plot && place.clientWidth) draw();
    else if (plot && Math.abs(plot.width - place.clientWidth) > 2 && place.clientWidth) plot.setSize({ width: place.clientWidth, height });
  });
  resizer.observe(place);
  const onTheme = () => draw();
  addEventListener("themechange", onTheme);
  const words = lines.map((line) => `${line.name}: ${number(line.values.at(-1))}`).join("; ");
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `${title} over steps. Last values: ${words}`);
  return {
    element: box,
    update(next, nextRange) {
      const isSame = next.length === lines.length && !range && !nextRange;  // a range is drawn in
      lines = next;
      range = nextRange;
      if (plot && isSame) plot.setData(uPlot.join(lines.map((line) => [line.steps, line.values])));
      else if (plot) draw();
    },
    points: () => lines.reduce((sum, line) => sum + line.steps.length, 0),
    close() { resizer.disconnect(); removeEventListener("themechange", onTheme); plot?.destroy(); },
  };
}

// One bar of parts: [{name, value, colour}]
export function stackedBar(parts, format) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  return h("div", { class: "stack", role: "img", "aria-label": parts.map((part) => `${part.name} ${format(part.value)}`).join(", ") },
    parts.filter((part) => part.value > 0).map((part) => h("span", { title: `${part.name}: ${format(part.value)}`, vars: { width: `${(100 * part.value) / total}%`, background: part.colour } })));
}
