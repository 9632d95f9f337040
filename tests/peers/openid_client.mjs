// openid-client: registration, then a login by browser or by device code, a call, a refresh, and the end of the login.
// usage: node openid_client.mjs code|device ISSUER ENDPOINT

import * as client from "openid-client";

import { echo, listen, say } from "./loopback.mjs";

const [way, issuer, endpoint] = process.argv.slice(2);
const DEVICE = "urn:ietf:params:oauth:grant-type:device_code";
const { redirectUri, callback, close } = await listen("/cb");

const config = await client.dynamicClientRegistration(
  new URL(issuer),
  {
    client_name: `openid-client ${way}`,
    redirect_uris: way === "code" ? [redirectUri] : [],
    response_types: way === "code" ? ["code"] : [],
    grant_types: [way === "code" ? "authorization_code" : DEVICE, "refresh_token"],
    token_endpoint_auth_method: "client_secret_post",
  },
  undefined,
  { algorithm: "oauth2", execute: [client.allowInsecureRequests] },
);

async function byBrowser() {
  const verifier = client.randomPKCECodeVerifier();
  const state = client.randomState();
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: redirectUri,
    scope: "mcp",
    code_challenge: await client.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
  });
  say({ open: url.href });
  return client.authorizationCodeGrant(config, await callback, { pkceCodeVerifier: verifier, expectedState: state });
}

async function byDevice() {
  const started = await client.initiateDeviceAuthorization(config, { scope: "mcp" });
  say({ approve: started.verification_uri_complete });
  return client.pollDeviceAuthorizationGrant(config, started);
}

const tokens = await (way === "code" ? byBrowser() : byDevice());
const called = await echo(endpoint, tokens.access_token, "openid-client");
const renewed = await client.refreshTokenGrant(config, tokens.refresh_token);
const again = await echo(endpoint, renewed.access_token, "renewed");
await client.tokenRevocation(config, renewed.refresh_token);
const after = await fetch(endpoint, { method: "POST", headers: { authorization: `Bearer ${renewed.access_token}` } });
close();
say({ answer: { text: [called.text, again.text], scope: tokens.scope, afterwards: after.status } });
