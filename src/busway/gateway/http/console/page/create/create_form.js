/** Making a queue, a topic, a subscription or a hub. Partitioning is ticked, as in the service's portal. */
import { useState } from "preact/hooks";
import { createEntity } from "../bus/atom.js";
import { ask, encodedPath } from "../bus/session.js";
import { settingIn, SETTINGS } from "../entity/settings.js";
import { Dialog } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";
import { goTo } from "../routes.js";

const KINDS = [["queue", "Queue"], ["topic", "Topic"], ["hub", "Event hub"]];
const FIRST = { queue: { EnablePartitioning: "true" }, topic: { EnablePartitioning: "true" }, subscription: {}, hub: {} };
const LEFT_OUT = ["Status", "UserMetadata", "ForwardDeadLetteredMessagesTo"];

/** @param {{ topic?: string, onClose: () => void }} props `topic`: a subscription of it is made */
export function CreateForm({ topic = "", onClose }) {
  const [kind, setKind] = useState(topic ? "subscription" : "queue");
  const [name, setName] = useState("");
  const [values, setValues] = useState(FIRST);
  const [hub, setHub] = useState({ partitions: "4", hours: "24" });
  const [fault, setFault] = useState({ name: "", sentence: "" });
  const [isBusy, setBusy] = useState(false);
  const own = values[kind];
  const settings = SETTINGS.filter((each) => each.of.includes(kind) && !LEFT_OUT.includes(each.name));

  const create = async (event) => {
    event.preventDefault();
    if (!name.trim()) {
      setFault({ name: "name", sentence: "It needs a name." });
      return;
    }
    setBusy(true);
    setFault({ name: "", sentence: "" });
    const path = topic ? `${topic}/subscriptions/${name.trim()}` : name.trim();
    try {
      if (kind === "hub") {
        const json = { PartitionCount: Number(hub.partitions), RetentionDescription: { RetentionTimeInHours: Number(hub.hours) } };
        await ask("PUT", `/$eventhubs/${encodedPath(path)}`, { json });
      } else {
        await createEntity(kind, path, inOrder(own));
      }
      notify(`${path} is made.`);
      onClose();
      goTo("entity", path);
    } catch (error) {
      const where = settingIn(error.message);
      const isName = !where && (error.status === 409 || /name|path|character/i.test(error.message));
      setFault({ name: where || (isName ? "name" : ""), sentence: error.message });
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${topic ? `New subscription of ${topic}` : "Create"} onClose=${onClose} wide=${true}>
    <form onSubmit=${create}>
      ${!topic &&
      html`<div class="choices" role="group" aria-label="Kind">
        ${KINDS.map(
          ([each, words]) => html`<button
            type="button"
            key=${each}
            aria-pressed=${each === kind ? "true" : "false"}
            onClick=${() => setKind(each)}
          >
            ${words}
          </button>`,
        )}
      </div>`}
      <${Field}
        id="create-name"
        label="Name"
        help="Letters, digits, and - _ . /"
        value=${name}
        onChange=${setName}
        fault=${fault.name === "name" ? fault.sentence : ""}
      />
      ${kind === "hub"
        ? html`<div class="fields">
            <${Field}
              id="hub-partitions" label="Partitions" kind="number" help="1 to 32; more can be added later."
              value=${hub.partitions} onChange=${(value) => setHub({ ...hub, partitions: value })}
            />
            <${Field}
              id="hub-hours" label="Events are kept for, hours" kind="number" help="-1: for ever."
              value=${hub.hours} onChange=${(value) => setHub({ ...hub, hours: value })}
            />
          </div>`
        : html`<div class="fields wide-fields">
            ${settings.map(
              (each) => html`<${Field}
                key=${`${kind} ${each.name}`}
                id=${`create-${each.name}`}
                label=${each.label}
                kind=${each.kind}
                choices=${each.choices}
                help=${each.help}
                value=${each.kind === "flag" ? own[each.name] === "true" : (own[each.name] ?? "")}
                onChange=${(value) => setValues({ ...values, [kind]: { ...own, [each.name]: String(value) } })}
                fault=${fault.name === each.name ? fault.sentence : ""}
              />`,
            )}
          </div>`}
      ${fault.sentence && !fault.name && html`<p class="fault" role="alert">${fault.sentence}</p>`}
      <div class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="main" disabled=${isBusy}>Create</button>
      </div>
    </form>
  <//>`;
}

/** As the service orders elements; what is empty is left to it. */
function inOrder(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && value !== "false"));
}
