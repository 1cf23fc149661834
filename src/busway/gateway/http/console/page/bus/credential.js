/** Who is signed in, as text that somebody pasted: a connection string, a key, or a token. In memory only. */
import { hmacSha256 } from "./sha256.js";

/**
 * @typedef {object} Credential
 * @property {string} below   the entity that it is for; "" is the namespace
 * @property {string} [token] one that was made elsewhere, as it is
 * @property {string} [keyName]
 * @property {string} [key]
 */

/** How long a token counts that the page signs for itself. */
const TOKEN_S = 3600;
/** Of the key that every namespace has. */
export const DEFAULT_KEY_NAME = "RootManageSharedAccessKey";

/**
 * What was pasted. Raises an Error with a sentence.
 * @param {string} text
 * @param {string} keyName for a bare key
 * @returns {Credential}
 */
export function readCredential(text, keyName) {
  const said = text.trim();
  if (!said) throw new Error("Paste a connection string, a key, or a token.");
  if (/^SharedAccessSignature\s/i.test(said)) return { token: said, below: pathOfToken(said) };
  if (!/(^|;)\s*(Endpoint|SharedAccess\w+)\s*=/i.test(said)) {
    if (/\s/.test(said)) throw new Error("This is neither a connection string, nor a key, nor a token.");
    return { keyName: keyName.trim() || DEFAULT_KEY_NAME, key: said, below: "" };
  }
  const parts = new Map(
    said.split(";").filter((part) => part.trim()).map((part) => {
      const at = part.indexOf("=");
      return [part.slice(0, at).trim().toLowerCase(), part.slice(at + 1).trim()];
    }),
  );
  const below = parts.get("entitypath") ?? "";
  const token = parts.get("sharedaccesssignature");
  if (token) return { token, below: below || pathOfToken(token) };
  const key = parts.get("sharedaccesskey");
  const name = parts.get("sharedaccesskeyname");
  if (!key || !name) throw new Error("The connection string lacks SharedAccessKeyName or SharedAccessKey.");
  return { keyName: name, key, below };
}

/** The entity that a token is for, from the address that was signed. */
function pathOfToken(token) {
  const resource = /[ &]sr=([^&]*)/i.exec(token)?.[1] ?? "";
  try {
    const address = decodeURIComponent(resource).replace(/^[a-z][a-z0-9+.-]*:\/\//i, "");
    const at = address.indexOf("/");
    return at < 0 ? "" : decodeURIComponent(address.slice(at + 1)).replace(/\/+$/, "");
  } catch {
    return "";
  }
}

/**
 * A token for the header Authorization, and for the live socket.
 * @param {Credential} credential
 * @param {number} nowMs
 * @returns {string}
 */
export function tokenOf(credential, nowMs = Date.now()) {
  if (credential.token) return credential.token;
  const path = credential.below.split("/").map(encodeURIComponent).join("/");
  const resource = encodeURIComponent(`${location.protocol}//${location.host}/${path}`);
  const expiry = Math.floor(nowMs / 1000) + TOKEN_S;
  const encoder = new TextEncoder();
  const digest = hmacSha256(encoder.encode(credential.key), encoder.encode(`${resource}\n${expiry}`));
  const signature = encodeURIComponent(btoa(String.fromCharCode(...digest)));
  const name = encodeURIComponent(credential.keyName ?? "");
  return `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expiry}&skn=${name}`;
}
