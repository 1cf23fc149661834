/** Who is signed in here, what they may do, and every request that they make. */
import { makeStore } from "../parts/store.js";
import { tokenOf } from "./credential.js";
import { parseXml, textOf } from "./xml.js";

/**
 * @typedef {object} Session
 * @property {import("./credential.js").Credential} credential
 * @property {string} namespace
 * @property {string} version
 * @property {string[]} rights at `below`
 * @property {string} mode full or read-only
 * @property {string} below
 * @property {boolean} watches
 */

/** @type {import("../parts/store.js").Store<Session | null>} */
export const session = makeStore(null);
/** Why somebody was signed out, for the page where they sign in. */
export const farewell = makeStore("");

/** What a request was refused with: a sentence for people. */
export class Refused extends Error {
  /** @param {number} status @param {string} sentence */
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/**
 * A request under the signed-in token.
 * @param {string} method
 * @param {string} path each segment is encoded already
 * @param {{ body?: BodyInit, json?: unknown, headers?: Record<string, string>, signal?: AbortSignal }} [more]
 * @returns {Promise<Response>} of a status below 300
 */
export async function ask(method, path, more = {}) {
  const headers = { ...more.headers };
  const who = session.value;
  if (who) headers.Authorization = tokenOf(who.credential);
  let body = more.body;
  if (more.json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(more.json);
  }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, signal: more.signal, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Nothing was changed, as far as is known here.");
  }
  if (answer.status >= 300) throw await refusalOf(answer);
  return answer;
}

/**
 * The same, with the JSON of the answer.
 * @param {string} method
 * @param {string} path
 * @param {Parameters<typeof ask>[2]} [more]
 * @returns {Promise<any>}
 */
export async function askJson(method, path, more) {
  return (await ask(method, path, more)).json();
}

/** @param {Response} answer @returns {Promise<Refused>} */
async function refusalOf(answer) {
  const text = await answer.text();
  const detail = text.startsWith("<") ? textOf(parseXml(text), "Detail") : null;
  const sentence = (detail ?? text.slice(0, 500))
    .replace(/^SubCode=\d+\.\s*/, "")
    .replace(/\s*(To know more visit|TrackingId:)[\s\S]*$/, "")
    .trim();
  return new Refused(answer.status, sentence || `The server answered with the status ${answer.status}.`);
}

/**
 * An entity's path as it stands in an address.
 * @param {string} path
 * @returns {string}
 */
export function encodedPath(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

/**
 * Whether the page offers what needs this right and changes something.
 * @param {string} right
 * @returns {boolean}
 */
export function mayChange(right) {
  const who = session.value;
  return who !== null && who.mode !== "read-only" && who.rights.includes(right);
}

/**
 * Whether the signed-in key has this right.
 * @param {string} right
 * @returns {boolean}
 */
export function may(right) {
  return session.value?.rights.includes(right) ?? false;
}

/** @param {string} [why] */
export function signOut(why = "") {
  session.set(null);
  farewell.set(why);
}
