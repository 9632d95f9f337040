// oauth4webapi with a key: every token is bound to it, and every request proves it (RFC 9449).
// usage: node oauth4webapi_dpop.mjs code|par|device ISSUER ENDPOINT

import * as oauth from "oauth4webapi";

import { listen, say } from "./loopback.mjs";

const [way, issuer, endpoint] = process.argv.slice(2);
const DEVICE = "urn:ietf:params:oauth:grant-type:device_code";
const insecure = { [oauth.allowInsecureRequests]: true };
const { redirectUri, callback, close } = await listen("/cb");
const at = new URL(issuer);
const as = await oauth.processDiscoveryResponse(
  at,
  await oauth.discoveryRequest(at, { algorithm: "oauth2", ...insecure }),
);
const resource = await oauth.processResourceDiscoveryResponse(
  new URL(endpoint),
  await oauth.resourceDiscoveryRequest(new URL(endpoint), insecure),
);
const client = await oauth.processDynamicClientRegistrationResponse(
  await oauth.dynamicClientRegistrationRequest(
    as,
    {
      client_name: `oauth4webapi with a key, ${way}`,
      redirect_uris: way === "device" ? [] : [redirectUri],
      response_types: way === "device" ? [] : ["code"],
      grant_types: [way === "device" ? DEVICE : "authorization_code", "refresh_token"],
      token_endpoint_auth_method: "none",
    },
    insecure,
  ),
);
const alg = as.dpop_signing_alg_values_supported.find((each) => ["ES256", "Ed25519"].includes(each));
const handle = async () => oauth.DPoP(client, await oauth.generateKeyPair(alg));
const DPoP = await handle();
const bound = { DPoP, ...insecure };
const nobody = oauth.None();

async function byBrowser() {
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  let query = new URLSearchParams({
    client_id: client.client_id,
    redirect_uri: redirectUri,
    response_type: "code",
    scope: "mcp:tools",
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
    resource: resource.resource,
  });
  if (way === "par") {
    const kept = await oauth.processPushedAuthorizationResponse(
      as,
      client,
      await oauth.pushedAuthorizationRequest(as, client, nobody, query, bound),
    );
    query = new URLSearchParams({ client_id: client.client_id, request_uri: kept.request_uri });
  } else {
    query.set("dpop_jkt", await DPoP.calculateThumbprint());
  }
  say({ open: `${as.authorization_endpoint}?${query}` });
  const back = oauth.validateAuthResponse(as, client, await callback, state);
  const redeem = (options) =>
    oauth.authorizationCodeGrantRequest(as, client, nobody, back, redirectUri, verifier, options);
  // Whoever catches the code, and even the verifier, has no use for them without the key.
  const caught = await (await redeem({ DPoP: await handle(), ...insecure })).json();
  if (caught.error !== "invalid_grant") throw new Error(`a caught code was worth ${JSON.stringify(caught)}`);
  return oauth.processAuthorizationCodeResponse(as, client, await redeem(bound));
}

async function byDevice() {
  const started = await oauth.processDeviceAuthorizationResponse(
    as,
    client,
    await oauth.deviceAuthorizationRequest(as, client, nobody, { scope: "mcp:tools" }, insecure),
  );
  say({ approve: started.verification_uri_complete });
  for (;;) {
    const answer = await oauth.deviceCodeGrantRequest(as, client, nobody, started.device_code, bound);
    try {
      return await oauth.processDeviceCodeResponse(as, client, answer);
    } catch (error) {
      if (!["authorization_pending", "slow_down"].includes(error.error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, started.interval * 1000));
    }
  }
}

const headers = (more = {}) =>
  new Headers({
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
    ...more,
  });
const message = (method, params) => JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
async function request(token, method, more, body) {
  const once = () => oauth.protectedResourceRequest(token, method, new URL(endpoint), headers(more), body, bound);
  try {
    return await once();
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error;
    return once(); // with the nonce that came with the refusal
  }
}

async function echo(token, text) {
  const answer = await request(token, "POST", {}, message("tools/call", { name: "echo", arguments: { text } }));
  return (await answer.json()).result.content[0].text;
}

const tokens = await (way === "device" ? byDevice() : byBrowser());
const said = [await echo(tokens.access_token, "with a key")];

// A refresh without the key, or with another, is worth nothing, and ends nobody's login.
const refresh = (options) => oauth.refreshTokenGrantRequest(as, client, nobody, tokens.refresh_token, options);
const without = [];
for (const options of [insecure, { DPoP: await handle(), ...insecure }]) {
  without.push((await (await refresh(options)).json()).error);
}
const renewed = await oauth.processRefreshTokenResponse(as, client, await refresh(bound));
const token = renewed.access_token;
said.push(await echo(token, "renewed"));

// A session of the key's owner; somebody who has read token and session off the wire is not let into it.
const begun = await request(
  token,
  "POST",
  {},
  message("initialize", {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "oauth4webapi", version: "1" },
  }),
);
await begun.text();
const session = { "mcp-session-id": begun.headers.get("mcp-session-id") };
const stream = await request(token, "GET", session);
const opened = [stream.status, stream.headers.get("content-type")];
const seen = [];
const spy = async (url, options) => {
  seen.push(options.headers.get?.("dpop") ?? options.headers.dpop);
  return fetch(url, options);
};
await (
  await oauth.protectedResourceRequest(
    token, "POST", new URL(endpoint), headers(session), message("ping"), { ...bound, [oauth.customFetch]: spy },
  )
).text();
const stolen = {};
for (const method of ["POST", "GET", "DELETE"]) {
  stolen[method] = [];
  for (const shown of [
    { authorization: `Bearer ${token}` },
    { authorization: `DPoP ${token}` },
    { authorization: `DPoP ${token}`, dpop: seen[0] }, // caught with its request: used, and for a POST
  ]) {
    const body = method === "POST" ? message("ping") : undefined;
    const answer = await fetch(endpoint, { method, headers: headers({ ...session, ...shown }), body });
    await answer.body?.cancel();
    stolen[method].push(answer.status);
  }
}
await stream.body.cancel();
const ended = await request(token, "DELETE", session);
await ended.body?.cancel();

await oauth.processRevocationResponse(
  await oauth.revocationRequest(as, client, nobody, renewed.refresh_token, insecure),
);
let afterwards;
try {
  afterwards = (await request(token, "POST", {}, message("ping"))).status;
} catch (error) {
  afterwards = error.cause.map(({ scheme, parameters }) => `${scheme} ${parameters.error ?? ""}`.trim());
}
close();
say({
  answer: { kind: [tokens.token_type, renewed.token_type], said, without, opened, stolen, ended: ended.status, afterwards },
});
