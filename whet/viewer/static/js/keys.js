// Keys: g and a letter opens a page, j and k move in a list, / searches, ? shows all of them.

import { h, put } from "./dom.js";

const COMMON = [
  ["j  k", "next and previous in a list, and of its rollouts"],
  ["Enter", "open it"],
  ["/", "search"],
  ["[  ]", "previous and next group of rollouts"],
  ["v", "raw or rendered text"],
  ["c", "next token colour"],
  ["e", "all of a long response"],
  ["x", "choose a run for comparison"],
  ["t", "dark or light"],
  ["Esc", "leave a field, close this"],
];

export function installKeys({ pageKeys, go, navigation }) {
  const help = document.getElementById("help");
  let isAfterG = false;

  function showHelp() {
    const rows = [...navigation.map(([, name, key]) => [`g ${key}`, name.toLowerCase()]), ...COMMON];
    put(help,
      h("h2", { id: "help-title" }, "Keys"),
      h("dl", {}, rows.map(([key, words]) => h("div", {}, h("dt", {}, key.split("  ").map((part) => [h("kbd", {}, part), " "])), h("dd", {}, words)))),
      h("button", { type: "button", onclick: () => help.close() }, "Close"));
    help.showModal();
  }

  document.getElementById("keys").addEventListener("click", showHelp);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
    if (event.key === "Escape" && isTyping) {
      event.target.blur();
      return;
    }
    if (isTyping || help.open) return;
    const key = event.key;
    if (isAfterG) {
      isAfterG = false;
      const page = navigation.find(([, , letter]) => letter === key);
      if (page) {
        event.preventDefault();
        go(page[0]);
      }
      return;
    }
    if (key === "g") isAfterG = true;
    else if (key === "?") showHelp();
    else if (key === "t") document.getElementById("theme").click();
    else if (key === "/") document.querySelector("main input[type=search]")?.focus();
    else if (pageKeys()[key]) pageKeys()[key](event);
    else if (key === "j" || key === "k") moveInList(key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  });
}

// Lists mark what j and k go through with data-item; the browser's focus is the selection.
function moveInList(step) {
  const items = [...document.querySelectorAll("main [data-item]")];
  if (!items.length) return;
  const at = items.indexOf(document.activeElement);
  const next = items[Math.min(Math.max(at + step, 0), items.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
