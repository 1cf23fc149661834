/** A message that this page has received and holds: it is settled here, or comes back when its lock ends. */
import { useEffect, useState } from "preact/hooks";
import { settle } from "../bus/message.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";
import { BodyView } from "./body_view.js";

/**
 * @param {object} props
 * @param {string} props.address
 * @param {{ lock: { number: string, token: string, until: string, url: string }, message: any }} props.locked
 * @param {(verb: string, more: object, words: string) => void} props.onSettle
 * @param {() => void} props.onClose
 */
export function LockedMessage({ address, locked, onSettle, onClose }) {
  const [until, setUntil] = useState(Date.parse(locked.lock.until));
  const [left, setLeft] = useState(Math.round((until - Date.now()) / 1000));
  const [reason, setReason] = useState("");
  const { lock, message } = locked;
  useEffect(() => {
    const timer = setInterval(() => setLeft(Math.round((until - Date.now()) / 1000)), 500);
    return () => clearInterval(timer);
  }, [until]);
  const renew = async () => {
    try {
      const answer = await settle(address, lock, "renew");
      setUntil(Date.parse(JSON.parse(answer.headers.get("BrokerProperties")).LockedUntilUtc));
      notify("The lock is renewed.");
    } catch (error) {
      notify(error.message, "bad");
    }
  };
  return html`<section class="card locked" aria-label="Received message">
    <div class="bar">
      <h2>Received: message ${lock.number}</h2>
      <span class=${left > 0 ? "soft" : "dead"} role="timer">
        ${left > 0 ? `locked for ${left} s more` : "the lock has ended: it goes back by itself"}
      </span>
      <div class="actions end">
        <button type="button" class="main" onClick=${() => onSettle("complete", {}, "Completed: it is gone.")}>Complete</button>
        <button type="button" onClick=${() => onSettle("abandon", {}, "Abandoned: it is available again.")}>Abandon</button>
        <button type="button" onClick=${() => onSettle("defer", {}, "Deferred: receive it by its number.")}>Defer</button>
        <button type="button" onClick=${renew}>Renew the lock</button>
        <button type="button" class="plain" onClick=${onClose}>Leave it</button>
      </div>
    </div>
    <${BodyView} message=${message} />
    ${!address.includes("$DeadLetterQueue") &&
    html`<form
      class="bar"
      onSubmit=${(event) => {
        event.preventDefault();
        onSettle("deadletter", { reason: reason || "SetAside" }, "Dead-lettered.");
      }}
    >
      <${Field} id="dead-reason" label="Reason" value=${reason} onChange=${setReason} placeholder="SetAside" />
      <button type="submit" class="danger">Dead-letter</button>
    </form>`}
  </section>`;
}
