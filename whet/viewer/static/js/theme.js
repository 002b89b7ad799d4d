// Before the first paint: the theme that was chosen, if any; otherwise the system's.
const chosen = localStorage.getItem("whet-theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
