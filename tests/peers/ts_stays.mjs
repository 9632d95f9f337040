// The official TypeScript SDK (first or second generation) as a client that stays, in the handshake era: begins once, and calls
// `echo` with each line that it reads, to the end of its input. What many programs are built on, Gemini CLI among them.
// usage: MCP_TOKEN=… node ts_stays.mjs v1|v2 URL        prints one JSON object for each line: the text that came back, or the error

import { createInterface } from "node:readline";

import { PATIENCE, text } from "./ts_features.mjs";

const [generation, endpoint] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } =
  generation === "v1"
    ? {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      }
    : await import("@modelcontextprotocol/client");

const transport = new StreamableHTTPClientTransport(new URL(endpoint), {
  requestInit: { headers: { Authorization: `Bearer ${process.env.MCP_TOKEN}` } },
});
const client = new Client(
  { name: `ts-${generation}`, version: "1.0.0" },
  { capabilities: {}, versionNegotiation: { mode: "legacy" } },
);
await client.connect(transport);
for await (const line of createInterface({ input: process.stdin })) {
  const call = { name: "echo", arguments: { text: line } };
  const options = { timeout: PATIENCE };
  const said = await (generation === "v1" ? client.callTool(call, undefined, options) : client.callTool(call, options)).then(
    (result) => ({ text: text(result) }),
    (error) => ({ error: String(error) }),
  );
  console.log(JSON.stringify(said));
}
await transport.terminateSession();
await client.close();
