/** What is in a message, as text, as JSON in lines, or as bytes. Only ever as text of this page. */
import { useState } from "preact/hooks";
import { bytesOf } from "../bus/message.js";
import { html } from "../parts/html.js";
import { bytesText } from "../parts/number_text.js";

const HEX_BYTES_MAX = 16 * 1024;
const TEXT_LETTERS_MAX = 300_000;
const WORDS = { json: "JSON", text: "Text", hex: "Bytes" };

function asJson(message) {
  if (message.Body === undefined || message.Body.length > TEXT_LETTERS_MAX) return null;
  if (!/^\s*[[{]/.test(message.Body)) return null;
  try {
    return JSON.stringify(JSON.parse(message.Body), null, 2);
  } catch {
    return null;
  }
}

/**
 * Sixteen bytes in a line: where, in hexadecimal, as letters.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function hexText(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES_MAX); at += 16) {
    const some = [...bytes.subarray(at, at + 16)];
    const hex = some.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = some.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

/** @param {{ message: import("../bus/message.js").Message }} props */
export function BodyView({ message }) {
  const json = asJson(message);
  const isText = message.Body !== undefined;
  const ways = [json !== null && "json", isText && "text", "hex"].filter(Boolean);
  const [chosen, choose] = useState("");
  const way = ways.includes(chosen) ? chosen : ways[0];
  const text = way === "json" ? json : way === "text" ? message.Body : hexText(bytesOf(message));
  const shown = text.slice(0, TEXT_LETTERS_MAX);
  const isCut = shown.length < text.length || (way === "hex" && message.BodyBytes > HEX_BYTES_MAX);
  const kind = { data: "", value: "AMQP value · ", sequence: "AMQP sequence · ", none: "no body · " }[message.BodyKind];
  return html`<section class="body-view">
    <div class="bar">
      <h3>Body <span class="soft">${kind}${bytesText(message.BodyBytes)}</span></h3>
      <div class="choices" role="group" aria-label="Show the body as">
        ${ways.map(
          (each) => html`<button
            type="button"
            key=${each}
            aria-pressed=${each === way ? "true" : "false"}
            onClick=${() => choose(each)}
          >
            ${WORDS[each]}
          </button>`,
        )}
      </div>
    </div>
    <pre tabindex="0" aria-label="Body" dir="auto">${shown || " "}</pre>
    ${isCut && html`<p class="help">Only its beginning is shown. Export the message to have all of it.</p>`}
  </section>`;
}
