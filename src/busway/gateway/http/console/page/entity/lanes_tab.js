/** The fragments of an entity, drawn as lanes: where each lies, how its store is, how much waits in it and for how long. */
import { useEffect, useState } from "preact/hooks";
import { readFragments, readSessions } from "../bus/atom.js";
import { listMessages } from "../bus/message.js";
import { html } from "../parts/html.js";
import { agoText, bytesText, wholeText } from "../parts/number_text.js";
import { storeLook } from "../overview/stores_strip.js";

const EVERY_MS = 3000;
/** Numbers of a fragment begin with its index. */
const FIRST = 2n ** 48n;

async function oldest(path, index) {
  const from = BigInt(index) * FIRST;
  const told = await listMessages(path, { count: 1, from: from.toString() });
  const found = told.messages[0];
  return found && BigInt(found.Number) / FIRST === BigInt(index) ? found.EnqueuedAtMs : null;
}

/** @param {{ row: import("../bus/entities.js").EntityRow }} props */
export function LanesTab({ row }) {
  const [lanes, setLanes] = useState(null);
  const [ages, setAges] = useState({});
  const [fault, setFault] = useState("");

  useEffect(() => {
    let isOver = false;
    const look = async () => {
      try {
        const found = await readFragments(row.path);
        if (isOver) return;
        setLanes(found);
        setFault("");
        if (row.kind === "topic") return;
        for (const lane of found.filter((each) => each.active > 0)) {
          const at = await oldest(row.path, lane.index);
          if (isOver) return;
          setAges((now) => ({ ...now, [lane.index]: at }));
        }
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
  if (!lanes) return html`<p>Loading…</p>`;
  const deepest = Math.max(1, ...lanes.map((lane) => lane.active + lane.deadLettered + lane.scheduled + lane.deferred));
  return html`<section class="card">
      <h2>${lanes.length === 1 ? "One fragment" : `${lanes.length} lanes`}</h2>
      <div class="lanes" role="table" aria-label="Fragments">
        <div class="lane head" role="row">
          ${["Lane", "Store", "", "Active", "Dead letters", "Oldest", "Size"].map(
            (name) => html`<span role="columnheader">${name || html`<span class="for-readers">Depth</span>`}</span>`,
          )}
        </div>
        ${lanes.map((lane) => laneRow(lane, deepest, ages[lane.index]))}
      </div>
      <p class="help legend">
        <span class="swatch f0"></span>active <span class="swatch f4"></span>scheduled and deferred
        <span class="swatch f6"></span>dead letters
      </p>
    </section>
    <${Sessions} row=${row} />`;
}

function laneRow(lane, deepest, at) {
  const isAway = lane.availability === "Unknown";
  const share = (count) => `${(100 * count) / deepest}%`;
  const other = lane.scheduled + lane.deferred;
  return html`<div class="lane ${isAway ? "away" : ""}" role="row" key=${lane.index}>
    <span role="cell" class="num">${lane.index}</span>
    <span role="cell"><span class="dot ${storeLook(lane.health)}" aria-hidden="true"></span>${" "}
      ${lane.store}${lane.health === "open" ? "" : html` <b class="dead">${lane.health}</b>`}</span>
    <span role="cell" class="depth" aria-label=${isAway ? "unknown" : `${lane.active} active`}>
      ${!isAway &&
      html`<i class="f0" style=${{ width: share(lane.active) }}></i>
        <i class="f4" style=${{ width: share(other) }}></i>
        <i class="f6" style=${{ width: share(lane.deadLettered) }}></i>`}
    </span>
    <span role="cell" class="num">${isAway ? "–" : wholeText(lane.active)}</span>
    <span role="cell" class="num ${lane.deadLettered ? "dead" : ""}">${isAway ? "–" : wholeText(lane.deadLettered)}</span>
    <span role="cell" class="num">${at ? agoText(Date.now() - at) : "–"}</span>
    <span role="cell" class="num">${isAway ? "–" : bytesText(lane.sizeInBytes)}</span>
  </div>`;
}

function Sessions({ row }) {
  const [sessions, setSessions] = useState(null);
  useEffect(() => {
    if (!row.sessions) return;
    readSessions(row.path).then(setSessions, () => setSessions(null)); // it has none
  }, [row.path]);
  if (!sessions?.length) return null;
  return html`<section class="card">
    <h2>Sessions <span class="soft">${sessions.length}${sessions.length === 100 ? " and more" : ""}</span></h2>
    <table>
      <thead><tr><th scope="col">Session</th><th scope="col">Held</th><th scope="col">State</th></tr></thead>
      <tbody>
        ${sessions.map(
          (each) => html`<tr key=${each.id}>
            <td><bdi>${each.id}</bdi></td>
            <td>${each.isLocked ? html`<span class="badge">locked</span>` : html`<span class="soft">free</span>`}</td>
            <td class="mono"><bdi>${each.state === null ? "–" : `${each.state} (${bytesText(each.stateBytes)})`}</bdi></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}
