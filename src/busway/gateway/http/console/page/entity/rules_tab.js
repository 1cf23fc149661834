/** The rules of a subscription: which messages it gets, and what becomes of them; tried on what is there before saving. */
import { useEffect, useState } from "preact/hooks";
import { deleteRule, putRule, readRules } from "../bus/atom.js";
import { listMessages, numberOf } from "../bus/message.js";
import { may, mayChange } from "../bus/session.js";
import { Confirm } from "../parts/confirm.js";
import { Field } from "../parts/field.js";
import { html } from "../parts/html.js";
import { notify } from "../parts/notices.js";

const TRIED = 100;
const PLACE = /At character (\d+):/;

/** @param {{ row: import("../bus/entities.js").EntityRow }} props */
export function RulesTab({ row }) {
  const [rules, setRules] = useState(null);
  const [fault, setFault] = useState("");
  const [edited, setEdited] = useState(null);
  const [doomed, setDoomed] = useState("");
  const isMine = mayChange("Manage");
  const load = () => readRules(row.path).then(setRules, (error) => setFault(error.message));
  useEffect(() => {
    load();
  }, [row.path]);
  if (fault) return html`<p class="note" role="alert">${fault}</p>`;
  if (!rules) return html`<p>Loading…</p>`;
  return html`<section class="card">
      <div class="bar">
        <h2>Rules <span class="soft">${rules.length}</span></h2>
        ${isMine &&
        html`<button type="button" class="end" onClick=${() => setEdited({ name: "", filter: "", action: "", isNew: true })}>
          Add a rule
        </button>`}
      </div>
      <table class="rules">
        <thead><tr><th scope="col">Name</th><th scope="col">Selects</th><th scope="col">Changes</th><th></th></tr></thead>
        <tbody>
          ${rules.map(
            (rule) => html`<tr key=${rule.name}>
              <td><bdi>${rule.name}</bdi></td>
              <td class="mono">${rule.kind === "sql" ? rule.filter : html`<span class="chip">correlation</span> ${rule.filter}`}</td>
              <td class="mono">${rule.action || "–"}</td>
              <td class="num">
                ${isMine && rule.kind === "sql" &&
                html`<button type="button" onClick=${() => setEdited({ ...rule, isNew: false })}>Edit</button>`}
                ${isMine &&
                html`<button type="button" class="danger" onClick=${() => setDoomed(rule.name)}>Delete</button>`}
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
      ${rules.length === 0 && html`<p class="note">Without a rule no message comes here.</p>`}
    </section>
    ${edited &&
    html`<${RuleForm}
      key=${edited.name}
      row=${row}
      rule=${edited}
      onClose=${() => setEdited(null)}
      onSaved=${() => {
        setEdited(null);
        load();
      }}
    />`}
    ${doomed &&
    html`<${Confirm}
      title=${`Delete the rule ${doomed}`}
      action="Delete"
      onDo=${() => deleteRule(row.path, doomed).then(load)}
      onClose=${() => setDoomed("")}
    >
      <p>Messages that it alone selects do not come here any more. What is there stays.</p>
    <//>`}`;
}

function RuleForm({ row, rule, onClose, onSaved }) {
  const [name, setName] = useState(rule.name);
  const [filter, setFilter] = useState(rule.filter);
  const [action, setAction] = useState(rule.action);
  const [faults, setFaults] = useState({});
  const [trial, setTrial] = useState(null);

  const tried = async () => {
    setTrial(null);
    setFaults({});
    try {
      const all = await listMessages(row.path, { count: TRIED });
      const some = filter.trim() ? await listMessages(row.path, { count: TRIED, filter }) : all;
      const chosen = new Set(some.messages.map(numberOf));
      setTrial(all.messages.map((each) => ({ message: each, isSelected: chosen.has(numberOf(each)) })));
    } catch (error) {
      setFaults({ filter: error.message.replace(/^filter: /, "") });
    }
  };
  useEffect(() => {
    if (!may("Listen")) return undefined;
    const timer = setTimeout(tried, 400);
    return () => clearTimeout(timer);
  }, [filter]);

  const save = async (event) => {
    event.preventDefault();
    if (!name.trim()) {
      setFaults({ name: "A rule needs a name." });
      return;
    }
    try {
      await putRule(row.path, { name, filter: filter.trim() || "1=1", action, kind: "sql" }, rule.isNew);
      notify(`The rule ${name} is saved.`);
      onSaved();
    } catch (error) {
      const isAction = /action/i.test(error.message) && !/filter/i.test(error.message);
      setFaults({ [isAction ? "action" : "filter"]: error.message });
    }
  };
  const selected = trial?.filter((each) => each.isSelected).length ?? 0;
  return html`<form class="card" onSubmit=${save} aria-label="Rule">
    <h2>${rule.isNew ? "A new rule" : `Edit ${rule.name}`}</h2>
    ${rule.isNew && html`<${Field} id="rule-name" label="Name" value=${name} onChange=${setName} fault=${faults.name} />`}
    <${Field}
      id="rule-filter"
      label="Selects messages where"
      kind="area"
      rows=${3}
      placeholder="region = 'north' AND total > 100"
      value=${filter}
      onChange=${setFilter}
      fault=${faults.filter}
    />
    ${faults.filter && html`<${Pointer} text=${filter} fault=${faults.filter} />`}
    <${Field}
      id="rule-action"
      label="Changes them by"
      kind="area"
      rows=${2}
      placeholder="SET priority = 'high'; REMOVE draft"
      value=${action}
      onChange=${setAction}
      fault=${faults.action}
    />
    ${trial &&
    html`<div class="trial" role="status">
      <h3>Of the ${trial.length} messages that lie here it selects ${selected}</h3>
      <ul>
        ${trial.slice(0, 30).map(
          ({ message, isSelected }) => html`<li class=${isSelected ? "" : "soft"} key=${numberOf(message)}>
            <span aria-hidden="true">${isSelected ? "✓" : "·"}</span>
            <span class="for-readers">${isSelected ? "selected" : "not selected"}</span>
            <b>${numberOf(message)}</b> <bdi>${JSON.stringify(message.UserProperties).slice(0, 160)}</bdi>
          </li>`,
        )}
      </ul>
    </div>`}
    <div class="dialog-foot">
      <button type="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class="main">Save</button>
    </div>
  </form>`;
}

/** The text with a mark below the letter that is wrong. */
function Pointer({ text, fault }) {
  const place = Number(PLACE.exec(fault)?.[1] ?? 0) - 1;
  if (place < 0) return null;
  const line = text.slice(0, place).split("\n").length - 1;
  const column = place - (text.lastIndexOf("\n", place - 1) + 1);
  return html`<pre class="pointer" aria-hidden="true">${text.split("\n")[line] ?? ""}\n${" ".repeat(Math.max(0, column))}^</pre>`;
}
