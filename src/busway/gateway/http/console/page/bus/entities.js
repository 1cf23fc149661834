/** All entities as they are known here: rows that the server pushes, by path. */
import { makeStore } from "../parts/store.js";

/**
 * @typedef {object} EntityRow
 * @property {string} path
 * @property {"queue" | "topic" | "subscription" | "hub"} kind
 * @property {string} status
 * @property {number | null} active
 * @property {number | null} dead
 * @property {number | null} scheduled
 * @property {number | null} deferred
 * @property {number | null} transfer
 * @property {number | null} transferDead
 * @property {number | null} bytes
 * @property {number} into
 * @property {number} out
 * @property {number} fragments
 * @property {string} availability
 * @property {boolean} sessions it requires them
 * @property {string} lower the path, for filters
 */

/** @type {Map<string, EntityRow>} */
const known = new Map();
/** Told a number that grows with each change. */
export const entities = makeStore(0);
/** Whether everything has arrived once. */
export const isComplete = makeStore(false);

/** @returns {Map<string, EntityRow>} */
export function allEntities() {
  return known;
}

/**
 * @param {string} path
 * @returns {EntityRow | undefined}
 */
export function entityAt(path) {
  const found = known.get(path);
  if (found) return found;
  const lower = path.toLowerCase();
  for (const row of known.values()) if (row.lower === lower) return row;
  return undefined;
}

/** @param {unknown[]} cells as `overview.COLUMNS` has them, without an end that is as usual @returns {EntityRow} */
function rowOf(cells) {
  const [path, kind, status = "Active", active = 0, dead = 0, scheduled = 0, deferred = 0, transfer = 0,
    transferDead = 0, bytes = 0, into = 0, out = 0, fragments = 1, availability = "Available", sessions = false,
  ] = /** @type {any[]} */ (cells);
  return {
    path, kind, status, active, dead, scheduled, deferred, transfer, transferDead, bytes, into, out, fragments,
    availability, sessions, lower: path.toLowerCase(),
  };
}

/**
 * What the server said has changed.
 * @param {{ whole: boolean, last: boolean, rows: unknown[][], gone: string[] }} told
 */
export function takeRows(told) {
  if (told.whole) known.clear();
  for (const cells of told.rows) {
    const row = rowOf(cells);
    known.set(row.path, row);
  }
  for (const path of told.gone) known.delete(path);
  if (told.last && !isComplete.value) isComplete.set(true);
  entities.set(entities.value + 1);
}

/** Nothing is known any more: another one has signed in. */
export function forgetEntities() {
  known.clear();
  isComplete.set(false);
  entities.set(entities.value + 1);
}
