/** Addresses of pages, behind the `#`: `#/`, `#/entity/orders`, `#/stores`. */
import { makeStore } from "./parts/store.js";

/**
 * @typedef {{ page: string, path: string, tab: string }} Route
 */

/** @returns {Route} */
function read() {
  const said = location.hash.replace(/^#\/?/, "");
  const [where, query = ""] = said.split("?", 2);
  const [page, ...rest] = where.split("/");
  let path = "";
  try {
    path = rest.map(decodeURIComponent).join("/");
  } catch {
    path = "";
  }
  return { page: page || "overview", path, tab: new URLSearchParams(query).get("tab") ?? "" };
}

/** @type {import("./parts/store.js").Store<Route>} */
export const route = makeStore(read());
addEventListener("hashchange", () => route.set(read()));

/**
 * @param {string} page
 * @param {string} [path]
 * @param {string} [tab]
 * @returns {string} for `href`
 */
export function addressOf(page, path = "", tab = "") {
  const below = path ? `/${path.split("/").map(encodeURIComponent).join("/")}` : "";
  return `#/${page === "overview" ? "" : page}${below}${tab ? `?tab=${tab}` : ""}`;
}

/**
 * @param {string} page
 * @param {string} [path]
 * @param {string} [tab]
 */
export function goTo(page, path, tab) {
  location.hash = addressOf(page, path, tab);
}
