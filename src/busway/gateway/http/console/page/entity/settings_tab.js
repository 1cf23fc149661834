/** The settings of an entity: shown with their help, changed where they can be. */
import { useEffect, useState } from "preact/hooks";
import { changeEntity, readEntity } from "../bus/atom.js";
import { mayChange } from "../bus/session.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";
import { timeText } from "../parts/number_text.js";
import { settingIn, SETTINGS, shownValue } from "./settings.js";

/** @param {{ row: import("../bus/entities.js").EntityRow }} props */
export function SettingsTab({ row }) {
  const [before, setBefore] = useState(null);
  const [values, setValues] = useState({});
  const [fault, setFault] = useState({ name: "", sentence: "" });
  const [isBusy, setBusy] = useState(false);
  const isMine = mayChange("Manage");
  const settings = SETTINGS.filter((each) => each.of.includes(row.kind));

  const load = async () => {
    try {
      const found = await readEntity(row.path);
      const read = Object.fromEntries(settings.map((each) => [each.name, shownValue(found.values[each.name])]));
      setBefore({ ...found.values, ...read });
      setValues(read);
    } catch (error) {
      setFault({ name: "", sentence: error.message });
    }
  };
  useEffect(() => {
    load();
  }, [row.path]);
  if (!before) return fault.sentence ? html`<p class="note" role="alert">${fault.sentence}</p>` : html`<p>Loading…</p>`;

  const changed = settings.filter((each) => !each.fixed && values[each.name] !== before[each.name]);
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFault({ name: "", sentence: "" });
    try {
      await changeEntity(row.path, Object.fromEntries(changed.map((each) => [each.name, values[each.name]])));
      notify(`${row.path} is changed.`);
      await load();
    } catch (error) {
      setFault({ name: settingIn(error.message), sentence: error.message });
    }
    setBusy(false);
  };
  const size = Number(before.MaxSizeInMegabytes);
  return html`<form class="card" onSubmit=${save}>
    <div class="fields wide-fields">
      ${settings.map(
        (each) => html`<${Field}
          key=${each.name}
          id=${`set-${each.name}`}
          label=${each.label}
          kind=${each.kind}
          choices=${each.choices}
          help=${each.name === "MaxSizeInMegabytes" && row.fragments > 1
            ? `${each.help} ${size} MB × ${row.fragments} = ${(size * row.fragments) / 1024} GB in all.`
            : each.help}
          fixed=${each.fixed || !isMine}
          value=${each.kind === "flag" ? values[each.name] === "true" : (values[each.name] ?? "")}
          onChange=${(value) => setValues({ ...values, [each.name]: String(value) })}
          fault=${fault.name === each.name ? fault.sentence : ""}
        />`,
      )}
    </div>
    ${fault.sentence && !fault.name && html`<p class="fault" role="alert">${fault.sentence}</p>`}
    <p class="help">
      Created ${timeText(before.CreatedAt)}, changed ${timeText(before.UpdatedAt)}, last used ${timeText(before.AccessedAt)}.
      What is greyed was decided when it was created${isMine ? "" : ", or needs a key with Manage"}.
    </p>
    ${isMine &&
    html`<div class="dialog-foot">
      <button type="button" disabled=${!changed.length} onClick=${() => setValues({ ...values, ...before })}>Undo</button>
      <button type="submit" class="main" disabled=${!changed.length || isBusy}>Save ${changed.length || ""}</button>
    </div>`}
  </form>`;
}
