// Transactions with rhea, an AMQP 1.0 client that has no words for them: a control link and delivery states made by hand.
// rhea writes no state on transfers, so only what is settled takes part.
import rhea from "rhea";
import { connectionString, main } from "./program.mjs";

const { types } = rhea;
const COORDINATOR = 0x30;
const TRANSACTIONAL = 0x34;
const ACCEPTED = 0x24;

const parts = Object.fromEntries(
  connectionString.split(";").map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]),
);
const endpoint = new URL(parts.Endpoint.replace("sb:", "http:"));
const described = (code, ...fields) => types.described(types.wrap_ulong(code), types.wrap_list(fields));
// Encoded by hand: rhea cannot put a described value into the body of a message.
const request = (code, ...list) => Buffer.from([0, 0x53, 0x77, 0, 0x53, code, ...list]);
const declare = () => request(0x31, 0x45);
const discharge = (id, fail) => request(0x32, 0xc0, id.length + 4, 2, 0xa0, id.length, ...id, fail ? 0x41 : 0x42);
const once = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));

// rhea complains of terminuses and states that it does not know, and hands them on all the same.
console.warn = () => {};
console.error = () => {};

async function connected(work) {
  const connection = rhea.create_container().connect({
    host: endpoint.hostname,
    port: Number(endpoint.port),
    username: parts.SharedAccessKeyName,
    password: parts.SharedAccessKey,
    reconnect: false,
  });
  const session = connection.create_session();
  session.begin();
  try {
    return await work(session);
  } finally {
    connection.close();
    await once(connection, "connection_close");
  }
}

async function controlLink(session) {
  const link = session.attach_sender({ name: "control" });
  link.local.attach.target = described(COORDINATOR, types.wrap_symbol("amqp:local-transactions"));
  await once(link, "sendable");
  return link;
}

// What came back: the code of the state, and its fields.
async function ask(link, payload) {
  const settled = once(link, "settled");
  link.send(payload, undefined, 0);
  const { delivery } = await settled;
  return stateOf(delivery);
}

function stateOf(delivery) {
  const state = delivery.remote_state;
  if (state?.error !== undefined) {
    return { condition: state.error?.condition ?? null };
  }
  return { code: state?.descriptor?.value ?? state?.constructor?.descriptor?.numeric ?? null, value: state?.value };
}

async function take(receiver, count) {
  const found = [];
  const all = new Promise((resolve) => {
    receiver.on("message", (context) => {
      found.push(context);
      if (found.length === count) {
        resolve();
      }
    });
  });
  receiver.add_credit(count);
  await all;
  return found;
}

async function settleIn(receiver, { delivery }, id) {
  const settled = once(receiver, "settled");
  delivery.update(false, described(TRANSACTIONAL, types.wrap_binary(id), described(ACCEPTED)));
  await settled;
  return stateOf(delivery);
}

const idOf = (declared) => Buffer.from(declared.value[0].value ?? declared.value[0]);

// Two jobs of one fragment: one is settled in a transaction that is committed, one in another that is rolled back.
async function settlements({ queue }) {
  return connected(async (session) => {
    const receiver = session.open_receiver({
      source: { address: queue },
      credit_window: 0,
      autoaccept: false,
      autosettle: false,
      rcv_settle_mode: 1,
    });
    await once(receiver, "receiver_open");
    const control = await controlLink(session);
    const jobs = await take(receiver, 2);
    const declared = await ask(control, declare());
    const id = idOf(declared);
    const part = await settleIn(receiver, jobs[0], id);
    const unknown = await ask(control, discharge(Buffer.from("unknown"), false));
    const committed = await ask(control, discharge(id, false));
    const again = await ask(control, discharge(id, false));
    const second = idOf(await ask(control, declare()));
    await settleIn(receiver, jobs[1], second);
    const rolledBack = await ask(control, discharge(second, true));
    return {
      declared: declared.code,
      idBytes: id.length,
      part: part.code,
      committed: committed.code,
      rolledBack: rolledBack.code,
      unknown: unknown.condition,
      again: again.condition,
    };
  });
}

await main({ settlements });
