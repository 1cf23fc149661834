/** A field of a form with its name, its help, and what is wrong with it. */
import { html } from "./html.js";

/**
 * @typedef {object} FieldProps
 * @property {string} id
 * @property {string} label
 * @property {string | boolean} value
 * @property {(value: any) => void} onChange
 * @property {string} [help]
 * @property {string} [fault]
 * @property {"text" | "number" | "area" | "flag" | "choice" | "password" | "datetime-local"} [kind]
 * @property {[string, string][]} [choices] value and words
 * @property {boolean} [fixed] it cannot be changed any more
 * @property {string} [placeholder]
 * @property {number} [rows]
 */

/** @param {FieldProps} props */
export function Field(props) {
  const { id, label, value, help, fault, kind = "text", fixed } = props;
  const described = [help && `${id}-help`, fault && `${id}-fault`].filter(Boolean).join(" ");
  const shared = {
    id,
    disabled: fixed,
    "aria-describedby": described || undefined,
    "aria-invalid": fault ? "true" : undefined,
  };
  const notes = html`${help && html`<p class="help" id="${id}-help">${help}</p>`}
  ${fault && html`<p class="fault" id="${id}-fault" role="alert">${fault}</p>`}`;
  if (kind === "flag") {
    return html`<div class="field">
      <label class="tick" for=${id}>
        <input
          type="checkbox"
          ...${shared}
          checked=${value === true}
          onChange=${(event) => props.onChange(event.currentTarget.checked)}
        />${label}
      </label>
      ${notes}
    </div>`;
  }
  return html`<div class="field"><label for=${id}>${label}</label>${control(props, shared)}${notes}</div>`;
}

function control({ kind = "text", value, onChange, choices, placeholder, rows = 4 }, shared) {
  const changed = (event) => onChange(event.currentTarget.value);
  if (kind === "area") {
    return html`<textarea
      ...${shared} rows=${rows} spellcheck="false" placeholder=${placeholder} value=${value} onInput=${changed}
    ></textarea>`;
  }
  if (kind === "choice") {
    return html`<select ...${shared} value=${value} onChange=${changed}>
      ${choices.map(([each, words]) => html`<option key=${each} value=${each} selected=${each === value}>${words}</option>`)}
    </select>`;
  }
  const type = kind === "number" ? "text" : kind;
  return html`<input
    ...${shared}
    type=${type}
    inputmode=${kind === "number" ? "numeric" : undefined}
    step=${kind === "datetime-local" ? "1" : undefined}
    autocomplete="off"
    spellcheck="false"
    placeholder=${placeholder}
    value=${value}
    onInput=${changed}
  />`;
}
