// Pays for calls with @x402/fetch, the way its users do: a new client, and connections of its own, for each.
// usage: node fetch_payer.mjs
//
// It prints the port at which it is asked, and ends with its standard input. A connection is one call: a JSON object with `key`, `client` (fetch
// or sign), `version`, `url`, `sent` and `headers` comes, and what came of the call goes, one JSON object. What is sent, a text, is posted to the
// address. With version 1 the client is not shown the header in which a server speaks version 2. `sign` sends nothing: its answer is a payment
// for what is "sent", a server's demand, and the header that carries it.
import { createServer } from "node:net";
import { text } from "node:stream/consumers";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { ExactEvmSchemeV1 } from "@x402/evm/v1";
import { wrapFetchWithPayment, x402Client, x402HTTPClient } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

await fetch("data:,"); // Node makes its own agent with the first
const { constructor: Agent } = globalThis[Symbol.for("undici.globalDispatcher.1")];

async function outcome({ key, client, version, url, sent, headers }) {
  const account = privateKeyToAccount(key);
  const paying = x402Client.fromConfig({
    // `sign` signs whatever it is told to.
    ...(client === "sign" ? { spendControls: false } : {}),
    schemes: [
      { network: "eip155:*", client: new ExactEvmScheme(account) },
      { network: "base-sepolia", client: new ExactEvmSchemeV1(account), x402Version: 1 },
    ],
  });
  const http = new x402HTTPClient(paying);
  const dispatcher = new Agent();
  const request =
    sent === null
      ? { headers }
      : { method: "POST", body: sent, headers: { ...headers, "Content-Type": "application/json" } };

  async function plain(asked, more) {
    const response = await fetch(asked, { ...more, dispatcher, signal: AbortSignal.timeout(60_000) });
    if (version !== 1) return response;
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

  try {
    return { ...(await (client === "sign" ? sign() : pay())), error: null };
  } catch (error) {
    const cause = error.cause ? `: ${error.cause.code ?? error.cause.message}` : "";
    return { status: null, body: null, receipt: null, failed: true, error: `${error.name}: ${error.message}${cause}` };
  } finally {
    await dispatcher.destroy();
  }
}

const server = createServer({ allowHalfOpen: true }, async (asked) => {
  asked.on("error", () => {}); // nobody waits any more
  asked.end(JSON.stringify(await outcome(JSON.parse(await text(asked)))));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
