// A server of the TypeScript SDK over stdio: a tool links to what no list has, and everything has members that no revision knows.
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import {
  CallToolRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  ReadResourceRequestSchema,
  SubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

const uri = "report://result/42";
const icons = [{ src: "https://links.example/icon.png", mimeType: "image/png", sizes: ["48x48"] }];
const server = new Server(
  { name: "links-ts", version: "7", title: "Links", websiteUrl: "https://links.example", icons },
  { capabilities: { tools: {}, resources: { subscribe: true } } },
);

server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [
    {
      name: "make",
      description: "Make a result, and link to it.",
      inputSchema: { type: "object" },
      annotations: { readOnlyHint: true, costly: "a little" },
      securitySchemes: [{ type: "oauth2", scopes: ["make"] }],
    },
  ],
}));
server.setRequestHandler(CallToolRequestSchema, () => ({
  content: [
    { type: "text", text: "made", vendor: { n: 1 }, annotations: { priority: 0.5, colour: "red" } },
    { type: "resource_link", uri, name: "result", vendor: "kept" },
  ],
  vendor: [1, 2],
}));
server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [] }));
server.setRequestHandler(ReadResourceRequestSchema, (request) => ({
  contents: [{ uri: request.params.uri, text: "unlisted but readable", etag: "7" }],
}));
server.setRequestHandler(SubscribeRequestSchema, (request) => {
  setTimeout(() => server.sendResourceUpdated({ uri: request.params.uri }), 50);
  return {};
});
await server.connect(new StdioServerTransport());
