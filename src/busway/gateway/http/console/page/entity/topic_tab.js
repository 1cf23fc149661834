/** Who gets what: the subscriptions of a topic with what their rules select, as a picture. */
import { useEffect, useState } from "preact/hooks";
import { readRules } from "../bus/atom.js";
import { allEntities, entities } from "../bus/entities.js";
import { html } from "../parts/html.js";
import { wholeText } from "../parts/number_text.js";
import { useStore } from "../parts/store.js";
import { addressOf } from "../routes.js";

/** Subscriptions whose rules are asked for: the picture is for people. */
const DRAWN_MAX = 60;

/** @param {{ row: import("../bus/entities.js").EntityRow }} props */
export function TopicTab({ row }) {
  useStore(entities);
  const prefix = `${row.lower}/subscriptions/`;
  const below = [...allEntities().values()].filter((each) => each.lower.startsWith(prefix));
  const [rules, setRules] = useState({});
  const names = below.map((each) => each.path).join("\n");
  useEffect(() => {
    let isOver = false;
    (async () => {
      for (const each of below.slice(0, DRAWN_MAX)) {
        const found = await readRules(each.path).catch(() => []);
        if (isOver) return;
        setRules((now) => ({ ...now, [each.path]: found }));
      }
    })();
    return () => {
      isOver = true;
    };
  }, [names]);
  if (!below.length) return html`<p class="note">Nobody gets anything: the topic has no subscription yet.</p>`;
  return html`<section class="card">
    <h2>Who gets what</h2>
    <div class="flow">
      <div class="flow-from"><span class="kind topic"></span><b><bdi>${row.path}</bdi></b></div>
      <ul>
        ${below.slice(0, DRAWN_MAX).map(
          (each) => html`<li key=${each.path}>
            <div class="flow-rules">
              ${(rules[each.path] ?? []).map(
                (rule) => html`<code title=${rule.name}>${rule.filter}</code>
                  ${rule.action && html`<code class="soft">→ ${rule.action}</code>`}`,
              )}
              ${rules[each.path]?.length === 0 && html`<span class="soft">no rule: nothing</span>`}
            </div>
            <a class="flow-to" href=${addressOf("entity", each.path)}>
              <bdi>${each.path.slice(prefix.length)}</bdi>
              <span class="num">${wholeText(each.active)}</span>
              ${each.dead > 0 && html`<span class="dead num">${wholeText(each.dead)}</span>`}
            </a>
          </li>`,
        )}
      </ul>
    </div>
    ${below.length > DRAWN_MAX && html`<p class="help">${DRAWN_MAX} of ${below.length} are drawn.</p>`}
  </section>`;
}
