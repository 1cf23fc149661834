/** One message in full, and what can be done with it. */
import { useEffect, useState } from "preact/hooks";
import { numberOf, wholeMessage } from "../bus/message.js";
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { agoText, bytesText, timeText } from "../parts/number_text.js";
import { BodyView } from "./body_view.js";

const TITLES = {
  SequenceNumber: "Sequence number", MessageId: "Message id", Label: "Subject", SessionId: "Session",
  EnqueuedTimeUtc: "Enqueued", DeliveryCount: "Deliveries", ScheduledEnqueueTimeUtc: "Scheduled for", TimeToLive: "Time to live",
  CorrelationId: "Correlation id", PartitionKey: "Partition key", ReplyTo: "Reply to", To: "To", State: "State",
  DeadLetterSource: "Dead-letter source", ContentType: "Content type", EnqueuedSequenceNumber: "Number at its source",
};
/** As the service writes that there is none. */
const FOR_EVER_S = 900_000_000_000;

function value(name, raw, message) {
  if (name === "EnqueuedTimeUtc") {
    return `${timeText(message.EnqueuedAtMs)} (${agoText(Date.now() - message.EnqueuedAtMs)} ago)`;
  }
  if (name === "TimeToLive") return raw > FOR_EVER_S ? "for ever" : `${raw} s`;
  if (name === "DeliveryCount") return String(raw - 1);
  if (name === "ScheduledEnqueueTimeUtc") return timeText(raw);
  return String(raw);
}

/**
 * @param {object} props
 * @param {string} props.address
 * @param {import("../bus/message.js").Message} props.message as the list has it
 * @param {unknown} props.actions
 * @param {() => void} props.onClose
 */
export function MessageView({ address, message, actions, onClose }) {
  const [whole, setWhole] = useState(message);
  const [fault, setFault] = useState("");
  const number = numberOf(message);
  useEffect(() => {
    setWhole(message);
    setFault("");
    const shown = new TextEncoder().encode(message.Body ?? "").length;
    if (message.BodyBase64 === undefined && shown >= message.BodyBytes) return;
    wholeMessage(address, number).then(setWhole, (error) => setFault(error.message));
  }, [address, number]);

  const known = { ...whole.BrokerProperties };
  if (whole.ContentType && !known.ContentType) known.ContentType = whole.ContentType;
  if (known.EnqueuedSequenceNumber === 0) delete known.EnqueuedSequenceNumber;
  const user = Object.entries(whole.UserProperties);
  const reason = whole.UserProperties.DeadLetterReason;
  return html`<aside class="card message-view" aria-label=${`Message ${number}`}>
    <div class="dialog-head">
      <h2>Message ${number}</h2>
      <button type="button" class="plain" aria-label="Close the message" onClick=${onClose}>
        <${Icon} name="close" />
      </button>
    </div>
    <div class="actions">${actions}</div>
    ${fault && html`<p class="note" role="alert">${fault}</p>`}
    ${reason &&
    html`<p class="note"><b>${reason}</b> ${whole.UserProperties.DeadLetterErrorDescription ?? ""}</p>`}
    <${BodyView} key=${number} message=${whole} />
    <h3>System properties</h3>
    <dl class="properties">
      ${Object.entries(TITLES)
        .filter(([name]) => known[name] !== undefined && known[name] !== null)
        .map(([name, title]) => html`<div key=${name}><dt>${title}</dt><dd>${value(name, known[name], whole)}</dd></div>`)}
      <div><dt>Size</dt><dd>${bytesText(whole.Size)}</dd></div>
    </dl>
    <h3>Custom properties <span class="soft">${user.length || "none"}</span></h3>
    <dl class="properties">
      ${user.slice(0, 500).map(
        ([name, each]) => html`<div key=${name}>
          <dt><bdi>${name}</bdi></dt>
          <dd><bdi>${typeof each === "string" ? each : JSON.stringify(each)}</bdi></dd>
        </div>`,
      )}
    </dl>
    ${user.length > 500 && html`<p class="help">500 of ${user.length} are shown. Export the message to have all.</p>`}
  </aside>`;
}
