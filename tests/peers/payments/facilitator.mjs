// The reference facilitator: @x402/core and @x402/evm behind the three paths of a facilitator, for one chain. Its first line on stdout
// is where it listens.
// usage: FACILITATOR_KEY=0x… node facilitator.mjs RPC-URL
import { createServer } from "node:http";
import { x402Facilitator } from "@x402/core/facilitator";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { registerExactEvmScheme } from "@x402/evm/exact/facilitator";
import { createPublicClient, createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";

const transport = http(process.argv[2]);
const chain = { chain: baseSepolia, transport, pollingInterval: 20, cacheTime: 0 };
const account = privateKeyToAccount(process.env.FACILITATOR_KEY);
const reading = createPublicClient(chain);
const wallet = createWalletClient({ ...chain, account });

// Two transactions sent at once would get one number.
let last = Promise.resolve();
const inTurn = (send) => (transaction) => {
  const sent = last.then(() => send(transaction));
  last = sent.catch(() => undefined);
  return sent;
};

const signer = toFacilitatorEvmSigner(
  {
    address: account.address,
    getCode: (question) => reading.getCode(question),
    readContract: (question) => reading.readContract(question),
    verifyTypedData: (question) => reading.verifyTypedData(question),
    waitForTransactionReceipt: (question) => reading.waitForTransactionReceipt(question),
    writeContract: inTurn((transaction) => wallet.writeContract(transaction)),
    sendTransaction: inTurn((transaction) => wallet.sendTransaction(transaction)),
  },
  { confirmationTimeoutMs: 20_000 },
);
const facilitator = new x402Facilitator();
registerExactEvmScheme(facilitator, { signer, networks: "eip155:84532" });

async function answer(method, path, body) {
  if (method === "GET" && path === "/supported") return [200, facilitator.getSupported()];
  if (method !== "POST" || !["/verify", "/settle"].includes(path)) return [404, { error: "not found" }];
  const { paymentPayload, paymentRequirements } = JSON.parse(body);
  return [200, await facilitator[path.slice(1)](paymentPayload, paymentRequirements)];
}

const server = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  let status, said;
  try {
    [status, said] = await answer(request.method, request.url, Buffer.concat(pieces).toString());
  } catch (error) {
    // As the examples of the reference do it: what it says of its inside is not for payers.
    [status, said] = [500, { error: error.message }];
  }
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(said));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
