/** The one socket of this page: it signs in, and tells what changes. It comes back by itself. */
import { makeStore } from "../parts/store.js";
import { tokenOf } from "./credential.js";
import { forgetEntities, takeRows } from "./entities.js";
import { session, signOut } from "./session.js";

/** How it is: "off", "connecting", "live", or "lost" while it tries again. */
export const liveState = makeStore("off");
/** What the server says of itself: `{ stores, connections, watching }`. */
export const serverFacts = makeStore(null);

const RETRY_MS = [300, 700, 1500, 3000, 5000];
/** Well before the token ends that the page has signed. */
const RENEW_MS = 25 * 60 * 1000;

let socket = null;
let attempts = 0;
let retryTimer = 0;
let renewTimer = 0;

/**
 * Signs in and stays connected. Settles when the server has said hello or has refused.
 * @param {import("./credential.js").Credential} credential
 * @returns {Promise<void>} rejects with an Error with a sentence
 */
export function connect(credential) {
  disconnect();
  forgetEntities();
  return new Promise((resolve, reject) => open(credential, resolve, reject));
}

/** Ends it; nothing is tried again. */
export function disconnect() {
  clearTimeout(retryTimer);
  clearInterval(renewTimer);
  attempts = 0;
  if (socket) {
    const old = socket;
    socket = null;
    old.close();
  }
  liveState.set("off");
}

function open(credential, welcome, refuse) {
  liveState.set(attempts ? "lost" : "connecting");
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const mine = new WebSocket(`${scheme}://${location.host}/$console/live`);
  socket = mine;
  const sayToken = () => mine.send(`${JSON.stringify({ token: tokenOf(credential), below: credential.below })}\n`);
  mine.onopen = () => {
    sayToken();
    if (credential.key) renewTimer = setInterval(sayToken, RENEW_MS);
  };
  mine.onmessage = (event) => {
    const told = JSON.parse(event.data);
    if (told.type === "rows") takeRows(told);
    else if (told.type === "server") serverFacts.set(told);
    else if (told.type === "hello") {
      attempts = 0;
      liveState.set("live");
      session.set({ ...told, credential });
      welcome();
    } else if (told.type === "refused") {
      const wasIn = session.value !== null;
      disconnect();
      if (wasIn) signOut(told.sentence);
      refuse(new Error(told.sentence));
    }
  };
  mine.onclose = () => {
    clearInterval(renewTimer);
    if (socket !== mine) return;
    socket = null;
    if (session.value === null) {
      liveState.set("off");
      refuse(new Error("The server does not answer, or it refuses pages from this address."));
      return;
    }
    liveState.set("lost");
    const pause = RETRY_MS[Math.min(attempts++, RETRY_MS.length - 1)];
    retryTimer = setTimeout(() => open(credential, () => {}, () => {}), pause);
  };
}
