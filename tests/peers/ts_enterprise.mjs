// The official TypeScript SDK with a company's word for a person (enterprise-managed authorization): it exchanges an id token at the
// provider for an assertion, that at the server for an access token, and calls a tool. Nobody is asked, no browser opens.
// usage: ID_TOKEN=… CLIENT_SECRET=… node ts_enterprise.mjs URL ISSUER CLIENT_ID PROVIDER CLIENT_ID_THERE

import { Client, CrossAppAccessProvider, StreamableHTTPClientTransport, discoverAndRequestJwtAuthGrant } from "@modelcontextprotocol/client";

const [endpoint, issuer, clientId, provider, clientIdThere] = process.argv.slice(2);
const asked = [];
const authProvider = new CrossAppAccessProvider({
  clientId,
  clientSecret: process.env.CLIENT_SECRET,
  expectedIssuer: issuer,
  assertion: async ({ authorizationServerUrl, resourceUrl, scope, fetchFn }) => {
    asked.push({ audience: authorizationServerUrl, resource: resourceUrl, scope });
    const granted = await discoverAndRequestJwtAuthGrant({
      idpUrl: provider,
      audience: authorizationServerUrl,
      resource: resourceUrl,
      scope,
      idToken: process.env.ID_TOKEN,
      clientId: clientIdThere,
      fetchFn,
    });
    return granted.jwtAuthGrant;
  },
});

const client = new Client({ name: "ts-enterprise", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(endpoint), { authProvider }));
const called = await client.callTool({ name: "echo", arguments: { text: "vouched for" } });
await client.close();
const { refresh_token, scope } = authProvider.tokens();
console.log(JSON.stringify({ text: called.content[0].text, asked, scope, refreshes: refresh_token !== undefined }));
