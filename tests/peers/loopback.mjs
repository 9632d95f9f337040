// What a program with a browser login has beside its OAuth library: a listener on loopback that the browser is sent back to.
// It prints {"open": URL} where a real program would open a browser, and {"answer": …} at its end.

import { createServer } from "node:http";

/** @returns {Promise<{redirectUri: string, callback: Promise<URL>, close: () => void}>} */
export async function listen(path = "/callback", host = "127.0.0.1") {
  let arrived;
  const callback = new Promise((resolve) => (arrived = resolve));
  const server = createServer((request, response) => {
    const url = new URL(request.url, `http://${request.headers.host}`);
    response.writeHead(url.pathname === path ? 200 : 404, { "content-type": "text/plain", connection: "close" });
    response.end("you can close this page");
    if (url.pathname === path) arrived(url);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const redirectUri = `http://${host}:${server.address().port}${path}`;
  return { redirectUri, callback, close: () => server.close() };
}

export const say = (what) => console.log(JSON.stringify(what));

/** One MCP call with a token, in the stateless way of the handshake era. */
export async function echo(endpoint, token, text) {
  const response = await fetch(endpoint, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2025-11-25",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", arguments: { text } } }),
  });
  const body = await response.json();
  return { status: response.status, text: body.result?.content?.[0]?.text };
}
