/** Messages in, out and dead-lettered over the last hour, as the server remembers them. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { askJson, encodedPath } from "../bus/session.js";
import { Chart } from "../parts/chart.js";
import { html } from "../parts/html.js";
import { shortText } from "../parts/number_text.js";

const EVERY_MS = 10_000;
const SERIES = [
  { name: "In", colour: "--k0" },
  { name: "Out", colour: "--k2" },
  { name: "Dead-lettered", colour: "--k6" },
];

/**
 * @param {{ path?: string, title?: string, series?: { name: string, colour: string }[] }} props `path`: of one entity
 */
export function RatesPlot({ path = "", title = "Messages per second, last hour", series = SERIES }) {
  const [rates, setRates] = useState(null);

  useEffect(() => {
    const stopping = new AbortController();
    const look = async () => {
      if (document.hidden) return;
      try {
        const target = path ? `/$rates/${encodedPath(path)}` : "/$rates";
        setRates(await askJson("GET", target, { signal: stopping.signal }));
      } catch {
        // The next look tells; the state of the connection is shown elsewhere.
      }
    };
    look();
    const timer = setInterval(look, EVERY_MS);
    return () => {
      stopping.abort();
      clearInterval(timer);
    };
  }, [path]);

  const data = useMemo(() => (rates ? dataOf(rates) : null), [rates]);
  return html`<section class="card plot">
    <h2>${title}</h2>
    ${data
      ? html`<${Chart} label=${title} series=${series} data=${data} text=${shortText} />`
      : html`<div class="waiting" role="status">Loading…</div>`}
  </section>`;
}

function dataOf(rates) {
  const step = rates.stepSeconds;
  const end = Math.floor(Date.now() / 1000 / step) * step;
  const count = rates.in.length;
  const times = Array.from({ length: count }, (_none, n) => end - (count - 1 - n) * step);
  return [times, ...["in", "out", "deadLettered"].map((name) => rates[name].map((value) => value / step))];
}
