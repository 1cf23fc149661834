/** A window over the page: it takes the focus, Escape closes it, and the focus goes back where it was. */
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { Icon } from "./icons.js";

/**
 * @param {object} props
 * @param {string} props.title
 * @param {() => void} props.onClose
 * @param {unknown} props.children
 * @param {boolean} [props.wide]
 */
export function Dialog({ title, onClose, children, wide = false }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog
    ref=${box}
    class=${wide ? "wide-dialog" : ""}
    aria-label=${title}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
  >
    <div class="dialog-head">
      <h2>${title}</h2>
      <button type="button" class="plain" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
    </div>
    ${children}
  </dialog>`;
}
