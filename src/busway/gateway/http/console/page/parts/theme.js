/** Light or dark: as the system has it, until somebody chooses. That is all that the page keeps in the browser. */
import { makeStore } from "./store.js";

const KEY = "busway-theme";

function kept() {
  try {
    return localStorage.getItem(KEY) ?? "auto";
  } catch {
    return "auto";
  }
}

/** auto, light or dark. */
export const theme = makeStore(kept());

function show() {
  document.documentElement.dataset.theme = theme.value;
  dispatchEvent(new Event("busway-theme"));
}

/** The next of auto, light, dark. */
export function turnTheme() {
  const all = ["auto", "light", "dark"];
  theme.set(all[(all.indexOf(theme.value) + 1) % all.length]);
  try {
    localStorage.setItem(KEY, theme.value);
  } catch {
    // A browser that keeps nothing shows what was chosen until it is closed.
  }
  show();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();
