// The official TypeScript SDK (first or second generation) logging in by itself: it finds the authorization server, registers,
// sends a browser, exchanges the code, calls a tool, and refreshes.
// usage: node ts_login.mjs v1|v2 URL

import { listen, say } from "./loopback.mjs";

const [generation, endpoint] = process.argv.slice(2);
const sdk =
  generation === "v1"
    ? {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
        ...(await import("@modelcontextprotocol/sdk/client/auth.js")),
      }
    : await import("@modelcontextprotocol/client");

const { redirectUri, callback, close } = await listen();

class Memory {
  kept = {};
  redirectUrl = redirectUri;
  clientMetadata = {
    client_name: `ts ${generation}`,
    redirect_uris: [redirectUri],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  state = () => "a-state-of-its-own";
  clientInformation = () => this.kept.client;
  saveClientInformation = (client) => void (this.kept.client = client);
  tokens = () => this.kept.tokens;
  saveTokens = (tokens) => void (this.kept.tokens = tokens);
  redirectToAuthorization = (url) => say({ open: url.href });
  saveCodeVerifier = (verifier) => void (this.kept.verifier = verifier);
  codeVerifier = () => this.kept.verifier;
}

const memory = new Memory();
const connect = async () => {
  const transport = new sdk.StreamableHTTPClientTransport(new URL(endpoint), { authProvider: memory });
  const client = new sdk.Client({ name: `ts-${generation}`, version: "1.0.0" });
  await client.connect(transport);
  return client;
};

const first = new sdk.StreamableHTTPClientTransport(new URL(endpoint), { authProvider: memory });
const stopped = await new sdk.Client({ name: `ts-${generation}`, version: "1.0.0" }).connect(first).then(
  () => "let in without a login",
  (error) => error.constructor.name,
);
const back = await callback;
if (back.searchParams.get("state") !== "a-state-of-its-own") throw new Error("another state came back");
if (generation === "v1") await first.finishAuth(back.searchParams.get("code"));
else await first.finishAuth(back.searchParams);

const client = await connect();
const called = await client.callTool({ name: "echo", arguments: { text: "in by myself" } });
await client.close();

// Refreshing is the SDK's own doing once the server refuses the token.
const before = memory.kept.tokens;
memory.kept.tokens = { ...before, access_token: "worn-out" };
const again = await connect();
const renewed = await again.callTool({ name: "echo", arguments: { text: "still in" } });
await again.close();
close();
say({
  answer: {
    stopped,
    text: [called, renewed].map((result) => result.content[0].text),
    rotated: memory.kept.tokens.refresh_token !== before.refresh_token,
    scope: memory.kept.tokens.scope,
    issuer: back.searchParams.get("iss"),
  },
});
