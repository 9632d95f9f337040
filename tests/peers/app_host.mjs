// A host in a browser, with ext-apps' AppBridge: `show(ENDPOINT, TOOL)` calls a tool and draws its page in a frame, which may call tools.

import { AppBridge, PostMessageTransport, getToolUiResourceUri, isToolVisibilityAppOnly } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };

globalThis.show = async (endpoint, name) => {
  const client = new Client({ name: "host", version: "1" }, { capabilities: { extensions } });
  await client.connect(new StreamableHTTPClientTransport(new URL(endpoint)));
  const { tools } = await client.listTools();
  const tool = tools.find((each) => each.name === name);
  const uri = getToolUiResourceUri(tool);
  const [contents] = (await client.readResource({ uri })).contents;
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  document.body.replaceChildren(frame);
  const bridge = new AppBridge(client, { name: "host", version: "1" }, { serverTools: {} });
  const ready = new Promise((resolve) => bridge.addEventListener("initialized", resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = contents.text;
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(await client.callTool({ name, arguments: {} }));
  return {
    uri,
    csp: contents._meta?.ui?.csp,
    extensions: Object.keys(client.getServerCapabilities().extensions ?? {}),
    hidden: tools.filter(isToolVisibilityAppOnly).map((each) => each.name),
  };
};
