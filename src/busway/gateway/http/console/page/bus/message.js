/** Messages as the routes tell them, and what can be done with them. */
import { ask, askJson, encodedPath } from "./session.js";

/**
 * @typedef {object} Message
 * @property {string} Number
 * @property {Record<string, any>} BrokerProperties
 * @property {Record<string, any>} UserProperties
 * @property {string | null} ContentType
 * @property {number} EnqueuedAtMs
 * @property {number} Size
 * @property {string} BodyKind none, data, value or sequence
 * @property {number} BodyBytes
 * @property {string} [Body]
 * @property {string} [BodyBase64]
 */

/** What an entity's messages lie in, and what that is called. */
export const SUB_QUEUES = { "": "Messages", "/$DeadLetterQueue": "Dead letters", "/$Transfer/$DeadLetterQueue": "Transfer" };
/** Numbers that one request deletes, and letters that one moves. */
const AT_ONCE = 200;

/**
 * A text: it may be larger than JavaScript can count.
 * @param {Message} message
 * @returns {string}
 */
export const numberOf = (message) => message.Number;

/**
 * @param {string} address entity with its sub-queue
 * @param {Record<string, string | number>} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<{ messages: Message[], next: string | null, looked: number }>}
 */
export function listMessages(address, query, signal) {
  const said = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)]));
  return askJson("GET", `/${encodedPath(address)}/$messages?${text}`, { signal });
}

/** @param {string} address @param {string} number @returns {Promise<Message>} with its whole body */
export function wholeMessage(address, number) {
  return askJson("GET", `/${encodedPath(address)}/$messages/${number}`);
}

/**
 * Deletes them; those that somebody holds stay.
 * @param {string} address
 * @param {string[]} numbers
 * @returns {Promise<number[]>} those that are gone
 */
export async function deleteMessages(address, numbers) {
  const deleted = [];
  for (let at = 0; at < numbers.length; at += AT_ONCE) {
    const some = numbers.slice(at, at + AT_ONCE);
    const told = await askJson("POST", `/${encodedPath(address)}/$messages/delete`, { json: { numbers: some } });
    deleted.push(...told.deleted);
  }
  return deleted;
}

/**
 * Dead letters back to their entity, each exactly once.
 * @param {string} entity
 * @param {string[]} numbers
 * @param {string} [into] another queue or topic
 * @returns {Promise<{ moved: number, failed: string[] }>}
 */
export async function resubmit(entity, numbers, into = "") {
  const left = new Set(numbers);
  const failed = [];
  const target = `/$deadletters/${encodedPath(entity)}${into ? `?into=${encodeURIComponent(into)}` : ""}`;
  for (let at = 0; at < numbers.length; at += AT_ONCE) {
    const some = numbers.slice(at, at + AT_ONCE);
    const told = await (await ask("POST", target, { body: lettersOf(some) })).json();
    for (const name of ["gone", "locked", "later", "unknown"]) {
      for (const number of told[name]) {
        left.delete(String(number));
        failed.push(`${number}: ${name === "gone" ? "it is not there any more" : name}`);
      }
    }
    for (const [number, why] of told.refused) {
      left.delete(number);
      failed.push(`${number}: ${why}`);
    }
  }
  return { moved: left.size, failed };
}

/** One behind the other: the number in eight bytes, and that nothing is changed in four. */
function lettersOf(numbers) {
  const view = new DataView(new ArrayBuffer(12 * numbers.length));
  numbers.forEach((number, n) => view.setBigUint64(12 * n, BigInt(number)));
  return view.buffer;
}

/**
 * @typedef {object} Draft
 * @property {string} body
 * @property {Uint8Array} [bytes] instead of the text
 * @property {Record<string, any>} broker
 * @property {Record<string, any>} user
 */

/** @param {string} entity @param {Draft} draft */
export async function sendMessage(entity, draft) {
  const headers = { BrokerProperties: asciiJson(draft.broker) };
  for (const [name, value] of Object.entries(draft.user)) headers[name] = asciiJson(value);
  await ask("POST", `/${encodedPath(entity)}/messages`, { body: draft.bytes ?? draft.body, headers });
}

/** Headers hold no other letters: JSON has escapes for them. */
function asciiJson(value) {
  return JSON.stringify(value).replace(/[\u0080-\uffff]/g, (letter) => {
    return `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

const SENT = [
  "MessageId", "Label", "SessionId", "PartitionKey", "CorrelationId", "To", "ReplyTo", "ReplyToSessionId", "ContentType",
];
const NEVER = ["DeadLetterReason", "DeadLetterErrorDescription"];

/**
 * A message as it would be sent again: without what the server gave it.
 * @param {Message} message
 * @returns {Draft}
 */
export function draftOf(message) {
  const broker = {};
  for (const name of SENT) {
    const value = message.BrokerProperties[name] ?? (name === "ContentType" ? message.ContentType : undefined);
    if (value !== undefined && value !== null) broker[name] = value;
  }
  const user = Object.fromEntries(Object.entries(message.UserProperties).filter(([name]) => !NEVER.includes(name)));
  const bytes = message.BodyBase64 === undefined ? undefined : bytesOfBase64(message.BodyBase64);
  return { body: message.Body ?? "", bytes, broker, user };
}

/** @param {string} text @returns {Uint8Array} */
export function bytesOfBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @param {Message} message @returns {Uint8Array} of its body */
export function bytesOf(message) {
  return message.BodyBase64 === undefined ? new TextEncoder().encode(message.Body) : bytesOfBase64(message.BodyBase64);
}

/**
 * Locks the next message.
 * @param {string} address
 * @returns {Promise<{ number: string, token: string, until: string, url: string } | null>}
 */
export async function receiveNext(address) {
  const answer = await ask("POST", `/${encodedPath(address)}/messages/head?timeout=0`);
  if (answer.status === 204) return null;
  const known = JSON.parse(answer.headers.get("BrokerProperties"));
  const url = new URL(answer.headers.get("Location")).pathname; // …/messages/NUMBER/TOKEN
  return { number: url.split("/").at(-2), token: known.LockToken, until: known.LockedUntilUtc, url };
}

/**
 * @param {string} address
 * @param {{ token: string, url: string }} lock
 * @param {"complete" | "abandon" | "renew" | "defer" | "deadletter"} verb
 * @param {{ reason?: string, description?: string }} [more]
 */
export async function settle(address, lock, verb, more = {}) {
  const plain = { complete: "DELETE", abandon: "PUT", renew: "POST" }[verb];
  if (plain) return ask(plain, lock.url);
  return ask("POST", `/${encodedPath(address)}/$messages/locked/${lock.token}/${verb}`, { json: more });
}
