/** How the stores are, at a glance. */
import { serverFacts } from "../bus/live.js";
import { html } from "../parts/html.js";
import { wholeText } from "../parts/number_text.js";
import { useStore } from "../parts/store.js";
import { addressOf } from "../routes.js";

/** The colour of a store's state. */
export const storeLook = (state) => (state === "open" ? "good" : state === "disabled" ? "idle" : "bad");

/** A card with a line for each store. */
export function StoresStrip() {
  const facts = useStore(serverFacts);
  if (!facts) return null;
  return html`<section class="card stores-strip">
    <h2><a href=${addressOf("stores")}>Stores</a></h2>
    <ul>
      ${facts.stores.map(
        (store) => html`<li key=${store.name}>
          <span class="dot ${storeLook(store.state)}" aria-hidden="true"></span>
          <b>${store.name}</b>
          <span>${store.state}</span>
          <span class="soft num">${wholeText(store.fragments)} fragments</span>
        </li>`,
      )}
    </ul>
    <p class="soft">${wholeText(facts.connections)} AMQP ${facts.connections === 1 ? "connection" : "connections"}</p>
  </section>`;
}
