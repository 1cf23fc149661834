/** Where everything lies: the stores, who has them, and taking one out of service. */
import { useEffect, useState } from "preact/hooks";
import { serverFacts } from "../bus/live.js";
import { ask, mayChange } from "../bus/session.js";
import { storeLook } from "../overview/stores_strip.js";
import { Confirm } from "../parts/confirm.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";
import { wholeText } from "../parts/number_text.js";
import { useStore } from "../parts/store.js";

/** The page at `#/stores`. */
export function StoresPage() {
  const facts = useStore(serverFacts);
  const [asked, setAsked] = useState(null);
  useEffect(() => {
    document.title = "Stores – Busway";
  }, []);
  const turn = async (store, verb) => {
    await ask("POST", `/$stores/${encodeURIComponent(store.name)}/${verb}`);
    notify(`${store.name} is ${verb === "disable" ? "out of" : "in"} service.`);
  };
  return html`<header class="page-head"><h1>Stores</h1></header>
    <section class="card">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              ${["Store", "State", "Owner", "Epoch", "Fragments", "Address", ""].map(
                (name) => html`<th scope="col" key=${name}>${name || html`<span class="for-readers">Actions</span>`}</th>`,
              )}
            </tr>
          </thead>
          <tbody>
            ${(facts?.stores ?? []).map(
              (store) => html`<tr key=${store.name}>
                <td><b>${store.name}</b></td>
                <td><span class="dot ${storeLook(store.state)}" aria-hidden="true"></span> ${store.state}</td>
                <td>${store.owner ?? "–"}</td>
                <td>${store.epoch ?? "–"}</td>
                <td>${wholeText(store.fragments)}</td>
                <td class="mono">${store.url || "–"}</td>
                <td class="num">
                  ${mayChange("Manage") &&
                  (store.state === "disabled"
                    ? html`<button type="button" onClick=${() => setAsked([store, "enable"])}>Back into service</button>`
                    : html`<button type="button" class="danger" onClick=${() => setAsked([store, "disable"])}>
                        Take out of service
                      </button>`)}
                </td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
    </section>
    ${asked &&
    html`<${Confirm}
      title=${asked[1] === "disable" ? `Take ${asked[0].name} out of service` : `Bring ${asked[0].name} back`}
      action=${asked[1] === "disable" ? "Take out of service" : "Bring back"}
      typed=${asked[1] === "disable" ? asked[0].name : ""}
      onDo=${() => turn(...asked)}
      onClose=${() => setAsked(null)}
    >
      <p>
        ${asked[1] === "disable"
          ? html`Plain entities in it cannot be used until it is back; partitioned ones go on without its fragments. What
              it holds is kept, and it stays out of service over a restart.`
          : "What it holds can be used again."}
      </p>
    <//>`}`;
}
