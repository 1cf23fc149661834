// What every program here shares: one scenario is run against the bus, and what it found is printed as JSON.
//
//     node messages.mjs SCENARIO '{"queue": "orders"}'
//
// The connection string comes from BUSWAY_CONNECTION_STRING, where `busway exec` puts it too.
import { randomUUID } from "node:crypto";
import { ServiceBusClient } from "@azure/service-bus";

export const connectionString = process.env.BUSWAY_CONNECTION_STRING;

export async function main(scenarios) {
  const [, , name, parameters] = process.argv;
  const found = await scenarios[name](JSON.parse(parameters ?? "{}"));
  process.stdout.write(JSON.stringify(found ?? null) + "\n");
}

// Gives the scenario a client that is closed behind it.
export function withClient(scenario, options = {}) {
  return async (parameters) => {
    const client = new ServiceBusClient(connectionString, options);
    try {
      return await scenario(client, parameters);
    } finally {
      await client.close();
    }
  };
}

// One send each; a list goes as one batch. Each message gets an id (for what happens without, see SB-817).
export async function send(client, queue, ...messages) {
  const sender = client.createSender(queue);
  const named = (message) => ({ messageId: randomUUID(), ...message });
  for (const message of messages) {
    await sender.sendMessages(Array.isArray(message) ? message.map(named) : named(message));
  }
  await sender.close();
}

// Exactly so many messages, however many calls it takes.
export async function receive(receiver, count) {
  const found = [];
  while (found.length < count) {
    const batch = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: 5000 });
    if (batch.length === 0) {
      throw new Error(`only ${found.length} of ${count} messages came`);
    }
    found.push(...batch);
  }
  return found;
}

export const bodies = (messages) => messages.map((message) => message.body);

// Sequence numbers are Long: as plain numbers in the answer.
export const number = (value) => (value === undefined ? null : Number(value.toString()));

// What went wrong, or null: expected failures are facts to report.
export async function failureOf(attempt) {
  try {
    await attempt();
  } catch (error) {
    return { name: error.name, code: error.code ?? null, message: error.message };
  }
  return null;
}
