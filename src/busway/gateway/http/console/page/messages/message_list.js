/** Messages of an entity, looked at without taking them: from anywhere, filtered on the server, page after page. */
import { useEffect, useRef, useState } from "preact/hooks";
import { listMessages, numberOf } from "../bus/message.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { bytesText, timeText, wholeText } from "../parts/number_text.js";
import { Grid } from "../parts/grid.js";

const PAGE = 50;
/** Pages without a hit that are asked for by themselves, before somebody is asked to go on. */
const PATIENCE = 40;

const text = (value) => (value === undefined || value === null ? "" : String(value));

const COLUMNS = [
  { name: "number", title: "Number", look: "broad", cell: (row) => html`<span class="mono">${numberOf(row)}</span>` },
  { name: "body", title: "Body", look: "wide", cell: (row) => html`<span class="mono soft">${firstLine(row)}</span>` },
  { name: "id", title: "Message id", look: "late long", cell: (row) => html`<bdi>${text(row.BrokerProperties.MessageId)}</bdi>` },
  { name: "label", title: "Subject", look: "later", cell: (row) => html`<bdi>${text(row.BrokerProperties.Label)}</bdi>` },
  { name: "state", title: "State", look: "late", cell: stateCell },
  { name: "at", title: "Enqueued", look: "long late", cell: (row) => timeText(row.EnqueuedAtMs) },
  { name: "size", title: "Size", number: true, look: "late", cell: (row) => bytesText(row.Size) },
];
const REASON = {
  name: "reason", title: "Reason", look: "long",
  cell: (row) => html`<span class="dead">${text(row.UserProperties.DeadLetterReason)}</span>`,
};

function firstLine(row) {
  if (row.Body === undefined) return `${row.BodyBytes} bytes`;
  return row.Body.slice(0, 200).replace(/\s+/g, " ");
}

function stateCell(row) {
  const state = row.BrokerProperties.State;
  return state === "Active" ? html`<span class="soft">Active</span>` : html`<span class="badge">${state}</span>`;
}

/**
 * @param {object} props
 * @param {string} props.address
 * @param {boolean} props.isDead
 * @param {boolean} props.isPartitioned
 * @param {Set<string>} props.chosen numbers
 * @param {(chosen: Set<string>) => void} props.onChoose
 * @param {(message: import("../bus/message.js").Message) => void} props.onOpen
 * @param {(look: { query: Record<string, string>, messages: any[] }) => void} props.onLooked
 * @param {number} props.version a new one looks again
 */
export function MessageList({ address, isDead, isPartitioned, chosen, onChoose, onOpen, onLooked, version }) {
  const [query, setQuery] = useState({ filter: "", from: "", since: "", state: "" });
  const [messages, setMessages] = useState([]);
  const [next, setNext] = useState(null);
  const [looked, setLooked] = useState(0);
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const running = useRef(null);

  const look = async (from, before) => {
    running.current?.abort();
    const stopping = (running.current = new AbortController());
    setBusy(true);
    setFault("");
    let found = before;
    let at = from;
    let seen = before.length ? looked : 0;
    try {
      const since = !before.length && query.since ? new Date(query.since).toISOString() : "";
      for (let turn = 0; turn < PATIENCE; turn++) {
        const asked = { filter: query.filter, state: query.state, count: PAGE, from: at, since: turn ? "" : since };
        const told = await listMessages(address, asked, stopping.signal);
        found = [...found, ...told.messages];
        seen += told.looked;
        at = told.next;
        setMessages(found);
        setLooked(seen);
        if (at === null || told.messages.length >= PAGE || found.length - before.length >= PAGE) break;
      }
      setNext(at);
      onLooked({ query, messages: found });
    } catch (error) {
      if (error.name === "AbortError") return;
      setFault(error.message);
      if (!before.length) setMessages([]);
    }
    setBusy(false);
  };

  useEffect(() => {
    look(query.from, []);
    return () => running.current?.abort();
  }, [address, version]);

  const submit = (event) => {
    event.preventDefault();
    look(query.from, []);
  };
  const change = (name) => (value) => setQuery({ ...query, [name]: value });
  const tick = {
    name: "chosen", title: "", look: "tiny",
    cell: (row) => html`<input
      type="checkbox"
      aria-label=${`Choose message ${numberOf(row)}`}
      checked=${chosen.has(numberOf(row))}
      onClick=${(event) => event.stopPropagation()}
      onChange=${() => onChoose(toggled(chosen, numberOf(row)))}
    />`,
  };
  const shown = isDead ? [tick, ...COLUMNS.slice(0, 2), REASON, ...COLUMNS.slice(2)] : [tick, ...COLUMNS];
  const allChosen = messages.length > 0 && messages.every((row) => chosen.has(numberOf(row)));
  return html`<form class="bar message-query" onSubmit=${submit}>
      <div class="grow">
        <${Field}
          id="message-filter"
          label="Filter"
          placeholder="region = 'north' AND sys.Label LIKE 'new%'"
          value=${query.filter}
          onChange=${change("filter")}
        />
      </div>
      <${Field} id="message-from" label="From number" kind="number" value=${query.from} onChange=${change("from")} />
      ${!isPartitioned &&
      html`<${Field} id="message-since" label="From time" kind="datetime-local" value=${query.since} onChange=${change("since")} />`}
      <${Field}
        id="message-state"
        label="State"
        kind="choice"
        choices=${[["", "All"], ["active", "Active"], ["scheduled", "Scheduled"], ["deferred", "Deferred"]]}
        value=${query.state}
        onChange=${change("state")}
      />
      <button type="submit"><${Icon} name="refresh" />Look</button>
    </form>
    ${fault && html`<p class="fault" role="alert">${fault}</p>`}
    <${Grid}
      label="Messages"
      look="tall"
      columns=${shown}
      rows=${messages}
      keyOf=${numberOf}
      onOpen=${onOpen}
      empty=${isBusy ? "Looking…" : "There are no messages here."}
    />
    <div class="bar below">
      <label class="tick">
        <input
          type="checkbox"
          checked=${allChosen}
          onChange=${() => onChoose(allChosen ? new Set() : new Set(messages.map(numberOf)))}
        />Choose all ${wholeText(messages.length)}
      </label>
      <span class="soft" role="status">${isBusy ? "Looking… " : ""}${wholeText(looked)} looked at</span>
      ${next !== null &&
      html`<button type="button" disabled=${isBusy} onClick=${() => look(next, messages)}>More</button>`}
    </div>`;
}

function toggled(chosen, number) {
  const next = new Set(chosen);
  if (!next.delete(number)) next.add(number);
  return next;
}
