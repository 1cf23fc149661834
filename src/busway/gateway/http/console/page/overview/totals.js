/** What all entities hold together, in large numbers. */
import { html } from "../parts/html.js";
import { bytesText, rateText, shortText, wholeText } from "../parts/number_text.js";

/**
 * @param {{ rows: Iterable<import("../bus/entities.js").EntityRow> }} props
 */
export function Totals({ rows }) {
  const sum = { active: 0, dead: 0, scheduled: 0, deferred: 0, bytes: 0, into: 0, out: 0 };
  let events = 0;
  let unknown = 0;
  for (const row of rows) {
    sum.into += row.into;
    sum.out += row.out;
    if (row.active === null) {
      unknown++;
      continue;
    }
    if (row.kind === "hub") events += row.active;
    else sum.active += row.active;
    for (const name of ["dead", "scheduled", "deferred"]) sum[name] += row[name];
    if (row.kind !== "subscription") sum.bytes += row.bytes; // a topic's bytes are those of its subscriptions, too
  }
  const tiles = [
    [shortText(sum.active), "active messages", sum.active, ""],
    [shortText(sum.dead), "dead letters", sum.dead, sum.dead ? "bad" : ""],
    [shortText(sum.scheduled), "scheduled", sum.scheduled, ""],
    [shortText(sum.deferred), "deferred", sum.deferred, ""],
    [shortText(events), "events in hubs", events, ""],
    [bytesText(sum.bytes), "stored", sum.bytes, ""],
    [rateText(sum.into), "in per second", sum.into, ""],
    [rateText(sum.out), "out per second", sum.out, ""],
  ];
  return html`<section class="tiles" aria-label="Totals">
      ${tiles.map(
        ([value, name, exact, look]) => html`<div class="tile ${look}" title=${wholeText(exact)}>
          <b>${value}</b><span>${name}</span>
        </div>`,
      )}
    </section>
    ${unknown > 0 &&
    html`<p class="note">${wholeText(unknown)} entities are not counted: their store is not in service just now.</p>`}`;
}
