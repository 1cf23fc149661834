/** XML from the server, read as data. The page's policy lets nothing but this module make a document of a text. */

const policy = globalThis.trustedTypes?.createPolicy("busway-xml", { createHTML: (text) => text });

/**
 * @param {string} text
 * @returns {Document} its root is `parsererror` when the text is no XML
 */
export function parseXml(text) {
  return new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "application/xml");
}

/**
 * The text of the first element below with this name, whatever its prefix.
 * @param {Document | Element} node
 * @param {string} name
 * @returns {string | null}
 */
export function textOf(node, name) {
  return node.getElementsByTagNameNS("*", name)[0]?.textContent ?? null;
}
