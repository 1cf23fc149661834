/** Every entity in one table: filtered, sorted, of any number. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { allEntities, entities, isComplete } from "../bus/entities.js";
import { Grid } from "../parts/grid.js";
import { html } from "../parts/html.js";
import { Icon } from "../parts/icons.js";
import { wholeText } from "../parts/number_text.js";
import { useStore } from "../parts/store.js";
import { goTo } from "../routes.js";
import { ENTITY_COLUMNS, KINDS } from "./entity_columns.js";

const collator = new Intl.Collator("en", { numeric: true });

/** Columns of numbers begin with the largest. */
const BEGINS_UP = new Set(["path", "kind", "status"]);

function compared(name, down) {
  const sign = down ? -1 : 1;
  const byPath = (a, b) => collator.compare(a.path, b.path);
  if (name === "path") return (a, b) => sign * byPath(a, b);
  if (BEGINS_UP.has(name)) return (a, b) => sign * a[name].localeCompare(b[name]) || byPath(a, b);
  return (a, b) => sign * ((a[name] ?? -1) - (b[name] ?? -1)) || byPath(a, b);
}

/**
 * `kinds`: only these; `below`: of a topic.
 * @param {{ kinds?: string[], title?: string, below?: string, more?: unknown }} props
 */
export function EntityGrid({ kinds, title = "Entities", below = "", more }) {
  const version = useStore(entities);
  const hasAll = useStore(isComplete);
  const [words, setWords] = useState("");
  const [kind, setKind] = useState("all");
  const [onlyDead, setOnlyDead] = useState(false);
  const [sorted, setSorted] = useState({ name: "path", down: false });
  const field = useRef(null);

  useEffect(() => {
    const pressed = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^(input|textarea|select)$/i.test(event.target.tagName)) return;
      event.preventDefault();
      field.current?.focus();
      field.current?.select();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);

  const rows = useMemo(() => {
    const wanted = words.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const prefix = below ? `${below.toLowerCase()}/subscriptions/` : "";
    const found = [];
    for (const row of allEntities().values()) {
      if (kinds && !kinds.includes(row.kind)) continue;
      if (kind !== "all" && row.kind !== kind) continue;
      if (prefix && !row.lower.startsWith(prefix)) continue;
      if (onlyDead && !(row.dead > 0 || row.transferDead > 0)) continue;
      if (wanted.every((word) => row.lower.includes(word))) found.push(row);
    }
    return found.sort(compared(sorted.name, sorted.down));
  }, [version, words, kind, onlyDead, sorted, below]);

  const sort = (name) =>
    setSorted((now) => ({ name, down: now.name === name ? !now.down : !BEGINS_UP.has(name) }));
  const choices = kinds ? [] : ["all", ...Object.keys(KINDS)];
  const empty = !hasAll
    ? "Loading…"
    : words || onlyDead || kind !== "all"
      ? "Nothing here fits the filter."
      : "There is nothing yet.";

  return html`<section class="card entities">
    <div class="bar">
      <h2>${title} <span class="soft">${wholeText(rows.length)}</span></h2>
      <label class="search">
        <${Icon} name="search" />
        <span class="for-readers">Filter by name</span>
        <input
          ref=${field}
          type="search"
          placeholder="Filter by name   /"
          value=${words}
          onInput=${(event) => setWords(event.currentTarget.value)}
          onKeyDown=${(event) => {
            if (event.key === "Escape") setWords("");
            if (event.key === "Enter" && rows.length > 0) goTo("entity", rows[0].path);
          }}
        />
      </label>
      ${choices.length > 0 &&
      html`<div class="choices" role="group" aria-label="Kind">
        ${choices.map(
          (each) => html`<button
            type="button"
            key=${each}
            aria-pressed=${kind === each ? "true" : "false"}
            onClick=${() => setKind(each)}
          >
            ${each === "all" ? "All" : `${KINDS[each]}s`}
          </button>`,
        )}
      </div>`}
      <label class="tick">
        <input type="checkbox" checked=${onlyDead} onChange=${() => setOnlyDead(!onlyDead)} />
        With dead letters
      </label>
      ${more}
    </div>
    <${Grid}
      label=${title}
      columns=${ENTITY_COLUMNS}
      rows=${rows}
      keyOf=${(row) => row.path}
      sorted=${sorted}
      onSort=${sort}
      onOpen=${(row) => goTo("entity", row.path)}
      empty=${empty}
    />
  </section>`;
}
