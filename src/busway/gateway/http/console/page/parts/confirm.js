/** Asking before something is destroyed: the words say what is lost, and for many things a name has to be typed. */
import { useState } from "preact/hooks";
import { Dialog } from "./dialog.js";
import { Field } from "./field.js";
import { html } from "./html.js";

/**
 * @param {object} props
 * @param {string} props.title
 * @param {unknown} props.children what happens
 * @param {string} props.action the word on the button
 * @param {string} [props.typed] what has to be typed before
 * @param {() => Promise<void> | void} props.onDo
 * @param {() => void} props.onClose
 */
export function Confirm({ title, children, action, typed, onDo, onClose }) {
  const [said, setSaid] = useState("");
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const act = async (event) => {
    event.preventDefault();
    if (typed && said !== typed) {
      setFault(`Type ${typed} to go on.`);
      return;
    }
    setBusy(true);
    try {
      await onDo();
      onClose();
    } catch (error) {
      setFault(error.message);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${act}>
      <div class="confirm-words">${children}</div>
      ${typed
        ? html`<${Field} id="confirm-typed" label=${`Type ${typed}`} value=${said} onChange=${setSaid} fault=${fault} />`
        : fault && html`<p class="fault" role="alert">${fault}</p>`}
      <div class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="main danger" disabled=${isBusy}>${action}</button>
      </div>
    </form>
  <//>`;
}
