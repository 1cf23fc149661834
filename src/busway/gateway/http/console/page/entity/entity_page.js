/** One entity: its messages, its settings, where it lies, who gets what of it. */
import { useEffect, useState } from "preact/hooks";
import { deleteEntity } from "../bus/atom.js";
import { entities, entityAt, isComplete } from "../bus/entities.js";
import { ask, encodedPath, may, mayChange } from "../bus/session.js";
import { CreateForm } from "../create/create_form.js";
import { MessagesTab } from "../messages/messages_tab.js";
import { EntityGrid } from "../overview/entity_grid.js";
import { KINDS } from "../overview/entity_columns.js";
import { RatesPlot } from "../overview/rates_plot.js";
import { Confirm } from "../parts/confirm.js";
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { notify } from "../parts/notices.js";
import { bytesText, rateText, wholeText } from "../parts/number_text.js";
import { useStore } from "../parts/store.js";
import { addressOf, goTo, route } from "../routes.js";
import { HubTab } from "./hub_tab.js";
import { LanesTab } from "./lanes_tab.js";
import { RulesTab } from "./rules_tab.js";
import { SettingsTab } from "./settings_tab.js";
import { TopicTab } from "./topic_tab.js";

const messages = { id: "messages", title: "Messages", right: "Listen", view: MessagesTab };
const settings = { id: "settings", title: "Settings", right: "Manage", view: SettingsTab };
const lanes = { id: "lanes", title: "Fragments", right: "Manage", view: LanesTab };
const rates = { id: "rates", title: "Throughput", right: "Listen", view: ({ row }) => html`<${RatesPlot} path=${row.path} />` };
const below = {
  id: "subscriptions", title: "Subscriptions", right: "Listen",
  view: ({ row }) => html`<${TopicTab} row=${row} /><${EntityGrid} kinds=${["subscription"]} title="Subscriptions" below=${row.path} />`,
};
const TABS = {
  queue: [messages, settings, lanes, rates],
  topic: [below, messages, settings, lanes, rates],
  subscription: [messages, { id: "rules", title: "Rules", right: "Listen", view: RulesTab }, settings, lanes, rates],
  hub: [{ id: "partitions", title: "Partitions", right: "Manage", view: HubTab }, rates],
};

/** The page at `#/entity/PATH`. */
export function EntityPage() {
  const here = useStore(route);
  useStore(entities);
  const hasAll = useStore(isComplete);
  const [form, setForm] = useState("");
  const row = entityAt(here.path);
  useEffect(() => {
    document.title = `${here.path} – Busway`;
  }, [here.path]);
  if (!row) {
    return html`<p class="note" role="alert">
      ${hasAll ? html`There is no <b><bdi>${here.path}</bdi></b>, or not any more.` : "Loading…"}
      ${" "}<a href=${addressOf("overview")}>All entities</a>
    </p>`;
  }
  const tabs = TABS[row.kind].filter((each) => may(each.right) || may("Manage"));
  const tab = tabs.find((each) => each.id === here.tab) ?? tabs[0];
  const topic = row.kind === "subscription" ? row.path.slice(0, row.lower.indexOf("/subscriptions/")) : "";
  const remove = async () => {
    if (row.kind === "hub") await ask("DELETE", `/$eventhubs/${encodedPath(row.path)}`);
    else await deleteEntity(row.path);
    notify(`${row.path} is deleted.`);
    goTo(topic ? "entity" : "overview", topic);
  };
  return html`<header class="page-head">
      <p class="crumbs">
        <a href=${addressOf("overview")}>Entities</a>${topic && html` › <a href=${addressOf("entity", topic)}>${topic}</a>`}
      </p>
      <span class="kind ${row.kind}"><${Icon} name=${row.kind} size=${22} /></span>
      <h1><bdi>${topic ? row.path.split("/").at(-1) : row.path}</bdi></h1>
      <span class="soft">${KINDS[row.kind]}</span>
      ${row.fragments > 1 && row.kind !== "hub" && html`<span class="chip">partitioned ×${row.fragments}</span>`}
      ${row.status !== "Active" && html`<span class="badge">${row.status}</span>`}
      ${row.availability !== "Available" && html`<span class="badge bad">${row.availability}</span>`}
      <span class="actions">
        ${row.kind === "topic" && mayChange("Manage") &&
        html`<button type="button" onClick=${() => setForm("create")}><${Icon} name="plus" />Subscription</button>`}
        ${mayChange("Manage") &&
        html`<button type="button" class="danger" onClick=${() => setForm("delete")}><${Icon} name="trash" />Delete</button>`}
      </span>
    </header>
    <${Figures} row=${row} />
    <div class="tabs" role="tablist" aria-label="Of this entity">
      ${tabs.map(
        (each) => html`<a
          key=${each.id}
          role="tab"
          href=${addressOf("entity", row.path, each.id)}
          aria-selected=${each === tab ? "true" : "false"}
        >
          ${each.title}
        </a>`,
      )}
    </div>
    ${tab
      ? html`<div role="tabpanel" aria-label=${tab.title} key=${`${row.path} ${tab.id}`}><${tab.view} row=${row} /></div>`
      : html`<p class="note">Your key may not look into this entity.</p>`}
    ${form === "create" && html`<${CreateForm} topic=${row.path} onClose=${() => setForm("")} />`}
    ${form === "delete" &&
    html`<${Confirm}
      title=${`Delete ${row.path}`}
      action="Delete"
      typed=${row.path.split("/").at(-1)}
      onDo=${remove}
      onClose=${() => setForm("")}
    >
      <p>
        ${row.kind === "topic" ? "The topic with all its subscriptions" : `The ${KINDS[row.kind].toLowerCase()}`} and
        everything in it are deleted: ${wholeText((row.active ?? 0) + (row.dead ?? 0))} messages just now. They cannot be
        brought back.
      </p>
    <//>`}`;
}

function Figures({ row }) {
  const isHub = row.kind === "hub";
  const tiles = [
    [wholeText(row.active), isHub ? "events" : "active", ""],
    !isHub && [wholeText(row.dead), "dead letters", row.dead > 0 ? "bad" : ""],
    !isHub && [wholeText(row.scheduled), "scheduled", ""],
    !isHub && [wholeText(row.deferred), "deferred", ""],
    [bytesText(row.bytes), "stored", ""],
    [rateText(row.into), "in per second", ""],
    [rateText(row.out), "out per second", ""],
  ].filter(Boolean);
  return html`<section class="tiles small-tiles" aria-label="Figures">
    ${tiles.map(([value, name, look]) => html`<div class="tile ${look}" key=${name}><b>${value}</b><span>${name}</span></div>`)}
  </section>`;
}
