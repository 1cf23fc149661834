/** Short words about what was just done, read by screen readers, gone after a while. */
import { html } from "./html.js";
import { makeStore, useStore } from "./store.js";
import { Icon } from "./icons.js";

const SHOWN_MS = 6000;
const notices = makeStore([]);
let next = 0;

/**
 * @param {string} text
 * @param {"good" | "bad"} [kind] bad ones stay until they are closed
 */
export function notify(text, kind = "good") {
  const notice = { id: next++, text, kind };
  notices.set([...notices.value.slice(-3), notice]);
  if (kind === "good") setTimeout(() => drop(notice.id), SHOWN_MS);
}

function drop(id) {
  notices.set(notices.value.filter((each) => each.id !== id));
}

/** The place where they are shown. */
export function Notices() {
  return html`<div class="notices" role="status" aria-live="polite">
    ${useStore(notices).map(
      (each) => html`<div class="notice ${each.kind}" key=${each.id}>
        <span>${each.text}</span>
        <button type="button" class="plain" aria-label="Close this notice" onClick=${() => drop(each.id)}>
          <${Icon} name="close" />
        </button>
      </div>`,
    )}
  </div>`;
}
