// The official TypeScript SDK serving one `echo` tool over Streamable HTTP on node:http, stateless, as its
// documentation shows it. Prints `Listening on URL` like our own server, so that the bench can start either.

import { createServer } from "node:http";

import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";

const inputSchema = z.object({ text: z.string() });

const handle = toNodeHandler(
  createMcpHandler(() => {
    const server = new McpServer({ name: "echo", version: "1.0.0" });
    server.registerTool("echo", { description: "Say the same again.", inputSchema }, ({ text }) => ({
      content: [{ type: "text", text }],
    }));
    return server;
  }),
);
const validHost = localhostHostValidation();
const validOrigin = localhostOriginValidation();

const http = createServer((request, response) => {
  if (!validHost(request, response) || !validOrigin(request, response)) return;
  handle(request, response);
});
http.listen(0, "127.0.0.1", () => console.log(`Listening on http://127.0.0.1:${http.address().port}`));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));
