/** The first page: everything that there is, and how it does. */
import { useEffect, useState } from "preact/hooks";
import { allEntities, entities } from "../bus/entities.js";
import { mayChange, session } from "../bus/session.js";
import { CreateForm } from "../create/create_form.js";
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { useStore } from "../parts/store.js";
import { EntityGrid } from "./entity_grid.js";
import { RatesPlot } from "./rates_plot.js";
import { StoresStrip } from "./stores_strip.js";
import { Totals } from "./totals.js";

/** The page at `#/`. */
export function Overview() {
  const who = useStore(session);
  useStore(entities);
  const [isCreating, setCreating] = useState(false);
  useEffect(() => {
    document.title = `${who?.namespace ?? ""} – Busway`;
  }, [who?.namespace]);
  if (!who) return null;
  if (!who.watches) return html`<${SendOnly} />`;
  return html`<${Totals} rows=${allEntities().values()} />
    <div class="side-by-side">
      <${RatesPlot} path=${who.below} />
      ${!who.below && html`<${StoresStrip} />`}
    </div>
    <${EntityGrid}
      more=${mayChange("Manage") && !who.below &&
      html`<button type="button" class="main end" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create</button>`}
    />
    ${isCreating && html`<${CreateForm} onClose=${() => setCreating(false)} />`}`;
}

function SendOnly() {
  return html`<p class="note">
    This key may send and nothing else: it cannot see what there is. Sign in with a key that has Listen or Manage to see
    more.
  </p>`;
}
