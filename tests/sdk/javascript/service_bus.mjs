// What the operations with the unmodified @azure/service-bus share.
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { connectionString, equal, given, main, transport } from "./trial.mjs";

const quick = { retryOptions: { maxRetries: 1, retryDelayInMs: 50, timeoutInMs: 15_000 } };

export const clientOf = (string) => new ServiceBusClient(string, { ...quick, ...transport });
export const adminOf = (string) => new ServiceBusAdministrationClient(string);

// Of one operation: its clients, and short words for what all of them do.
class Bench {
  constructor(entity) {
    this.entity = entity;
    this.client = clientOf(connectionString);
    this.admin = adminOf(connectionString);
  }

  async queue(options = {}) {
    if (!given) {
      await this.admin.createQueue(this.entity, options);
    }
    return this.entity;
  }

  async topic(...subscriptions) {
    await this.admin.createTopic(this.entity);
    for (const name of subscriptions) {
      await this.admin.createSubscription(this.entity, name);
    }
    return this.entity;
  }

  async send(entity, ...messages) {
    const sender = this.client.createSender(entity);
    for (const message of messages) {
      await sender.sendMessages(message);
    }
    await sender.close();
  }

  receiver(options) {
    return this.client.createReceiver(this.entity, options);
  }

  deadLetters() {
    return this.receiver({ subQueueType: "deadLetter" });
  }

  close() {
    return this.client.close();
  }
}

// Exactly so many, however many calls it takes.
export async function take(receiver, count) {
  const found = [];
  while (found.length < count) {
    const more = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: 8000 });
    if (more.length === 0) {
      throw new Error(`only ${found.length} of ${count} messages came`);
    }
    found.push(...more);
  }
  return found;
}

export const one = async (receiver) => (await take(receiver, 1))[0];

export async function nothing(receiver) {
  equal("messages that came", bodies(await receiver.receiveMessages(1, { maxWaitTimeInMs: 700 })), []);
}

export const bodies = (messages) => messages.map((message) => message.body);

export const texts = (...all) => all.map((body) => ({ body }));

export const run = () => main((entity) => new Bench(entity));
