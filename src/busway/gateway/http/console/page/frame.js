/** What is around every page: where one is, where one can go, how the connection does. */
import { Component } from "preact";
import { useEffect, useState } from "preact/hooks";
import { disconnect, liveState } from "./bus/live.js";
import { session, signOut } from "./bus/session.js";
import { Overview } from "./overview/overview.js";
import { html } from "./parts/html.js";
import { Icon } from "./parts/icons.js";
import { Notices } from "./parts/notices.js";
import { useStore } from "./parts/store.js";
import { theme, turnTheme } from "./parts/theme.js";
import { addressOf, route } from "./routes.js";

const STATES = {
  live: ["good", "Live"],
  connecting: ["idle", "Connecting…"],
  lost: ["bad", "Connection lost, trying again…"],
  off: ["idle", "Not connected"],
};
const THEMES = { auto: "As the system", light: "Light", dark: "Dark" };

/** Page, title, icon, and the right without which it is not offered. */
const PLACES = [
  ["overview", "Overview", "overview", ""],
  ["stores", "Stores", "store", "Manage"],
  ["pipelines", "Pipelines", "pipeline", "Listen"],
];

/** Loaded when they are first asked for: the first screen does not wait for them. */
const OTHERS = {
  entity: async () => (await import("./entity/entity_page.js")).EntityPage,
  stores: async () => (await import("./stores/stores_page.js")).StoresPage,
  pipelines: async () => (await import("./stores/pipelines_page.js")).PipelinesPage,
};
const loaded = {};

function OtherPage({ page }) {
  const [, redraw] = useState(0);
  const [fault, setFault] = useState("");
  useEffect(() => {
    if (loaded[page]) return;
    OTHERS[page]().then(
      (found) => {
        loaded[page] = found;
        redraw((count) => count + 1);
      },
      () => setFault("This page cannot be loaded: the server is away, or has another version now. A reload helps."),
    );
  }, [page]);
  if (fault) return html`<p class="note" role="alert">${fault}</p>`;
  return loaded[page] ? html`<${loaded[page]} />` : html`<p role="status">Loading…</p>`;
}

/** The page of a route. */
function pageOf({ page }) {
  return OTHERS[page] ? html`<${OtherPage} page=${page} />` : html`<${Overview} />`;
}

/** The frame with the present page in it. */
export function Frame() {
  const who = useStore(session);
  const here = useStore(route);
  const [isOpen, setOpen] = useState(false);
  const leave = () => {
    disconnect();
    signOut();
  };
  if (!who) return null;
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <div class="frame ${isOpen ? "nav-open" : ""}">
      <header class="side">
        <div class="brand">
          <a href=${addressOf("overview")}><span class="mark" aria-hidden="true"></span>Busway</a>
          <button
            type="button"
            class="plain menu-button"
            aria-expanded=${isOpen ? "true" : "false"}
            onClick=${() => setOpen(!isOpen)}
          >
            <${Icon} name="menu" size=${20} /><span class="for-readers">Menu</span>
          </button>
        </div>
        <p class="namespace" title=${who.namespace}>${who.namespace}${who.below && html`<br />${who.below}`}</p>
        <nav aria-label="Pages">
          ${PLACES.filter(([, , , right]) => !right || (who.rights.includes(right) && !who.below)).map(
            ([page, title, icon]) => html`<a
              key=${page}
              href=${addressOf(page)}
              aria-current=${here.page === page ? "page" : undefined}
              onClick=${() => setOpen(false)}
            >
              <${Icon} name=${icon} />${title}
            </a>`,
          )}
        </nav>
        <div class="foot">
          <${LiveState} />
          <${ThemeButton} />
          <button type="button" class="plain" onClick=${leave}><${Icon} name="out" />Sign out</button>
          <p class="soft">Busway ${who.version}${who.mode === "read-only" ? " · read-only" : ""}</p>
        </div>
      </header>
      <main id="main" tabindex="-1">
        <${Guard} key=${`${here.page}/${here.path}`}>${pageOf(here)}<//>
      </main>
    </div>
    <${Notices} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function LiveState() {
  const [look, words] = STATES[useStore(liveState)];
  return html`<p class="live-state" role="status"><span class="dot ${look}" aria-hidden="true"></span>${words}</p>`;
}

function ThemeButton() {
  const now = useStore(theme);
  return html`<button type="button" class="plain" onClick=${turnTheme} title="Light, dark, or as the system has it">
    <${Icon} name="sun" />${THEMES[now]}
  </button>`;
}

/** A page that fails says so; the rest goes on. */
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }

  render() {
    if (!this.state.error) return this.props.children;
    return html`<p class="note" role="alert">
      This page has failed: ${String(this.state.error.message)}. Others still work; a reload begins anew.
    </p>`;
  }
}
