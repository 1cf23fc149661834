// `node service_bus_program.mjs [OPERATION…]`
import "./service_bus_messages.mjs";
import "./service_bus_sessions.mjs";
import "./service_bus_administration.mjs";
import { run } from "./service_bus.mjs";

await run();
