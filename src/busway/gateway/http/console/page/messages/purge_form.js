/** Emptying an entity: which messages, and its name typed, so that no slip does it. */
import { useState } from "preact/hooks";
import { Confirm } from "../parts/confirm.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { wholeText } from "../parts/number_text.js";

/**
 * @param {object} props
 * @param {import("../bus/entities.js").EntityRow} props.row
 * @param {(address: string, state: string, total: number) => void} props.onPurge
 * @param {() => void} props.onClose
 */
export function PurgeForm({ row, onPurge, onClose }) {
  const kinds = [
    ["active", "Active messages", row.path, "active", row.active],
    ["dead", "Dead letters", `${row.path}/$DeadLetterQueue`, "", row.dead],
    ["scheduled", "Scheduled messages", row.path, "scheduled", row.scheduled],
    ["deferred", "Deferred messages", row.path, "deferred", row.deferred],
  ];
  const [kind, setKind] = useState("active");
  const [, name, address, state, total] = kinds.find(([each]) => each === kind);
  const words = row.path.split("/").at(-1);
  return html`<${Confirm}
    title=${`Purge ${row.path}`}
    action="Purge"
    typed=${words}
    onDo=${() => void onPurge(address, state, total ?? 0)}
    onClose=${onClose}
  >
    <${Field}
      id="purge-kind"
      label="What is deleted"
      kind="choice"
      choices=${kinds.map(([each, title, , , count]) => [each, `${title} (${wholeText(count)})`])}
      value=${kind}
      onChange=${setKind}
    />
    <p>
      ${name} of <b>${row.path}</b> are deleted, ${wholeText(total)} just now and those that come meanwhile. They cannot be
      brought back. What somebody has locked stays.
    </p>
  <//>`;
}
