// oidc-provider as a server of logins by device code, in memory: one public client, opaque tokens, refresh tokens that rotate.
// Prints `Listening on URL` like our own server, so that the bench can start either. GET /approve?user_code=… stands in for
// the person at the verification page. With an origin, a certificate and its key it is that place over TLS.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";

import Provider from "oidc-provider";

const SCOPE = "echo";
const DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code";

async function approve(provider, userCode) {
  const code = await provider.DeviceCode.findByUserCode(userCode.replace(/\W/g, ""));
  const { resource } = code.params;
  const grant = new provider.Grant({ accountId: "somebody", clientId: "bench" });
  grant.addOIDCScope(SCOPE);
  if (resource) grant.addResourceScope(resource, SCOPE);
  Object.assign(code, {
    accountId: "somebody",
    authTime: Math.floor(Date.now() / 1000),
    claims: {},
    expiresWithSession: false,
    grantId: await grant.save(),
    resource,
    scope: SCOPE,
  });
  await code.save();
}

const [origin, chain, key] = process.argv.slice(2);
const http = origin ? createSecureServer({ cert: readFileSync(chain), key: readFileSync(key) }) : createServer();
http.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${http.address().port}`;
  const provider = new Provider(origin ?? url, {
    clients: [
      {
        client_id: "bench",
        grant_types: [DEVICE_CODE, "refresh_token"],
        redirect_uris: [],
        response_types: [],
        scope: SCOPE,
        token_endpoint_auth_method: "none",
      },
    ],
    features: {
      deviceFlow: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        getResourceServerInfo: (_context, resource) => ({ accessTokenFormat: "opaque", audience: resource, scope: SCOPE }),
        useGrantedResource: () => true,
      },
    },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    issueRefreshToken: () => true,
    rotateRefreshToken: () => true,
    scopes: [SCOPE],
    ttl: { AccessToken: 3600, DeviceCode: 600, Grant: 86400, RefreshToken: 86400 },
  });
  const answer = provider.callback();
  http.on("request", (request, response) => {
    const asked = new URL(request.url, url);
    if (asked.pathname !== "/approve") return answer(request, response);
    approve(provider, asked.searchParams.get("user_code")).then(
      () => response.end("{}"),
      (error) => response.writeHead(500).end(JSON.stringify(String(error))),
    );
  });
  console.log(`Listening on ${url}`);
});
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));
