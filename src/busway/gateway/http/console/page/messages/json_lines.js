/** Messages in a file, one JSON object in each line: written, and read again. */
import { bytesOfBase64, draftOf, wholeMessage, numberOf } from "../bus/message.js";

/**
 * Puts them into a file of the browser's, with their whole bodies.
 * @param {string} address
 * @param {import("../bus/message.js").Message[]} messages
 */
export async function exportMessages(address, messages) {
  const lines = [];
  for (const message of messages) {
    const isWhole = message.BodyBase64 === undefined && new Blob([message.Body ?? ""]).size >= message.BodyBytes;
    lines.push(JSON.stringify(isWhole ? message : await wholeMessage(address, numberOf(message))));
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "application/jsonl" }));
  link.download = `${address.replace(/[^\w.-]+/g, "-")}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * What a file says, as messages to send. Raises an Error that names the line.
 * @param {string} text
 * @returns {import("../bus/message.js").Draft[]}
 */
export function readMessages(text) {
  const drafts = [];
  text.split("\n").forEach((line, n) => {
    if (!line.trim()) return;
    try {
      const said = JSON.parse(line);
      const draft = draftOf({ BrokerProperties: {}, UserProperties: {}, ...said });
      if (said.BodyBase64 !== undefined) draft.bytes = bytesOfBase64(said.BodyBase64);
      drafts.push(draft);
    } catch (error) {
      throw new Error(`Line ${n + 1} is no message: ${error.message}`);
    }
  });
  return drafts;
}
