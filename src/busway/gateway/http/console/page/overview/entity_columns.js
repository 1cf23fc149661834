/** What the grid of entities shows of each. */
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { bytesText, rateText, wholeText } from "../parts/number_text.js";

/** Words for kinds. */
export const KINDS = { queue: "Queue", topic: "Topic", subscription: "Subscription", hub: "Event hub" };

const count = (name, title, look = "") => ({
  name,
  title,
  number: true,
  sorts: true,
  look,
  cell: (row) => (row[name] === 0 ? html`<span class="zero">0</span>` : wholeText(row[name])),
});

/** The name, with what it is below for a subscription. */
function nameCell(row) {
  const at = row.lower.indexOf("/subscriptions/");
  const isBelow = row.kind === "subscription" && at >= 0;
  return html`<span class="entity-name" title=${row.path}>
    <span class="kind ${row.kind}"><${Icon} name=${row.kind} /></span>
    ${isBelow
      ? html`<span class="soft">${row.path.slice(0, at)} ›${" "}</span>
          <bdi>${row.path.slice(at + "/subscriptions/".length)}</bdi>`
      : html`<bdi>${row.path}</bdi>`}
    ${row.fragments > 1 && row.kind !== "hub" && html`<span class="chip" title="Partitioned">×${row.fragments}</span>`}
  </span>`;
}

function kindCell(row) {
  return html`<span class="soft">${KINDS[row.kind]}</span>`;
}

/** The state as a word, but only where it is not the usual one. */
function stateCell(row) {
  if (row.availability === "Unknown") return html`<span class="badge bad">store away</span>`;
  if (row.availability === "Limited") return html`<span class="badge bad">limited</span>`;
  if (row.status !== "Active") return html`<span class="badge">${row.status}</span>`;
  return html`<span class="soft">Active</span>`;
}

/** @type {import("../parts/grid.js").Column<import("../bus/entities.js").EntityRow>[]} */
export const ENTITY_COLUMNS = [
  { name: "path", title: "Name", look: "wide", sorts: true, cell: nameCell },
  { name: "kind", title: "Kind", look: "late broad", sorts: true, cell: kindCell },
  { name: "status", title: "Status", look: "late", sorts: true, cell: stateCell },
  count("active", "Active"),
  {
    ...count("dead", "Dead letters", "broad"),
    cell: (row) =>
      row.dead > 0
        ? html`<span class="dead">${wholeText(row.dead)}</span>`
        : row.dead === 0
          ? html`<span class="zero">0</span>`
          : "–",
  },
  count("scheduled", "Scheduled", "late"),
  count("deferred", "Deferred", "later"),
  count("transfer", "Transfer", "later"),
  { name: "bytes", title: "Size", number: true, look: "late", sorts: true, cell: (row) => bytesText(row.bytes) },
  { name: "into", title: "In/s", number: true, look: "late", sorts: true, cell: (row) => rate(row.into) },
  { name: "out", title: "Out/s", number: true, look: "late", sorts: true, cell: (row) => rate(row.out) },
];

const rate = (value) => (value ? rateText(value) : html`<span class="zero">0</span>`);
