/** Where somebody says who they are. Nothing of it leaves the page's memory but signatures. */
import { useEffect, useState } from "preact/hooks";
import { DEFAULT_KEY_NAME, readCredential } from "../bus/credential.js";
import { connect } from "../bus/live.js";
import { farewell } from "../bus/session.js";
import { html } from "../parts/html.js";
import { useStore } from "../parts/store.js";

const looksLikeKey = (text) => text.trim() !== "" && !/[;\s]/.test(text.trim());

/** The whole screen before somebody is signed in. */
export function SignIn() {
  const why = useStore(farewell);
  const [text, setText] = useState("");
  const [keyName, setKeyName] = useState(DEFAULT_KEY_NAME);
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);

  const enter = async (event) => {
    event?.preventDefault();
    setFault("");
    setBusy(true);
    try {
      const credential = readCredential(text, keyName);
      farewell.set("");
      await connect(credential);
    } catch (error) {
      setFault(error.message);
      setBusy(false);
    }
  };

  useEffect(() => {
    document.title = "Sign in – Busway";
  }, []);

  return html`<main class="sign-in">
    <form class="card" onSubmit=${enter} autocomplete="off">
      <h1><span class="mark" aria-hidden="true"></span>Busway</h1>
      <p class="sub">Sign in to <b>${location.host}</b></p>
      ${why && html`<p class="note" role="alert">${why}</p>`}
      <label for="credential">Connection string, key, or token</label>
      <textarea
        id="credential"
        rows="4"
        spellcheck="false"
        autocomplete="off"
        autofocus
        placeholder="Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…"
        aria-describedby="credential-help ${fault ? "credential-fault" : ""}"
        aria-invalid=${fault ? "true" : "false"}
        value=${text}
        onInput=${(event) => setText(event.currentTarget.value)}
        onKeyDown=${(event) => event.key === "Enter" && !event.shiftKey && enter(event)}
      ></textarea>
      ${looksLikeKey(text) &&
      html`<label for="key-name">Name of the key</label>
        <input id="key-name" value=${keyName} onInput=${(event) => setKeyName(event.currentTarget.value)} />`}
      ${fault && html`<p class="fault" id="credential-fault" role="alert">${fault}</p>`}
      <button class="main" type="submit" disabled=${isBusy}>${isBusy ? "Signing in…" : "Sign in"}</button>
      <p class="help" id="credential-help">
        <code>busway connection-string</code> prints it; <code>busway console</code> signs in by itself. It stays in the
        memory of this page: a reload asks again.
      </p>
    </form>
  </main>`;
}
