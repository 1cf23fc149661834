/** Small pictures, drawn with lines in the colour of the text. They say nothing that words beside them do not say. */
import { html } from "./html.js";

const PATHS = {
  overview: "M3 3h7v7H3zM14 3h7v4h-7zM14 11h7v10h-7zM3 14h7v7H3z",
  queue: "M4 6h16M4 12h16M4 18h10",
  topic: "M4 12h6M10 12l8-7M10 12l8 7M10 12h9",
  subscription: "M5 4v10a4 4 0 0 0 4 4h10M15 14l4 4-4 4",
  hub: "M4 6h16M4 12h16M4 18h16M8 4v4M14 10v4M10 16v4",
  store: "M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0",
  pipeline: "M3 12h4l3-7 4 14 3-7h4",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M19 5l-1.5 1.5",
  out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 6h16M4 12h16M4 18h16",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  send: "M3 12l18-8-7 17-3-7z",
  refresh: "M20 12a8 8 0 1 1-3-6M20 3v5h-5",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  warning: "M12 4l9 16H3zM12 10v4M12 17v.5",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  upload: "M12 16V5M7 9l5-5 5 5M4 20h16",
  check: "M5 13l4 4 10-11",
};

/**
 * @param {{ name: keyof typeof PATHS, size?: number }} props
 */
export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}
