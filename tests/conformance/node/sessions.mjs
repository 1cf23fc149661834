// Message sessions with the unmodified JavaScript SDK.
import { bodies, failureOf, main, receive, send, withClient } from "./program.mjs";

async function ordering(client, { queue }) {
  const messages = [];
  for (let index = 0; index < 5; index += 1) {
    messages.push({ body: `a${index}`, sessionId: "a" }, { body: `b${index}`, sessionId: "b" });
  }
  await send(client, queue, ...messages);
  const receiver = await client.acceptSession(queue, "b");
  const found = await receive(receiver, 5);
  await receiver.abandonMessage(found[0]);
  const [again] = await receive(receiver, 1);
  await receiver.completeMessage(again);
  for (const message of found.slice(1)) {
    await receiver.completeMessage(message);
  }
  const left = await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 });
  const peeked = await receiver.peekMessages(10);
  await receiver.close();
  return {
    sessionId: receiver.sessionId,
    bodies: bodies(found),
    again: [again.body, again.deliveryCount],
    left: left.length,
    peeked: bodies(peeked),
  };
}

async function next(client, { queue }) {
  await send(client, queue, { body: 1, sessionId: "older" }, { body: 2, sessionId: "newer" });
  const one = await client.acceptNextSession(queue);
  const two = await client.acceptNextSession(queue);
  const none = await failureOf(() => client.acceptNextSession(queue));
  return { sessions: [one.sessionId, two.sessionId], none };
}

async function state(client, { queue }) {
  const receiver = await client.acceptSession(queue, "s");
  const before = await receiver.getSessionState();
  await receiver.setSessionState(Buffer.from("half way"));
  await receiver.close();
  const again = await client.acceptSession(queue, "s");
  const kept = await again.getSessionState();
  await again.setSessionState(null);
  const cleared = await again.getSessionState();
  return { before, kept: kept.toString(), cleared };
}

async function renew(client, { queue, lockMs }) {
  await send(client, queue, { body: "x", sessionId: "s", messageId: "m" });
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  const firstEnd = receiver.sessionLockedUntilUtc;
  while (Date.now() < firstEnd.getTime() + 500) {
    await new Promise((resolve) => setTimeout(resolve, lockMs / 4));
    await receiver.renewSessionLock();
  }
  const gainedMs = receiver.sessionLockedUntilUtc - firstEnd;
  await receiver.completeMessage(message);
  await receiver.close();
  return { gainedMs, count: message.deliveryCount };
}

async function lost(client, { queue, lockMs }) {
  await send(client, queue, { body: "x", sessionId: "s", messageId: "m" });
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  await new Promise((resolve) => setTimeout(resolve, lockMs + 700));
  const complete = await failureOf(() => receiver.completeMessage(message));
  const again = await client.acceptSession(queue, "s");
  const [redelivered] = await receive(again, 1);
  await again.completeMessage(redelivered);
  return { complete, count: redelivered.deliveryCount };
}

async function cannotBeLocked(client, { queue }) {
  const holder = await client.acceptSession(queue, "s");
  const refused = await failureOf(() => client.acceptSession(queue, "s"));
  await holder.close();
  const free = await client.acceptSession(queue, "s");
  return { refused, free: free.sessionId };
}

async function closing(client, { queue }) {
  await send(client, queue, { body: "x", sessionId: "s" });
  const receiver = await client.acceptSession(queue, "s");
  await receive(receiver, 1);
  await receiver.close();
  const again = await client.acceptSession(queue, "s");
  const [message] = await receive(again, 1);
  await again.deferMessage(message);
  const [deferred] = await again.receiveDeferredMessages(message.sequenceNumber);
  await again.completeMessage(deferred);
  return { count: message.deliveryCount, deferred: deferred.body };
}

async function subscribe(client, { queue, count }) {
  await send(client, queue, Array.from({ length: count }, (_, body) => ({ body, sessionId: "s" })));
  const receiver = await client.acceptSession(queue, "s");
  const seen = [];
  await new Promise((resolve, reject) => {
    receiver.subscribe({
      processMessage: async (message) => {
        seen.push(message.body);
        if (seen.length === count) {
          setTimeout(resolve, 100);
        }
      },
      processError: async ({ error }) => reject(error),
    });
  });
  await receiver.close();
  const left = await client.acceptSession(queue, "s").then((again) => again.peekMessages(10));
  return { seen, left: left.length };
}

const quick = { retryOptions: { maxRetries: 0, timeoutInMs: 2_000 } };
await main({
  ordering: withClient(ordering),
  next: withClient(next, quick),
  state: withClient(state),
  renew: withClient(renew),
  lost: withClient(lost, quick),
  cannotBeLocked: withClient(cannotBeLocked, quick),
  closing: withClient(closing),
  subscribe: withClient(subscribe),
});
