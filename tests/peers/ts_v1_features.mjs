// The official TypeScript SDK, first generation (the handshake era, with the tasks of 2025-11-25), doing everything it can.
// usage: node ts_v1_features.mjs URL | -- COMMAND…

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { bothEras, CAPABILITIES, legacyOnly, listener, PATIENCE, stopACall, text } from "./ts_features.mjs";

const SCHEMAS = {
  "elicitation/create": ElicitRequestSchema,
  "sampling/createMessage": CreateMessageRequestSchema,
  "roots/list": ListRootsRequestSchema,
  "notifications/message": LoggingMessageNotificationSchema,
  "notifications/tools/list_changed": ToolListChangedNotificationSchema,
  "notifications/resources/updated": ResourceUpdatedNotificationSchema,
};

const [first, command, ...args] = process.argv.slice(2);
const overHttp = first !== "--";
const transport = overHttp
  ? new StreamableHTTPClientTransport(new URL(first))
  : new StdioClientTransport({ command, args, env: process.env });
const client = new Client({ name: "ts-v1", version: "1.0.0" }, { capabilities: CAPABILITIES });
const { told, requests, notifications } = listener();
for (const [method, handle] of Object.entries(requests)) client.setRequestHandler(SCHEMAS[method], handle);
for (const [method, handle] of Object.entries(notifications)) client.setNotificationHandler(SCHEMAS[method], handle);

// The SDK sends this revision in a header of every request after the handshake.
let revision = null;
const setProtocolVersion = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  revision = version;
  setProtocolVersion?.(version);
};

const call = (name, given = {}, options = {}, _meta = undefined) =>
  client.callTool({ name, arguments: given, _meta }, CallToolResultSchema, { timeout: PATIENCE, ...options });
const sdk = { name: "ts-v1", client, call, revision: () => revision };

/** The steps that a stream of a task's messages goes through, and the text of its result. */
async function task(name, given) {
  const steps = [];
  let outcome = null;
  const stream = client.experimental.tasks.callToolStream({ name, arguments: given }, CallToolResultSchema, {
    task: { ttl: 60_000 },
    timeout: PATIENCE,
  });
  for await (const message of stream) {
    steps.push(message.task?.status ?? message.type);
    if (message.type === "result") outcome = text(message.result);
    if (message.type === "error") outcome = String(message.error);
  }
  return { steps: [...new Set(steps)], outcome };
}

async function tasks() {
  const { tasks } = client.experimental;
  const slow = { name: "slow_compute", arguments: { seconds: 60, label: "ts" } };
  const stream = tasks.callToolStream(slow, CallToolResultSchema, { task: { ttl: 60_000 } });
  const { value: created } = await stream.next();
  await stream.return();
  // Callers that nobody can tell apart have no list.
  const lists = client.getServerCapabilities().tasks.list !== undefined;
  const listed = lists && (await tasks.listTasks()).tasks.some(({ taskId }) => taskId === created.task.taskId);
  const cancelled = await tasks.cancelTask(created.task.taskId);
  return {
    task: await task("slow_compute", { seconds: 0.2, label: "ts" }),
    asking_task: await task("confirm_delete", { filename: "notes.txt" }),
    task_listed: listed,
    task_cancelled: cancelled.status,
  };
}

await client.connect(transport);
await client.setLoggingLevel("info");
const found = await bothEras(sdk, told);
Object.assign(found, await legacyOnly(sdk, told), { stopped: await stopACall(sdk) });
if (client.getServerCapabilities()?.tasks) Object.assign(found, await tasks());
if (overHttp) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(found));
