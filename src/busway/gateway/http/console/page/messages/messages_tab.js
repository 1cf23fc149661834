/** The messages of an entity, and everything that can be done with them. */
import { useRef, useState } from "preact/hooks";
import { deleteMessages, draftOf, numberOf, receiveNext, resubmit, settle, SUB_QUEUES, wholeMessage } from "../bus/message.js";
import { may, mayChange, session } from "../bus/session.js";
import { Confirm } from "../parts/confirm.js";
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { notify } from "../parts/notices.js";
import { wholeText } from "../parts/number_text.js";
import { importAll, purge, resubmitAll, useWork, WorkBar } from "./bulk_work.js";
import { exportMessages, readMessages } from "./json_lines.js";
import { LockedMessage } from "./locked_message.js";
import { MessageList } from "./message_list.js";
import { MessageView } from "./message_view.js";
import { PurgeForm } from "./purge_form.js";
import { SendForm } from "./send_form.js";

const topOf = (path) => path.replace(/\/subscriptions\/[^/]+$/i, "");

/** @param {{ row: import("../bus/entities.js").EntityRow }} props */
export function MessagesTab({ row }) {
  const [sub, setSub] = useState(row.dead > 0 && row.active === 0 ? "/$DeadLetterQueue" : "");
  const [opened, setOpened] = useState(null);
  const [chosen, setChosen] = useState(new Set());
  const [form, setForm] = useState(null);
  const [locked, setLocked] = useState(null);
  const [version, setVersion] = useState(0);
  const { work, start, stop } = useWork();
  const [looked, setLooked] = useState({ query: {}, messages: [] });
  const file = useRef(null);

  const isTopic = row.kind === "topic";
  const address = row.path + sub;
  const isDead = sub !== "";
  const changes = session.value?.mode !== "read-only";
  const sends = mayChange("Send");
  const listens = may("Listen");
  const again = () => setVersion((now) => now + 1);
  const counts = { "": row.active, "/$DeadLetterQueue": row.dead, "/$Transfer/$DeadLetterQueue": row.transferDead };
  const changeSub = (next) => {
    setSub(next);
    setOpened(null);
    setChosen(new Set());
  };
  const after = async (action, words) => {
    try {
      const told = await action();
      notify(words(told));
      setOpened(null);
      setChosen(new Set());
    } catch (error) {
      notify(error.message, "bad");
    }
    again();
  };
  const remove = (numbers) =>
    setForm({
      kind: "confirm",
      title: numbers.length === 1 ? `Delete message ${numbers[0]}` : `Delete ${wholeText(numbers.length)} messages`,
      words: "Deleted messages cannot be brought back. What somebody has locked stays.",
      action: "Delete",
      run: () => after(() => deleteMessages(address, numbers), (gone) => `${gone.length} of ${numbers.length} deleted.`),
    });
  const sendAgain = (numbers) =>
    after(
      () => resubmit(row.path, numbers),
      (told) => `${told.moved} sent again.${told.failed.length ? ` Not sent: ${told.failed.slice(0, 3).join("; ")}` : ""}`,
    );
  const edit = async (message) => {
    const whole = await wholeMessage(address, numberOf(message));
    setForm({ kind: "send", draft: draftOf(whole), original: { address, message: whole } });
  };
  const receive = async () => {
    try {
      const lock = await receiveNext(address);
      if (!lock) notify("There is no message to receive just now.");
      else setLocked({ lock, message: await wholeMessage(address, lock.number) });
    } catch (error) {
      notify(error.message, "bad");
    }
    again();
  };
  const takeFile = async (event) => {
    const [given] = event.currentTarget.files;
    event.currentTarget.value = "";
    if (!given) return;
    try {
      const drafts = readMessages(await given.text());
      await start("Importing", drafts.length, importAll(row.path, drafts));
      again();
    } catch (error) {
      notify(error.message, "bad");
    }
  };
  const picked = looked.messages.filter((each) => chosen.has(numberOf(each)));

  const tools = html`<div class="bar">
    ${!isTopic &&
    html`<div class="choices" role="group" aria-label="Sub-queue">
      ${Object.entries(SUB_QUEUES)
        .filter(([each]) => !each.includes("Transfer") || row.transferDead > 0)
        .map(
          ([each, name]) => html`<button
            type="button"
            key=${each}
            aria-pressed=${each === sub ? "true" : "false"}
            onClick=${() => changeSub(each)}
          >
            ${name} ${wholeText(counts[each])}
          </button>`,
        )}
    </div>`}
    <div class="actions end">
      ${sends && !isDead && row.kind !== "subscription" &&
      html`<button type="button" class="main" onClick=${() => setForm({ kind: "send" })}>
        <${Icon} name="send" />Send
      </button>`}
      ${changes && listens && !isTopic && html`<button type="button" onClick=${receive}>Receive next</button>`}
      ${chosen.size > 0 && changes &&
      html`<button type="button" class="danger" onClick=${() => remove([...chosen])}>Delete ${chosen.size}</button>`}
      ${chosen.size > 0 && isDead && sends &&
      html`<button type="button" onClick=${() => sendAgain([...chosen])}>Send ${chosen.size} again</button>`}
      ${isDead && sends &&
      html`<button
        type="button"
        onClick=${() =>
          setForm({
            kind: "confirm",
            title: "Send dead letters again",
            words: looked.query.filter
              ? `All dead letters that the filter selects go back to ${topOf(row.path)}, each once.`
              : `All ${wholeText(row.dead)} dead letters go back to ${topOf(row.path)}, each once.`,
            action: "Send again",
            run: () =>
              start("Sending again", row.dead, resubmitAll(row.path, address, looked.query.filter)).then(again),
          })}
      >
        Send all again
      </button>`}
      ${looked.messages.length > 0 &&
      html`<button
        type="button"
        onClick=${() => exportMessages(address, picked.length ? picked : looked.messages)}
      >
        <${Icon} name="download" />Export ${picked.length || looked.messages.length}
      </button>`}
      ${sends && !isDead && row.kind !== "subscription" &&
      html`<button type="button" onClick=${() => file.current.click()}><${Icon} name="upload" />Import</button>
        <input ref=${file} type="file" accept=".jsonl,.json,.txt" hidden aria-label="File to import" onChange=${takeFile} />`}
      ${changes && listens && !isTopic &&
      html`<button type="button" class="danger" onClick=${() => setForm({ kind: "purge" })}>
        <${Icon} name="trash" />Purge
      </button>`}
    </div>
  </div>`;

  const actions = opened && html`${isDead && sends &&
    html`<button type="button" class="main" onClick=${() => sendAgain([numberOf(opened)])}>Send again</button>`}
    ${sends && html`<button type="button" onClick=${() => edit(opened)}><${Icon} name="edit" />Edit and send</button>`}
    <button type="button" onClick=${() => exportMessages(address, [opened])}><${Icon} name="download" />Export</button>
    ${changes && html`<button type="button" class="danger" onClick=${() => remove([numberOf(opened)])}>
      <${Icon} name="trash" />Delete
    </button>`}`;

  return html`${tools}
    <${WorkBar} work=${work} onStop=${stop} />
    ${locked &&
    html`<${LockedMessage}
      address=${address}
      locked=${locked}
      onSettle=${(verb, more, words) => after(() => settle(address, locked.lock, verb, more), () => words).then(() => setLocked(null))}
      onClose=${() => setLocked(null)}
    />`}
    ${isTopic
      ? html`<p class="note">
          A topic keeps no messages for itself: each subscription has its own copy. What was scheduled is here until then.
        </p>`
      : html`<div class=${opened ? "with-view" : ""}>
          <section class="card">
            <${MessageList}
              key=${address}
              address=${address}
              isDead=${isDead}
              isPartitioned=${row.fragments > 1}
              chosen=${chosen}
              onChoose=${setChosen}
              onOpen=${setOpened}
              onLooked=${setLooked}
              version=${version}
            />
          </section>
          ${opened &&
          html`<${MessageView} address=${address} message=${opened} actions=${actions} onClose=${() => setOpened(null)} />`}
        </div>`}
    ${form?.kind === "send" &&
    html`<${SendForm}
      entity=${topOf(row.path)}
      draft=${form.draft}
      original=${form.original}
      onClose=${() => setForm(null)}
      onDone=${again}
    />`}
    ${form?.kind === "purge" &&
    html`<${PurgeForm}
      row=${row}
      onClose=${() => setForm(null)}
      onPurge=${(target, state, total) => start("Deleting", total, purge(target, state)).then(again)}
    />`}
    ${form?.kind === "confirm" &&
    html`<${Confirm} title=${form.title} action=${form.action} onDo=${() => void form.run()} onClose=${() => setForm(null)}>
      <p>${form.words}</p>
    <//>`}`;
}
