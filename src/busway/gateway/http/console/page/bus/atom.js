/** Queues, topics, subscriptions and rules as the management routes speak of them: XML, read and written. */
import { ask, askJson, encodedPath } from "./session.js";
import { parseXml } from "./xml.js";

const CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
const INSTANCE = "http://www.w3.org/2001/XMLSchema-instance";
const VERSION = "api-version=2021-05";
/** In the order in which the service writes them. */
const ELEMENTS = { queue: "QueueDescription", topic: "TopicDescription", subscription: "SubscriptionDescription" };

const escaped = (text) =>
  String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

function entryOf(content) {
  return `<?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom">
<content type="application/xml">${content}</content></entry>`;
}

const sent = (content, headers = {}) => ({
  body: entryOf(content),
  headers: { "Content-Type": "application/atom+xml;type=entry;charset=utf-8", ...headers },
});

/**
 * An entity's description, as it is.
 * @param {string} path
 * @returns {Promise<{ values: Record<string, string>, element: Element }>}
 */
export async function readEntity(path) {
  const document = parseXml(await (await ask("GET", `/${encodedPath(path)}?${VERSION}`)).text());
  const element = Object.values(ELEMENTS)
    .map((name) => document.getElementsByTagNameNS("*", name)[0])
    .find(Boolean);
  if (!element) throw new Error(`There is no entity ${path} any more.`);
  const values = Object.fromEntries([...element.children].map((child) => [child.localName, child.textContent]));
  return { values, element };
}

/**
 * The same with some values changed; what is not named stays as it is.
 * @param {string} path
 * @param {Record<string, string>} changes
 */
export async function changeEntity(path, changes) {
  const { element } = await readEntity(path);
  for (const [name, value] of Object.entries(changes)) {
    const known = [...element.children].find((child) => child.localName === name);
    if (known && value === "") known.remove();
    else if (known) known.textContent = value;
    else if (value !== "") {
      const added = element.ownerDocument.createElementNS(CONNECT, name);
      added.textContent = value;
      element.append(added);
    }
  }
  const content = new XMLSerializer().serializeToString(element);
  await ask("PUT", `/${encodedPath(path)}?${VERSION}`, sent(content, { "If-Match": "*" }));
}

/**
 * @param {"queue" | "topic" | "subscription"} kind
 * @param {string} path
 * @param {Record<string, string>} values
 */
export async function createEntity(kind, path, values) {
  const inside = Object.entries(values).map(([name, value]) => `<${name}>${escaped(value)}</${name}>`);
  const content = `<${ELEMENTS[kind]} xmlns="${CONNECT}" xmlns:i="${INSTANCE}">${inside.join("")}</${ELEMENTS[kind]}>`;
  await ask("PUT", `/${encodedPath(path)}?${VERSION}`, sent(content));
}

/** @param {string} path */
export async function deleteEntity(path) {
  await ask("DELETE", `/${encodedPath(path)}?${VERSION}`);
}

/**
 * @typedef {{ name: string, kind: "sql" | "correlation", filter: string, action: string }} BusRule
 */

/** @param {string} subscription @returns {Promise<BusRule[]>} */
export async function readRules(subscription) {
  const found = [];
  for (let skip = 0; ; skip += 100) {
    const target = `/${encodedPath(subscription)}/rules?${VERSION}&$skip=${skip}&$top=100`;
    const document = parseXml(await (await ask("GET", target)).text());
    const rules = [...document.getElementsByTagNameNS("*", "RuleDescription")];
    found.push(...rules.map(ruleOf));
    if (rules.length < 100) return found;
  }
}

/** @param {Element} element @returns {BusRule} */
function ruleOf(element) {
  const child = (name) => [...element.children].find((each) => each.localName === name);
  const filter = child("Filter");
  const type = filter?.getAttributeNS(INSTANCE, "type") ?? "";
  const action = child("Action")?.getElementsByTagNameNS("*", "SqlExpression")[0]?.textContent ?? "";
  const name = child("Name")?.textContent ?? "";
  if (!type.endsWith("CorrelationFilter")) {
    return { name, kind: "sql", filter: filter?.getElementsByTagNameNS("*", "SqlExpression")[0]?.textContent ?? "", action };
  }
  const conditions = [...filter.children]
    .filter((each) => each.localName !== "Properties")
    .map((each) => `${each.localName} = ${each.textContent}`);
  for (const pair of filter.getElementsByTagNameNS("*", "KeyValueOfstringanyType")) {
    conditions.push(`${pair.children[0].textContent} = ${pair.children[1].textContent}`);
  }
  return { name, kind: "correlation", filter: conditions.join(", "), action };
}

/**
 * @param {string} subscription
 * @param {BusRule} rule a SQL one
 * @param {boolean} isNew
 */
export async function putRule(subscription, rule, isNew) {
  const action = rule.action.trim()
    ? `<Action i:type="SqlRuleAction"><SqlExpression>${escaped(rule.action)}</SqlExpression></Action>`
    : '<Action i:type="EmptyRuleAction"/>';
  const content = `<RuleDescription xmlns="${CONNECT}" xmlns:i="${INSTANCE}"><Filter i:type="SqlFilter"><SqlExpression>${
    escaped(rule.filter)}</SqlExpression></Filter>${action}<Name>${escaped(rule.name)}</Name></RuleDescription>`;
  const target = `/${encodedPath(subscription)}/rules/${encodeURIComponent(rule.name)}?${VERSION}`;
  await ask("PUT", target, sent(content, isNew ? {} : { "If-Match": "*" }));
}

/** @param {string} subscription @param {string} name */
export async function deleteRule(subscription, name) {
  await ask("DELETE", `/${encodedPath(subscription)}/rules/${encodeURIComponent(name)}?${VERSION}`);
}

/** @param {string} path @returns {Promise<any[]>} where each fragment lies and what it holds */
export const readFragments = (path) => askJson("GET", `/$fragments/${encodedPath(path)}`);

/** @param {string} path @returns {Promise<any[]>} */
export const readSessions = (path) => askJson("GET", `/${encodedPath(path)}/$sessions?top=100`);
