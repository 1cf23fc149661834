/** How pages are written: `html` makes elements of a tagged template. */
import { h } from "preact";
import htm from "htm";

/** @type {(strings: TemplateStringsArray, ...values: unknown[]) => import("preact").VNode} */
export const html = htm.bind(h);
