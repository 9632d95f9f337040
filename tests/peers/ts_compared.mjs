// The official TypeScript SDK as a client that does what it is told, a line of JSON each, and tells what came over the wire as it came.
// usage: [MCP_TOKEN=…] node ts_compared.mjs v1|v2 (URL | -- COMMAND…)     v1 has the handshake era, v2 the stateless one (2026-07-28)
//
// A line: {method, params, hears, stops}. `hears` says how many of which notifications are waited for, `stops` at which one the
// request is given up. The answer, a line as well: {result | error | stopped, asked, told}.
// What the server asks is answered with what fits; the first line of output is what the server said of itself.

import { createInterface } from "node:readline";

const PATIENCE = 30_000; // milliseconds that anything may take on a slow machine
const TASKS = "io.modelcontextprotocol/tasks";
const CAPABILITIES = {
  sampling: { tools: {}, context: {} },
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
};

const [generation, first, command, ...args] = process.argv.slice(2);
const modern = generation === "v2";
const sdk = modern
  ? { ...(await import("@modelcontextprotocol/client")), ...(await import("@modelcontextprotocol/client/stdio")) }
  : {
      ...(await import("@modelcontextprotocol/sdk/client/index.js")),
      ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
      ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      ...(await import("@modelcontextprotocol/sdk/types.js")),
    };
const { z } = await import("zod");

const headers = process.env.MCP_TOKEN ? { Authorization: `Bearer ${process.env.MCP_TOKEN}` } : {};
const overHttp = first !== "--";
const transport = overHttp
  ? new sdk.StreamableHTTPClientTransport(new URL(first), { requestInit: { headers } })
  : new sdk.StdioClientTransport({ command, args, env: process.env, stderr: "ignore" });

function fieldOf(name, schema) {
  if (schema.default !== undefined) return schema.default;
  const choices = schema.enum ?? (schema.oneOf ?? schema.anyOf)?.map((choice) => choice.const);
  if (choices) return choices[0];
  switch (schema.type) {
    case "boolean":
      return true;
    case "integer":
    case "number":
      return schema.minimum ?? 1;
    case "array":
      return [fieldOf(name, schema.items)];
    default:
      return (
        { email: "a@a.example", uri: "https://a.example/", date: "2026-01-02", "date-time": "2026-01-02T03:04:05Z" }[
          schema.format
        ] ?? `my ${name}`
      );
  }
}

const ANSWERS = {
  "elicitation/create": ({ mode, requestedSchema }) =>
    mode === "url"
      ? { action: "accept" }
      : {
          action: "accept",
          content: Object.fromEntries(
            Object.entries(requestedSchema?.properties ?? {}).map(([name, schema]) => [name, fieldOf(name, schema)]),
          ),
        },
  "sampling/createMessage": () => ({
    role: "assistant",
    content: { type: "text", text: "a sample" },
    model: "none",
    stopReason: "endTurn",
  }),
  "roots/list": () => ({ roots: [{ uri: "file:///srv/project", name: "project" }] }),
};

const client = new sdk.Client(
  { name: "compared", version: "1.0.0" },
  {
    capabilities: { ...CAPABILITIES, ...(modern ? { extensions: { [TASKS]: {} } } : { tasks: {} }) },
    ...(modern ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {}),
  },
);
const SCHEMAS = {
  "elicitation/create": sdk.ElicitRequestSchema,
  "sampling/createMessage": sdk.CreateMessageRequestSchema,
  "roots/list": sdk.ListRootsRequestSchema,
};
for (const [method, answer] of Object.entries(ANSWERS))
  client.setRequestHandler(modern ? method : SCHEMAS[method], async ({ params }) => answer(params ?? {}));

// What comes over the wire, before the SDK makes something else of it.
const told = [];
const asked = [];
const ids = new Set();
const questions = new Set();
let last = null;
let news = () => {};

function heard(message) {
  if (message.method !== undefined) {
    if (questions.has(message.id)) return; // streams that are taken up again may tell it twice
    if (message.id !== undefined) questions.add(message.id);
    (message.id === undefined ? told : asked).push({ method: message.method, params: message.params ?? {} });
  } else if (ids.has(message.id)) {
    const { result, error } = message;
    if (result?.resultType === "input_required")
      for (const each of Object.values(result.inputRequests ?? {})) asked.push(each);
    last = error === undefined ? { result } : { error };
  }
  news();
}

let onmessage;
Object.defineProperty(transport, "onmessage", {
  get: () => onmessage,
  set(handle) {
    onmessage = handle && ((message, extra) => (heard(message), handle(message, extra)));
  },
});
const send = transport.send.bind(transport);
transport.send = (message, options) => {
  if (message.method !== undefined && message.id !== undefined) ids.add(message.id);
  return send(message, options);
};

/** Wait until all of `hears` was told; nothing more comes of it where it is not. */
async function untilTold(hears) {
  const deadline = Date.now() + PATIENCE / 3;
  const missing = () =>
    Object.entries(hears).some(([method, count]) => told.filter((each) => each.method === method).length < count);
  while (missing() && Date.now() < deadline)
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, deadline - Date.now());
      news = () => (clearTimeout(timer), resolve());
    });
}

async function step({ method, params = {}, hears = {}, stops }) {
  told.length = asked.length = 0;
  ids.clear();
  last = null;
  const stop = new AbortController();
  if (stops)
    news = () => told.some((each) => each.method === stops) && stop.abort();
  const options = { timeout: PATIENCE, signal: stop.signal };
  let failed = null;
  if (method === "subscriptions/listen") {
    // It lasts for as long as this program does.
    client.listen(params.notifications).catch((error) => (failed = error));
    await untilTold({ "notifications/subscriptions/acknowledged": 1 });
  } else if (method.startsWith("notifications/")) {
    await client.notification({ method, params });
  } else {
    await client.request({ method, params }, z.any(), options).catch((error) => (failed = error));
  }
  await untilTold(hears);
  if (stop.signal.aborted) return { stopped: true, asked: [...asked], told: [...told] };
  // In the stateless era an error may be the body of an HTTP error, which its transport makes another of.
  const body = last ?? JSON.parse(/\{"jsonrpc".*\}$/.exec(String(failed))?.[0] ?? "null");
  return { ...(body?.error ? { error: body.error } : (body ?? { failed: String(failed) })), asked: [...asked], told: [...told] };
}

await client.connect(transport);
console.log(JSON.stringify(modern ? await step({ method: "server/discover" }) : last));
for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await step(JSON.parse(line))));
if (overHttp && !modern) await transport.terminateSession();
await client.close();
process.exit(0);
