// The frame around the pages: addresses, the run that is looked at, keys, polling.

import { get } from "./api.js";
import { address, h, put } from "./dom.js";
import { installKeys } from "./keys.js";
import * as agreement from "./pages/agreement.js";
import * as curves from "./pages/curves.js";
import * as data from "./pages/data.js";
import * as difficulty from "./pages/difficulty.js";
import * as problem from "./pages/problem.js";
import * as results from "./pages/results.js";
import * as rollout from "./pages/rollout.js";
import * as rollouts from "./pages/rollouts.js";
import * as run from "./pages/run.js";
import * as runs from "./pages/runs.js";
import * as settings from "./pages/settings.js";
import * as time from "./pages/time.js";

const PAGES = { runs, run, curves, rollouts, rollout, difficulty, problem, time, settings, agreement, data, results };
// Page, name in the navigation, key after g, whether it shows one run.
export const NAVIGATION = [
  ["runs", "Runs", "r", false],
  ["run", "Overview", "o", true],
  ["curves", "Curves", "c", false],
  ["rollouts", "Rollouts", "a", true],
  ["difficulty", "Difficulty", "d", true],
  ["time", "Time", "t", true],
  ["agreement", "Grader and judge", "j", true],
  ["settings", "Settings", "s", false],
  ["data", "Problems", "p", false],
  ["results", "Results", "l", false],
];
const PARENT = { rollout: "rollouts", problem: "difficulty" };
const POLL_MS = 2000;

const main = document.getElementById("main");
let current = null;
let runList = [];

function parse() {
  const [page, query] = location.hash.replace(/^#\/?/, "").split("?");
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  return { page: Object.hasOwn(PAGES, page) ? page : "runs", params };
}

// What a page gets to work with.
function makeContext(page, params) {
  const stop = new AbortController();
  const timers = [];
  return {
    page,
    params,
    runs: () => runList,
    signal: stop.signal,
    ask: (name, query) => get(name, query, stop.signal),
    // Change the address without leaving the page; `isStep` makes it a step of the history.
    set(changes, isStep = false) {
      Object.assign(params, changes);
      for (const key of Object.keys(params)) if (params[key] === "" || params[key] == null) delete params[key];
      const next = address(page, params);
      history[isStep ? "pushState" : "replaceState"](null, "", next);
      drawNavigation(page, params);
    },
    poll(work) {
      const tick = async () => {
        if (stop.signal.aborted) return;
        if (!document.hidden) await work().catch(() => {});
        if (!stop.signal.aborted) timers.push(setTimeout(tick, POLL_MS));
      };
      timers.push(setTimeout(tick, POLL_MS));
    },
    keys: {},
    close() {
      stop.abort();
      timers.forEach(clearTimeout);
    },
  };
}

async function show() {
  const { page, params } = parse();
  current?.close();
  const context = makeContext(page, params);
  current = context;
  main.setAttribute("aria-busy", "true");
  main.dataset.asked = location.hash;
  drawNavigation(page, params);
  const name = NAVIGATION.find(([key]) => key === (PARENT[page] ?? page))?.[1] ?? page;
  document.title = `${name}${params.run ? ` · ${params.run}` : ""} · whet`;
  try {
    if (!runList.length || page === "runs") await refreshRuns(context);
    if (context.signal.aborted) return;
    if (needsRun(page) && !params.run) {
      const first = pickRun(page);
      if (first) context.set({ run: first });
    }
    drawNavigation(page, params);
    drawPicker(page, params);
    // A page is built apart and shown when it is whole; one that was left meanwhile never is.
    const stage = h("div", {});
    await PAGES[page].render(stage, context);
    if (!context.signal.aborted) put(main, stage);
  } catch (error) {
    if (error.name !== "AbortError" && !context.signal.aborted) fail(error);
  }
  if (!context.signal.aborted) main.removeAttribute("aria-busy");
}

function fail(error) {
  put(main, h("div", { class: "empty", role: "alert" }, h("h2", {}, "This cannot be shown"), h("p", {}, error.message)));
}

async function refreshRuns(context) {
  const { data } = await context.ask("runs");
  runList = data.runs;
  document.getElementById("folder").textContent = data.folder;
}

function needsRun(page) {
  return NAVIGATION.some(([key, , , isOfRun]) => key === (PARENT[page] ?? page) && isOfRun);
}

function pickRun(page) {
  const last = sessionStorage.getItem("whet-run");
  const wantsRollouts = page !== "run" && page !== "time";
  const fits = (run) => (wantsRollouts ? run.has_rollouts : true);
  const known = runList.find((run) => run.id === last && fits(run));
  const order = runList.filter(fits);
  const training = order.find((run) => run.kind === "rl" || run.kind === "tango");
  return (known ?? training ?? order[0])?.id;
}

function drawNavigation(page, params) {
  if (params.run) sessionStorage.setItem("whet-run", params.run);
  const here = PARENT[page] ?? page;
  put(document.getElementById("nav"), NAVIGATION.map(([key, name, , isOfRun]) =>
    h("a", { href: address(key, isOfRun && params.run ? { run: params.run } : {}), "aria-current": key === here ? "page" : null }, name)));
  const nav = document.getElementById("nav");
  const shown = nav.querySelector("[aria-current]");
  if (shown) nav.scrollLeft = shown.offsetLeft - (nav.clientWidth - shown.clientWidth) / 2;
}

function drawPicker(page, params) {
  const label = document.getElementById("picker-label");
  label.hidden = !needsRun(page) || !runList.length;
  if (label.hidden) return;
  const picker = document.getElementById("picker");
  put(picker, runList.map((run) => h("option", { value: run.id, selected: run.id === params.run }, run.id === "." ? "this folder" : run.id)));
  picker.onchange = () => { location.hash = address(PARENT[page] ?? page, { run: picker.value }); };
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("whet-theme", root.dataset.theme);
  dispatchEvent(new Event("themechange"));
});

installKeys({
  pageKeys: () => current?.keys ?? {},
  go: (page) => {
    const run = current?.params.run;
    const isOfRun = NAVIGATION.find(([key]) => key === page)?.[3];
    location.hash = address(page, isOfRun && run ? { run } : {});
  },
  navigation: NAVIGATION,
});
addEventListener("hashchange", () => { show().then(() => main.focus({ preventScroll: true })); scrollTo(0, 0); });
show();
