/** The beginning: who is signed in, and which page is shown. */
import { render } from "preact";
import { session } from "./bus/session.js";
import { Frame } from "./frame.js";
import { html } from "./parts/html.js";
import "./parts/theme.js";
import { useStore } from "./parts/store.js";
import { signInByCode } from "./sign_in/one_time_code.js";
import { SignIn } from "./sign_in/sign_in.js";

function App() {
  return useStore(session) ? html`<${Frame} />` : html`<${SignIn} />`;
}

await signInByCode();
render(html`<${App} />`, document.getElementById("console"));
addEventListener("hashchange", () => signInByCode());
