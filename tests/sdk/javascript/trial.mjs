// Runs named operations against the bus and prints a line of JSON for each.
//
// Where the bus is comes from the environment: BUSWAY_CONNECTION_STRING and BUSWAY_MODE, which is `loopback` (the emulator's
// switch is in the string), `tls` or `websocket`; trust from NODE_EXTRA_CA_CERTS. Of the last two the string names no port,
// as when the usual ones are served; BUSWAY_ADDRESS is where it listens in fact. Entities are named with BUSWAY_PREFIX.
import { isDeepStrictEqual } from "node:util";
import WebSocket from "ws";

// BUSWAY_ENTITY is one that is there, and the only one: so it is while a conversation is recorded.
const { BUSWAY_ADDRESS: address, BUSWAY_PREFIX: prefix } = process.env;
export const given = process.env.BUSWAY_ENTITY;
const PATIENCE_MS = 45_000;

export const mode = process.env.BUSWAY_MODE;
// These SDKs take a port from the string, with the emulator's switch and without.
export const connectionString = address
  ? process.env.BUSWAY_CONNECTION_STRING.replace("sb://localhost;", `sb://${address};`)
  : process.env.BUSWAY_CONNECTION_STRING;
export const stranger = connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong");
export const transport = mode === "websocket" ? { webSocketOptions: { webSocket: WebSocket } } : {};

const operations = [];

export function operation(name, body) {
  operations.push([name, body]);
}

// Those that are named on the command line, or all. `open` gives each a bench of its own, with `close`.
export async function main(open) {
  const chosen = process.argv.slice(2);
  for (const [name, body] of operations) {
    if (chosen.length > 0 && !chosen.includes(name)) {
      continue;
    }
    const began = performance.now();
    const found = await attempt(given ?? prefix + name, body, open);
    const seconds = (performance.now() - began) / 1000;
    process.stdout.write(JSON.stringify({ operation: name, passed: found === "", found, seconds }) + "\n");
  }
  process.exit(0); // clients that could not be closed do not matter
}

async function attempt(entity, body, open) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, PATIENCE_MS, "it did not end")));
  const work = async () => {
    const bench = open(entity);
    try {
      await body(bench);
      return "";
    } catch (problem) {
      process.stderr.write(`${entity}: ${problem.stack}\n`);
      return String(problem);
    } finally {
      await bench.close().catch(() => {});
    }
  };
  return Promise.race([work(), late]).finally(() => clearTimeout(timer));
}

export function equal(what, found, wanted) {
  if (!isDeepStrictEqual(found, wanted)) {
    throw new Error(`${what} is ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
  }
}

export function holds(what, itIs) {
  if (!itIs) {
    throw new Error(`not so: ${what}`);
  }
}

// An error with those that it is made of.
function allOf(problem) {
  return problem === null ? [] : [problem, ...(problem.errors ?? []).flatMap(allOf)];
}

// The attempt fails, with this code or these words.
export async function fails(words, attempt) {
  let problem = null;
  await attempt().catch((thrown) => (problem = thrown));
  const told = allOf(problem);
  holds(`${words} in: ${told.map((each) => `${each.code} ${each}`)}`, told.some((each) => `${each.code} ${each}`.includes(words)));
  return problem;
}

export async function until(what, itIs) {
  const end = Date.now() + 20_000;
  while (!(await itIs())) {
    holds(`${what}, in time`, Date.now() < end);
    await sleep(20);
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const numbered = (count) => Array.from({ length: count }, (_, number) => String(number));
