/** The partitions of an event hub: what lies in each, and who reads it. */
import { useEffect, useState } from "preact/hooks";
import { askJson, encodedPath } from "../bus/session.js";
import { html } from "../parts/html.js";
import { bytesText, wholeText } from "../parts/number_text.js";

const EVERY_MS = 2000;

/** @param {{ row: import("../bus/entities.js").EntityRow }} props */
export function HubTab({ row }) {
  const [told, setTold] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    let isOver = false;
    const look = async () => {
      try {
        const hub = `/$eventhubs/${encodedPath(row.path)}`;
        const found = await Promise.all([askJson("GET", `${hub}/partitions`), askJson("GET", `${hub}/consumergroups`)]);
        if (!isOver) setTold(found);
      } catch (error) {
        if (!isOver) setFault(error.message);
      }
    };
    look();
    const timer = setInterval(look, EVERY_MS);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [row.path]);
  if (fault) return html`<p class="note" role="alert">${fault}</p>`;
  if (!told) return html`<p>Loading…</p>`;
  const [partitions, groups] = told;
  const keys = [...new Set(partitions.flatMap((each) => Object.keys(each)))];
  const shown = (name, value) => {
    if (typeof value !== "number") return String(value ?? "–");
    return /size|bytes/i.test(name) ? bytesText(value) : wholeText(value);
  };
  return html`<section class="card">
      <h2>Partitions <span class="soft">${partitions.length}</span></h2>
      <div class="scroll">
        <table>
          <thead><tr>${keys.map((name) => html`<th scope="col" key=${name}>${words(name)}</th>`)}</tr></thead>
          <tbody>
            ${partitions.map(
              (each, n) => html`<tr key=${n}>${keys.map((name) => html`<td key=${name}>${shown(name, each[name])}</td>`)}</tr>`,
            )}
          </tbody>
        </table>
      </div>
    </section>
    <section class="card">
      <h2>Consumer groups <span class="soft">${groups.length}</span></h2>
      <ul>${groups.map((each, n) => html`<li key=${n}><bdi>${each.Name ?? each.name}</bdi></li>`)}</ul>
    </section>`;
}

const words = (name) => name.replace(/([a-z])([A-Z])/g, "$1 $2").replace(/^./, (letter) => letter.toUpperCase());
