/**
 * A table of any length: only the rows that can be seen are in the document. All rows have one height, so where a row
 * is follows from its number. Arrow keys move, Enter opens.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

/** The height of a row. */
export const ROW_PIXELS = 36;
/** Drawn beyond what is seen, so that scrolling shows no gap. */
const BEYOND = 6;

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {(row: Row) => unknown} cell
 * @property {boolean} [number] to the right
 * @property {string} [look] a class: `wide` takes what is left; `late` goes first on a narrow screen
 * @property {boolean} [sorts]
 */

/**
 * @template Row
 * @param {object} props
 * @param {string} props.label
 * @param {Column<Row>[]} props.columns
 * @param {Row[]} props.rows
 * @param {(row: Row) => string} props.keyOf
 * @param {{ name: string, down: boolean }} [props.sorted]
 * @param {(name: string) => void} [props.onSort]
 * @param {(row: Row) => void} props.onOpen
 * @param {unknown} [props.empty]
 * @param {string} [props.look]
 */
export function Grid({ label, columns, rows, keyOf, sorted, onSort, onOpen, empty, look = "" }) {
  const body = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [at, setAt] = useState(0);

  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    watcher.observe(body.current);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    if (at >= rows.length) setAt(Math.max(0, rows.length - 1));
  }, [rows.length]);

  const first = Math.max(0, Math.floor(top / ROW_PIXELS) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW_PIXELS) + BEYOND);
  const move = (to) => {
    const next = Math.min(rows.length - 1, Math.max(0, to));
    setAt(next);
    const place = next * ROW_PIXELS;
    const box = body.current;
    if (place < box.scrollTop) box.scrollTop = place;
    else if (place + ROW_PIXELS > box.scrollTop + box.clientHeight) {
      box.scrollTop = place + ROW_PIXELS - box.clientHeight;
    }
  };
  const pressed = (event) => {
    const page = Math.max(1, Math.floor(height / ROW_PIXELS) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    if (event.key in steps) {
      event.preventDefault();
      move(at + steps[event.key]);
    } else if (event.key === "Enter" && rows[at] && event.target === body.current) {
      onOpen(rows[at]);
    }
  };

  return html`<div class="grid ${look}" role="table" aria-label=${label} aria-rowcount=${rows.length + 1}>
    <div class="grid-head" role="row" aria-rowindex="1">
      ${columns.map((column) => head(column, sorted, onSort))}
    </div>
    <div
      class="grid-body"
      style=${{ "--rows": Math.max(rows.length, 4) }}
      role="rowgroup"
      tabindex="0"
      aria-label=${`${label}: arrow keys move, Enter opens`}
      ref=${body}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown=${pressed}
    >
      <div class="grid-space" style=${{ height: `${rows.length * ROW_PIXELS}px` }} role="presentation">
        ${rows.slice(first, last).map((row, n) => {
          const place = first + n;
          return html`<div
            class="grid-row ${place === at ? "at" : ""}"
            role="row"
            aria-rowindex=${place + 2}
            key=${keyOf(row)}
            style=${{ transform: `translateY(${place * ROW_PIXELS}px)` }}
            onClick=${() => {
              setAt(place);
              onOpen(row);
            }}
          >
            ${columns.map(
              (column) => html`<div role="cell" class="cell ${column.number ? "num" : ""} ${column.look ?? ""}">
                ${column.cell(row)}
              </div>`,
            )}
          </div>`;
        })}
      </div>
      ${rows.length === 0 && html`<div class="grid-empty" role="row"><div role="cell">${empty}</div></div>`}
    </div>
  </div>`;
}

function head(column, sorted, onSort) {
  const isSorted = sorted?.name === column.name;
  const direction = isSorted ? (sorted.down ? "descending" : "ascending") : "none";
  const mark = isSorted ? (sorted.down ? " ↓" : " ↑") : "";
  const title = html`<span>${column.title}</span><span aria-hidden="true">${mark}</span>`;
  return html`<div
    role="columnheader"
    class="cell ${column.number ? "num" : ""} ${column.look ?? ""}"
    aria-sort=${column.sorts ? direction : undefined}
  >
    ${column.sorts ? html`<button type="button" onClick=${() => onSort(column.name)}>${title}</button>` : title}
  </div>`;
}
