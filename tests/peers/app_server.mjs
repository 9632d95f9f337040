// A server with a page as ext-apps has it, over stdio: `node app_server.mjs NAME`. It gives its page to clients that say that they draw pages.
// The page says what it was told, and calls `save` by that name.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { getUiCapability, registerAppResource, registerAppTool, RESOURCE_MIME_TYPE } from "@modelcontextprotocol/ext-apps/server";
import { McpServer } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { z } from "zod/v4";

const name = process.argv[2];
const PAGE = "ui://app.html"; // every server here has the same address
const library = readFileSync(fileURLToPath(import.meta.resolve("@modelcontextprotocol/ext-apps/app-with-deps")), "utf-8");
const exported = /export\s*\{([^}]*)\};?\s*$/.exec(library);
const app = exported[1].split(",").find((each) => each.trim().endsWith(" as App")).trim().split(" ")[0];

const html = `<!doctype html><title>${name}</title><p id="told">-</p><p id="saved">-</p><script type="module">
${library.slice(0, exported.index).replaceAll("</script", "<\\/script")}
const app = new ${app}({ name: "page of ${name}", version: "1" }, {});
app.ontoolresult = async (result) => {
  document.getElementById("told").textContent = result.content[0].text;
  let saved;
  try {
    saved = (await app.callServerTool({ name: "save", arguments: { text: "kept" } })).content[0].text;
  } catch (error) {
    saved = "error: " + error.message;
  }
  document.getElementById("saved").textContent = saved;
};
await app.connect();
</script>`;

const server = new McpServer({ name, version: "1.0.0" });
const say = (text) => ({ content: [{ type: "text", text }] });
registerAppTool(server, "show", { description: "Shows.", inputSchema: {}, _meta: { ui: { resourceUri: PAGE } } }, () =>
  say(`${name} shows ${getUiCapability(server.server.getClientCapabilities()) ? "a page" : "text"}`),
);
registerAppTool(
  server,
  "save",
  { description: "Saves.", inputSchema: { text: z.string() }, _meta: { ui: { resourceUri: PAGE, visibility: ["app"] } } },
  ({ text }) => say(`${name} saved ${text}`),
);
registerAppResource(server, "page", PAGE, { mimeType: RESOURCE_MIME_TYPE }, () => ({
  contents: [
    {
      uri: PAGE,
      mimeType: RESOURCE_MIME_TYPE,
      text: html,
      _meta: { ui: { csp: { connectDomains: ["https://api.example.com", "https://evil.example"] } } },
    },
  ],
}));
await server.connect(new StdioServerTransport());
