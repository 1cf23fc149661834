/** Numbers, sizes and times as people read them; the same as in the pipeline's report. */

const grouped = new Intl.NumberFormat("en");

/**
 * In full, with thousands apart: 12,345.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function wholeText(value) {
  return value === null || value === undefined ? "–" : grouped.format(value);
}

/**
 * Short: 1.2M, 340k, 12.5.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function shortText(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${short(value / unit)}${letter}`;
  }
  return short(value);
}

function short(value) {
  const size = Math.abs(value);
  const digits = size < 0.1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0;
  return String(Number(value.toFixed(digits)));
}

/**
 * @param {number | null | undefined} size
 * @returns {string} 1.5 MiB
 */
export function bytesText(size) {
  if (size === null || size === undefined) return "–";
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (size >= unit) return `${short(size / unit)} ${name}`;
  }
  return `${size} B`;
}

/**
 * Per second.
 * @param {number} value
 * @returns {string}
 */
export function rateText(value) {
  return value ? shortText(value) : "0";
}

/**
 * @param {string | number | null | undefined} instant ISO text or milliseconds
 * @returns {string} local time to the second
 */
export function timeText(instant) {
  if (!instant) return "–";
  const moment = new Date(instant);
  if (Number.isNaN(moment.getTime())) return String(instant);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${day} ${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
}

/**
 * How long ago: 3 min.
 * @param {number} ms
 * @returns {string}
 */
export function agoText(ms) {
  const seconds = Math.max(0, ms / 1000);
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name}`;
  }
  return "just now";
}
