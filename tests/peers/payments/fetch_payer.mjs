// Pays for one call with @x402/fetch, the way its users do, and prints what came of it: one JSON object.
// usage: PAYER_KEY=0x… node fetch_payer.mjs fetch|sign VERSION URL [JSON]
//
// JSON is posted to the address. PAYER_HEADERS has more headers, as JSON. With version 1 the client is not shown the header in which a server
// speaks version 2. `sign` sends nothing: it prints a payment for what JSON, a server's demand, asks for, and the header that carries it.
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { ExactEvmSchemeV1 } from "@x402/evm/v1";
import { wrapFetchWithPayment, x402Client, x402HTTPClient } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const [client, version, url, sent] = process.argv.slice(2);
const account = privateKeyToAccount(process.env.PAYER_KEY);
const paying = x402Client.fromConfig({
  // `sign` signs whatever it is told to.
  ...(client === "sign" ? { spendControls: false } : {}),
  schemes: [
    { network: "eip155:*", client: new ExactEvmScheme(account) },
    { network: "base-sepolia", client: new ExactEvmSchemeV1(account), x402Version: 1 },
  ],
});
const http = new x402HTTPClient(paying);
const headers = JSON.parse(process.env.PAYER_HEADERS ?? "{}");
const request =
  sent === undefined
    ? { headers }
    : { method: "POST", body: sent, headers: { ...headers, "Content-Type": "application/json" } };

async function plain(asked, more) {
  const response = await fetch(asked, { ...more, signal: AbortSignal.timeout(60_000) });
  if (version !== "1") return response;
  const shown = new Headers(response.headers);
  shown.delete("PAYMENT-REQUIRED");
  return new Response(response.body, { status: response.status, headers: shown });
}

async function pay() {
  const response = await wrapFetchWithPayment(plain, paying)(url, request);
  let receipt = null;
  try {
    receipt = http.getPaymentSettleResponse((name) => response.headers.get(name));
  } catch {
    // There is none.
  }
  return { status: response.status, body: await response.text(), receipt, failed: !response.ok };
}

async function sign() {
  const payment = await paying.createPaymentPayload(JSON.parse(sent));
  return { headers: http.encodePaymentSignatureHeader(payment), payment };
}

let found;
try {
  found = { ...(await (client === "sign" ? sign() : pay())), error: null };
} catch (error) {
  const cause = error.cause ? `: ${error.cause.code ?? error.cause.message}` : "";
  found = { status: null, body: null, receipt: null, failed: true, error: `${error.name}: ${error.message}${cause}` };
}
console.log(JSON.stringify(found));
