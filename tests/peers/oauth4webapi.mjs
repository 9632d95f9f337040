// oauth4webapi, the strict one: every answer of the server is validated by it.
// usage: node oauth4webapi.mjs code|device|par ISSUER ENDPOINT

import * as oauth from "oauth4webapi";

import { echo, listen, say } from "./loopback.mjs";

const [way, issuer, endpoint] = process.argv.slice(2);
const DEVICE = "urn:ietf:params:oauth:grant-type:device_code";
const insecure = { [oauth.allowInsecureRequests]: true };
const { redirectUri, callback, close } = await listen("/cb", "localhost");

// From the challenge to the authorization server, as RFC 9728 has it.
const refused = await fetch(endpoint, { method: "POST" });
const named = /resource_metadata="([^"]+)"/.exec(refused.headers.get("www-authenticate"))[1];
const resource = await (await fetch(named)).json();
const at = new URL(resource.authorization_servers[0]);
if (at.href !== new URL(issuer).href) throw new Error(`another issuer: ${at.href}`);
const found = await oauth.discoveryRequest(at, { algorithm: "oauth2", ...insecure });
const as = await oauth.processDiscoveryResponse(at, found);

const registration = await oauth.dynamicClientRegistrationRequest(
  as,
  {
    client_name: `oauth4webapi ${way}`,
    redirect_uris: way === "device" ? [] : [redirectUri],
    response_types: way === "device" ? [] : ["code"],
    grant_types: [way === "device" ? DEVICE : "authorization_code", "refresh_token"],
    token_endpoint_auth_method: "none",
  },
  insecure,
);
const client = await oauth.processDynamicClientRegistrationResponse(registration);
const proof = oauth.None();

async function byBrowser() {
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const asked = new URLSearchParams({
    client_id: client.client_id,
    redirect_uri: redirectUri,
    response_type: "code",
    scope: "mcp:tools",
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
    resource: resource.resource,
  });
  let query = asked;
  if (way === "par") {
    const pushed = await oauth.pushedAuthorizationRequest(as, client, proof, asked, insecure);
    const kept = await oauth.processPushedAuthorizationResponse(as, client, pushed);
    query = new URLSearchParams({ client_id: client.client_id, request_uri: kept.request_uri });
  }
  say({ open: `${as.authorization_endpoint}?${query}` });
  const back = oauth.validateAuthResponse(as, client, await callback, state);
  const answer = await oauth.authorizationCodeGrantRequest(as, client, proof, back, redirectUri, verifier, {
    additionalParameters: { resource: resource.resource },
    ...insecure,
  });
  return oauth.processAuthorizationCodeResponse(as, client, answer);
}

async function byDevice() {
  const started = await oauth.processDeviceAuthorizationResponse(
    as,
    client,
    await oauth.deviceAuthorizationRequest(as, client, proof, { scope: "mcp:tools" }, insecure),
  );
  say({ approve: started.verification_uri_complete });
  for (;;) {
    const answer = await oauth.deviceCodeGrantRequest(as, client, proof, started.device_code, insecure);
    try {
      return await oauth.processDeviceCodeResponse(as, client, answer);
    } catch (error) {
      if (!["authorization_pending", "slow_down"].includes(error.error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, started.interval * 1000));
    }
  }
}

const tokens = await (way === "device" ? byDevice() : byBrowser());
const called = await echo(endpoint, tokens.access_token, "oauth4webapi");
const renewed = await oauth.processRefreshTokenResponse(
  as,
  client,
  await oauth.refreshTokenGrantRequest(as, client, proof, tokens.refresh_token, insecure),
);
const again = await echo(endpoint, renewed.access_token, "renewed");
await oauth.processRevocationResponse(
  await oauth.revocationRequest(as, client, proof, renewed.refresh_token, insecure),
);
const after = await fetch(endpoint, { method: "POST", headers: { authorization: `Bearer ${renewed.access_token}` } });
close();
say({ answer: { text: [called.text, again.text], scope: tokens.scope, afterwards: after.status } });
