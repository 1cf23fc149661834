// rhea, an AMQP 1.0 client that knows nothing of Service Bus: SASL PLAIN with rule name and key.
import rhea from "rhea";
import { connectionString, main } from "./program.mjs";

const parts = Object.fromEntries(
  connectionString.split(";").map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]),
);
const endpoint = new URL(parts.Endpoint.replace("sb:", "http:"));

function connect(options = {}) {
  const container = rhea.create_container();
  return container.connect({
    host: endpoint.hostname,
    port: Number(endpoint.port),
    username: parts.SharedAccessKeyName,
    password: parts.SharedAccessKey,
    reconnect: false,
    ...options,
  });
}

const once = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));

async function open(link, opened) {
  await once(link, opened);
  return link;
}

const openSender = (session, address, options = {}) =>
  open(session.open_sender({ target: { address }, ...options }), "sender_open");

const openReceiver = (session, address, options = {}) =>
  open(
    session.open_receiver({ source: { address }, credit_window: 0, autoaccept: false, ...options }),
    "receiver_open",
  );

async function sendAll(sender, messages) {
  if (!sender.sendable()) {
    await once(sender, "sendable");
  }
  for (const message of messages) {
    const accepted = once(sender, "accepted");
    sender.send(message);
    await accepted;
  }
}

async function next(receiver) {
  const message = once(receiver, "message");
  receiver.add_credit(1);
  return message;
}

// Every outcome in turn on the same message, then several links of one session side by side.
async function outcomes({ queue }) {
  const connection = connect();
  const session = connection.create_session();
  session.begin();
  const sender = await openSender(session, queue);
  const receiver = await openReceiver(session, queue);
  const dead = await openReceiver(session, `${queue}/$DeadLetterQueue`);
  await sendAll(sender, [{ body: "one", application_properties: { a: 1 } }]);
  const counts = [];
  const take = async () => {
    const context = await next(receiver);
    counts.push(context.message.delivery_count ?? 0);
    return context;
  };
  (await take()).delivery.release();
  (await take()).delivery.modified({ delivery_failed: true, undeliverable_here: false });
  const last = await take();
  last.delivery.reject({ condition: "app:unreadable", description: "no such format" });
  const context = await next(dead);
  context.delivery.accept();
  const { application_properties: properties } = context.message;
  connection.close();
  await once(connection, "connection_close");
  const { DeadLetterReason: reason, DeadLetterErrorDescription: description, a } = properties;
  return { counts, reason, description, a };
}

async function drain({ queue }) {
  const connection = connect();
  const session = connection.create_session();
  session.begin();
  const sender = await openSender(session, queue);
  const receiver = await openReceiver(session, queue, { snd_settle_mode: 1 });
  await sendAll(sender, [{ body: "a" }, { body: "b" }]);
  const seen = [];
  receiver.on("message", (context) => seen.push(context.message.body));
  const startedMs = performance.now();
  const drained = once(receiver, "receiver_drained");
  receiver.add_credit(10);
  receiver.drain_credit();
  await drained;
  const ms = performance.now() - startedMs;
  const creditLeft = receiver.credit;
  receiver.drain = false;
  await sendAll(sender, [{ body: "c" }]);
  const atRest = seen.length;
  const again = once(receiver, "message");
  receiver.add_credit(1);
  await again;
  connection.close();
  return { seen, ms, creditLeft, atRest };
}

// `com.microsoft:batch-delete-messages` as newer SDKs send it.
async function batchDelete({ queue, requests }) {
  const connection = connect();
  const session = connection.create_session();
  session.begin();
  const answers = await open(
    session.open_receiver({ source: { address: `${queue}/$management` }, target: { address: "answers" } }),
    "receiver_open",
  );
  const sender = await openSender(session, `${queue}/$management`);
  const found = [];
  for (const request of requests) {
    const body = { "message-count": rhea.types.wrap_int(request.count) };
    body["enqueued-time-utc"] = rhea.types.wrap_timestamp(request.beforeMs);
    if (request.sessionId !== undefined) {
      body["session-id"] = request.sessionId;
    }
    const answered = once(answers, "message");
    sender.send({
      message_id: `request-${found.length}`,
      reply_to: "answers",
      application_properties: { operation: "com.microsoft:batch-delete-messages" },
      body,
    });
    const { message } = await answered;
    found.push([
      message.application_properties.statusCode,
      message.body?.["message-count"] ?? null,
      message.application_properties.errorCondition ?? null,
    ]);
  }
  connection.close();
  return found;
}

async function strangers({ queue }) {
  const wrong = connect({ password: "wrong" });
  const refused = await Promise.race([
    once(wrong, "connection_error").then(() => "connection_error"),
    once(wrong, "disconnected").then((context) => context.error?.message ?? "disconnected"),
    once(wrong, "connection_open").then(() => "open"),
  ]);
  const connection = connect();
  const session = connection.create_session();
  session.begin();
  const missing = session.open_receiver({ source: { address: `${queue}-missing` } });
  await once(missing, "receiver_error"); // after an attach without a source
  connection.close();
  return { refused, missing: missing.error.condition };
}

async function large({ queue, bytes }) {
  const connection = connect({ max_frame_size: 4096 });
  const session = connection.create_session();
  session.begin();
  const sender = await openSender(session, queue);
  const receiver = await openReceiver(session, queue);
  const body = rhea.message.data_section(Buffer.alloc(bytes, 7));
  await sendAll(sender, [{ body }, { body: "after" }]);
  const first = await next(receiver);
  first.delivery.accept();
  const second = await next(receiver);
  second.delivery.accept();
  connection.close();
  const content = first.message.body.content;
  return { length: content.length, same: content.every((byte) => byte === 7), after: second.message.body };
}

await main({ outcomes, drain, batchDelete, strangers, large });
