/** What can be set of an entity: its words, its help, its limits. */

const LOCK = "How long a received message is held before it comes back: PT5S to PT5M.";
const TTL = "Messages without a time of their own live so long, such as P14D. Empty: for ever.";
const IDLE = "The entity is deleted when nobody has used it for so long, from PT5M. Empty: never.";
const SIZE = "Megabytes; of a partitioned entity each of its fragments may have so many.";

/**
 * @typedef {object} Setting
 * @property {string} name as the management routes call it
 * @property {string} label
 * @property {string} help
 * @property {"text" | "number" | "flag" | "choice"} kind
 * @property {string[]} of kinds of entities
 * @property {boolean} [fixed] decided at its creation
 * @property {[string, string][]} [choices]
 */

const all = ["queue", "topic", "subscription"];
const receivable = ["queue", "subscription"];
const top = ["queue", "topic"];

/** @type {Setting[]} */
export const SETTINGS = [
  {
    name: "EnablePartitioning", label: "Partitioned", kind: "flag", of: top, fixed: true,
    help: "Spread over sixteen fragments on all stores: more throughput, and one store that is away does not stop it.",
  },
  { name: "RequiresSession", label: "Sessions", kind: "flag", of: receivable, fixed: true,
    help: "Messages of one session are received in order, by one receiver at a time." },
  { name: "RequiresDuplicateDetection", label: "Duplicate detection", kind: "flag", of: top, fixed: true,
    help: "A second message with an id that came shortly before is dropped." },
  { name: "Status", label: "Status", kind: "choice", of: all, help: "What is allowed just now; messages stay.",
    choices: [["Active", "Active"], ["SendDisabled", "No sending"], ["ReceiveDisabled", "No receiving"], ["Disabled", "Disabled"]] },
  { name: "MaxSizeInMegabytes", label: "Maximum size", kind: "number", of: top, help: SIZE },
  { name: "LockDuration", label: "Lock duration", kind: "text", of: receivable, help: LOCK },
  { name: "MaxDeliveryCount", label: "Maximum deliveries", kind: "number", of: receivable,
    help: "After so many deliveries without success a message becomes a dead letter: 1 to 2,000." },
  { name: "DefaultMessageTimeToLive", label: "Time to live", kind: "text", of: all, help: TTL },
  { name: "DeadLetteringOnMessageExpiration", label: "Expired messages become dead letters", kind: "flag", of: receivable,
    help: "Else they are gone." },
  { name: "DeadLetteringOnFilterEvaluationExceptions", label: "Failed rules make dead letters", kind: "flag",
    of: ["subscription"], help: "Else the message is not selected." },
  { name: "DuplicateDetectionHistoryTimeWindow", label: "Duplicates are known for", kind: "text", of: top,
    help: "PT20S to P7D." },
  { name: "AutoDeleteOnIdle", label: "Deleted when unused for", kind: "text", of: all, help: IDLE },
  { name: "ForwardTo", label: "Forward to", kind: "text", of: receivable, help: "Another queue or topic, to which all messages go on." },
  { name: "ForwardDeadLetteredMessagesTo", label: "Forward dead letters to", kind: "text", of: receivable,
    help: "Another queue or topic." },
  { name: "UserMetadata", label: "Notes", kind: "text", of: all, help: "For people: up to 1,024 letters." },
];

/** Durations that mean for ever, as the service writes them. */
const FOR_EVER = /^P(10675199D|106751\d\dD)/;

/** @param {string | undefined} value @returns {string} for a field: nothing where there is no end */
export const shownValue = (value) => (value === undefined || FOR_EVER.test(value) ? "" : value);

/**
 * The setting that a refusal speaks of.
 * @param {string} sentence
 * @returns {string} its name, or ""
 */
export function settingIn(sentence) {
  return SETTINGS.find(({ name }) => sentence.includes(name))?.name ?? "";
}
