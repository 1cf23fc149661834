/** Work on many messages at once: it says how far it is, and can be stopped between two requests. */
import { useRef, useState } from "preact/hooks";
import { deleteMessages, listMessages, numberOf, resubmit, sendMessage } from "../bus/message.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";
import { wholeText } from "../parts/number_text.js";

const PAGE = 100;

/**
 * @returns {{ work: { title: string, done: number, total: number } | null,
 *   start: (title: string, total: number, run: (tell: (done: number) => void, isOver: () => boolean) => Promise<string>)
 *     => Promise<void>, stop: () => void }}
 */
export function useWork() {
  const [work, setWork] = useState(null);
  const over = useRef(false);
  const start = async (title, total, run) => {
    over.current = false;
    setWork({ title, done: 0, total });
    try {
      notify(await run((done) => setWork({ title, done, total }), () => over.current));
    } catch (error) {
      notify(error.message, "bad");
    }
    setWork(null);
  };
  return { work, start, stop: () => (over.current = true) };
}

/** @param {{ work: { title: string, done: number, total: number } | null, onStop: () => void }} props */
export function WorkBar({ work, onStop }) {
  if (!work) return null;
  return html`<div class="note work" role="status">
    <span>${work.title}: ${wholeText(work.done)}${work.total ? ` of about ${wholeText(work.total)}` : ""}</span>
    <progress max=${work.total || undefined} value=${work.total ? work.done : undefined} aria-label=${work.title}></progress>
    <button type="button" onClick=${onStop}>Stop</button>
  </div>`;
}

/**
 * Everything that lies there, a page at a time.
 * @param {string} address
 * @param {Record<string, string>} query
 * @param {(tell: (done: number) => void) => void} tell
 * @param {() => boolean} isOver
 */
async function forAll(address, query, tell, isOver, act) {
  let from = "0";
  let done = 0;
  while (from !== null && !isOver()) {
    const told = await listMessages(address, { ...query, count: PAGE, from });
    from = told.next;
    if (told.messages.length) done += await act(told.messages.map(numberOf));
    tell(done);
  }
  return done;
}

/** Deletes all messages of an address, in one state or in all. */
export const purge = (address, state) => async (tell, isOver) => {
  const done = await forAll(address, { state }, tell, isOver, async (some) => (await deleteMessages(address, some)).length);
  return `${wholeText(done)} messages are deleted.${isOver() ? " It was stopped before the end." : ""}`;
};

/** Sends dead letters back, those that a filter selects or all. */
export const resubmitAll = (entity, address, filter) => async (tell, isOver) => {
  const failed = [];
  const done = await forAll(address, { filter }, tell, isOver, async (some) => {
    const told = await resubmit(entity, some);
    failed.push(...told.failed);
    return told.moved;
  });
  const rest = failed.length ? ` ${failed.length} stayed; the first: ${failed[0]}` : "";
  return `${wholeText(done)} dead letters are sent again.${rest}${isOver() ? " It was stopped before the end." : ""}`;
};

/** Sends messages that came out of a file. */
export const importAll = (entity, drafts) => async (tell, isOver) => {
  let done = 0;
  for (const draft of drafts) {
    if (isOver()) break;
    await sendMessage(entity, draft);
    tell(++done);
  }
  return `${wholeText(done)} messages are sent to ${entity}.`;
};
