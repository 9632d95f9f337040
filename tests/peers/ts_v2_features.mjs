// The official TypeScript SDK, second generation, doing everything it can in either era.
// usage: node ts_v2_features.mjs legacy|auto|REVISION (URL | -- COMMAND…)

import { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { bothEras, CAPABILITIES, legacyOnly, listener, PATIENCE, stopACall, until } from "./ts_features.mjs";

const [wanted, first, command, ...args] = process.argv.slice(2);
const overHttp = first !== "--";
const transport = overHttp
  ? new StreamableHTTPClientTransport(new URL(first))
  : new StdioClientTransport({ command, args, env: process.env });
const mode = ["legacy", "auto"].includes(wanted) ? wanted : { pin: wanted };
const client = new Client(
  { name: "ts-v2", version: "2.0.0" },
  { capabilities: CAPABILITIES, versionNegotiation: { mode } },
);
const { told, requests, notifications } = listener();
for (const [method, handle] of Object.entries(requests)) client.setRequestHandler(method, handle);
for (const [method, handle] of Object.entries(notifications)) client.setNotificationHandler(method, handle);

const call = (name, given = {}, options = {}, _meta = undefined) =>
  client.callTool({ name, arguments: given, _meta }, { timeout: PATIENCE, ...options });
const sdk = {
  name: "ts-v2",
  client,
  call,
  revision: () => client.getNegotiatedProtocolVersion(),
  logMeta: { [LOG_LEVEL_META_KEY]: "info" },
};

async function modernOnly() {
  const uri = "test://watched-resource";
  const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
  await call("touch_watched_resource");
  await call("test_trigger_tool_change");
  const heard = await until(() => told.changed.includes("tools") && told.changed.includes(uri));
  await subscription.close();
  return { heard, honored: subscription.honoredFilter, closed: await subscription.closed };
}

await client.connect(transport);
const legacy = client.getProtocolEra() === "legacy";
if (legacy) await client.setLoggingLevel("info");
const found = await bothEras(sdk, told);
Object.assign(found, await (legacy ? legacyOnly(sdk, told) : modernOnly()), { stopped: await stopACall(sdk) });
if (overHttp && legacy) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(found));
