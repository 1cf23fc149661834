/** The Spark jobs that read the bus and report to it: how they are, and how far behind. */
import { useEffect, useState } from "preact/hooks";
import { askJson } from "../bus/session.js";
import { html } from "../parts/html.js";

const EVERY_MS = 5000;

/** The page at `#/pipelines`. */
export function PipelinesPage() {
  const [told, setTold] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    document.title = "Pipelines – Busway";
    const look = () => askJson("GET", "/$pipelines").then(setTold, (error) => setFault(error.message));
    look();
    const timer = setInterval(look, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const text = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "–"));
  return html`<header class="page-head"><h1>Pipelines</h1></header>
    ${fault && html`<p class="note" role="alert">${fault}</p>`}
    ${told?.length === 0 &&
    html`<p class="note">No job on Spark reports to this bus. Those of <code>busway pipeline</code> do so by themselves.</p>`}
    <div class="cards">
      ${(told ?? []).map(
        (each) => html`<section class="card" key=${each.name}>
          <h2><bdi>${each.name}</bdi></h2>
          <dl class="properties">
            ${Object.entries(each)
              .filter(([name]) => name !== "name")
              .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${text(value)}</dd></div>`)}
          </dl>
        </section>`,
      )}
    </div>`;
}
