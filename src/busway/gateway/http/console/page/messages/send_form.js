/** Writing a message: a new one, or one that was there, changed. */
import { useState } from "preact/hooks";
import { deleteMessages, numberOf, sendMessage } from "../bus/message.js";
import { Dialog } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";

const TEXTS = [
  ["MessageId", "Message id"], ["Label", "Subject"], ["SessionId", "Session"], ["PartitionKey", "Partition key"],
  ["CorrelationId", "Correlation id"], ["ReplyTo", "Reply to"], ["ContentType", "Content type"],
];
const REPEAT_MAX = 10_000;

function readProperties(text) {
  if (!text.trim()) return {};
  const said = JSON.parse(text);
  const isObject = said !== null && typeof said === "object" && !Array.isArray(said);
  if (!isObject) throw new Error("an object is expected");
  for (const [name, value] of Object.entries(said)) {
    if (value !== null && typeof value === "object") throw new Error(`${name} must be a text, a number, true, or false`);
  }
  return said;
}

/**
 * @param {object} props
 * @param {string} props.entity where it goes
 * @param {import("../bus/message.js").Draft} [props.draft]
 * @param {{ address: string, message: import("../bus/message.js").Message }} [props.original] may be deleted afterwards
 * @param {() => void} props.onClose
 * @param {() => void} [props.onDone]
 */
export function SendForm({ entity, draft, original, onClose, onDone }) {
  const [target, setTarget] = useState(entity);
  const [body, setBody] = useState(draft?.body ?? "");
  const [broker, setBroker] = useState(draft?.broker ?? {});
  const [user, setUser] = useState(Object.keys(draft?.user ?? {}).length ? JSON.stringify(draft.user, null, 2) : "");
  const [at, setAt] = useState("");
  const [ttl, setTtl] = useState("");
  const [repeat, setRepeat] = useState("1");
  const [keeps, setKeeps] = useState(true);
  const [faults, setFaults] = useState({});
  const [sent, setSent] = useState(-1);

  const read = () => {
    const wrong = {};
    const known = Object.fromEntries(Object.entries(broker).filter(([, value]) => value !== ""));
    let custom = {};
    try {
      custom = readProperties(user);
    } catch (error) {
      wrong.user = `This is no JSON object of plain values: ${error.message}.`;
    }
    if (at) known.ScheduledEnqueueTimeUtc = new Date(at).toISOString().replace(/\.\d+Z$/, "Z");
    if (ttl) {
      if (/^\d+(\.\d+)?$/.test(ttl) && Number(ttl) > 0) known.TimeToLive = Number(ttl);
      else wrong.ttl = "A number of seconds above 0, or nothing.";
    }
    const times = Number(repeat);
    if (!Number.isInteger(times) || times < 1 || times > REPEAT_MAX) wrong.repeat = `From 1 to ${REPEAT_MAX}.`;
    return { wrong, times, message: { body, bytes: draft?.bytes, broker: known, user: custom } };
  };

  const send = async (event) => {
    event.preventDefault();
    const { wrong, times, message } = read();
    setFaults(wrong);
    if (Object.keys(wrong).length) return;
    setSent(0);
    let done = 0;
    try {
      for (; done < times; done++) {
        const own = times > 1 && message.broker.MessageId ? { MessageId: `${message.broker.MessageId}-${done + 1}` } : {};
        await sendMessage(target, { ...message, broker: { ...message.broker, ...own } });
        setSent(done + 1);
      }
      let also = "";
      if (original && !keeps) {
        const gone = await deleteMessages(original.address, [numberOf(original.message)]);
        also = gone.length ? " The original is deleted." : " The original stayed: somebody holds it, or it has gone already.";
      }
      notify(`${times === 1 ? "The message is" : `${times} messages are`} sent to ${target}.${also}`);
      onDone?.();
      onClose();
    } catch (error) {
      setFaults({ all: `${error.message}${done ? ` ${done} of ${times} were sent before.` : ""}` });
      setSent(-1);
    }
  };

  const isBusy = sent >= 0;
  return html`<${Dialog} title=${original ? "Edit and send again" : `Send to ${entity}`} onClose=${onClose} wide=${true}>
    <form onSubmit=${send}>
      ${original && html`<${Field} id="send-target" label="Send to" value=${target} onChange=${setTarget} />`}
      ${draft?.bytes
        ? html`<p class="help">The body is no text: it is sent as it is, ${draft.bytes.length} bytes.</p>`
        : html`<${Field} id="send-body" label="Body" kind="area" rows=${8} value=${body} onChange=${setBody} />`}
      <div class="fields">
        ${TEXTS.map(
          ([name, label]) => html`<${Field}
            key=${name}
            id=${`send-${name}`}
            label=${label}
            value=${broker[name] ?? ""}
            onChange=${(value) => setBroker({ ...broker, [name]: value })}
          />`,
        )}
        <${Field} id="send-at" label="Scheduled for" kind="datetime-local" value=${at} onChange=${setAt} />
        <${Field} id="send-ttl" label="Time to live, seconds" kind="number" value=${ttl} onChange=${setTtl} fault=${faults.ttl} />
        <${Field} id="send-repeat" label="How often" kind="number" value=${repeat} onChange=${setRepeat} fault=${faults.repeat} />
      </div>
      <${Field}
        id="send-user"
        label="Custom properties"
        kind="area"
        rows=${3}
        placeholder=${'{"region": "north", "total": 12}'}
        value=${user}
        onChange=${setUser}
        fault=${faults.user}
      />
      ${original &&
      html`<${Field} id="send-keep" kind="flag" label="Keep the original" value=${keeps} onChange=${setKeeps} />`}
      ${faults.all && html`<p class="fault" role="alert">${faults.all}</p>`}
      <div class="dialog-foot">
        ${isBusy && Number(repeat) > 1 && html`<progress max=${repeat} value=${sent} aria-label="Sent"></progress>`}
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="main" disabled=${isBusy}>${isBusy ? "Sending…" : "Send"}</button>
      </div>
    </form>
  <//>`;
}
