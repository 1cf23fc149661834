/** Lines over time by uPlot, in the colours of the page: the same language as the pipeline's report. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { shortText, timeText } from "./number_text.js";

const DASHES = [[], [6, 3], [2, 2]];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * @param {object} props
 * @param {string} props.label what it shows, for who does not see it
 * @param {{ name: string, colour: string }[]} props.series `colour` is a variable of the page
 * @param {number[][]} props.data seconds since 1970, then the values of each series
 * @param {number} [props.height]
 * @param {(value: number) => string} [props.text]
 */
export function Chart({ label, series, data, height = 190, text = shortText }) {
  const box = useRef(null);
  const plot = useRef(null);

  useLayoutEffect(() => {
    const draw = () => {
      if (!box.current) return;
      plot.current?.destroy();
      plot.current = new globalThis.uPlot(optionsOf(series, box.current.clientWidth, height, text), data, box.current);
    };
    draw();
    const watcher = new ResizeObserver(() => {
      if (plot.current && box.current && box.current.clientWidth !== plot.current.width) {
        plot.current.setSize({ width: box.current.clientWidth, height });
      }
    });
    watcher.observe(box.current);
    addEventListener("busway-theme", draw);
    return () => {
      watcher.disconnect();
      removeEventListener("busway-theme", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [series]);
  useEffect(() => plot.current?.setData(data), [data]);

  const last = data[0].length - 1;
  const said = series.map((each, n) => `${each.name} ${text(data[n + 1][last] ?? 0)}`).join(", ");
  return html`<figure class="chart">
    <div ref=${box} aria-hidden="true"></div>
    <figcaption class="for-readers">${label}. Now: ${said}.</figcaption>
  </figure>`;
}

function optionsOf(series, width, height, text) {
  const ink = colour("--soft");
  const axis = { stroke: ink, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
  const font = "11px system-ui, sans-serif";
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.08)] } },
    axes: [
      { ...axis, font, values: (_plot, ticks) => ticks.map((at) => timeText(at * 1000).slice(11, 16)) },
      { ...axis, font, size: 48, values: (_plot, ticks) => ticks.map(text) },
    ],
    series: [
      { label: "Time", value: (_plot, at) => (at ? timeText(at * 1000).slice(11) : "–") },
      ...series.map((each, n) => ({
        label: each.name,
        stroke: colour(each.colour),
        fill: n === 0 ? `${colour(each.colour)}18` : undefined,
        width: 1.8,
        dash: DASHES[n % DASHES.length],
        points: { show: false },
        value: (_plot, value) => (value === null || value === undefined ? "–" : text(value)),
      })),
    ],
  };
}
