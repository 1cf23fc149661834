// The same program over TLS and over WebSocket: trust comes from NODE_EXTRA_CA_CERTS.
import WebSocket from "ws";
import { bodies, main, receive, send, withClient } from "./program.mjs";

async function roundTrip(client, { queue }) {
  await send(client, queue, { body: "small" }, { body: "x".repeat(200_000) });
  const receiver = client.createReceiver(queue);
  const found = await receive(receiver, 2);
  await Promise.all(found.map((message) => receiver.completeMessage(message)));
  return { lengths: bodies(found).map((body) => body.length) };
}

await main({
  direct: withClient(roundTrip),
  webSocket: withClient(roundTrip, { webSocketOptions: { webSocket: WebSocket } }),
});
