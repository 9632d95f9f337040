// contracts.sol as it lies on the chain. What this prints is kept in contracts.json: node compile.mjs > contracts.json
import { readFileSync } from "node:fs";
import solc from "solc";

const input = {
  language: "Solidity",
  sources: { "contracts.sol": { content: readFileSync(new URL("contracts.sol", import.meta.url), "utf8") } },
  settings: {
    evmVersion: "cancun",
    optimizer: { enabled: true, runs: 200 },
    // Nothing of the compiler's or of the source's is left in the code, so that it is the same wherever it is made.
    metadata: { appendCBOR: false, bytecodeHash: "none" },
    outputSelection: { "contracts.sol": { "*": ["evm.deployedBytecode.object", "evm.methodIdentifiers"] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
if (output.errors) {
  console.error(output.errors.map((error) => error.formattedMessage).join("\n"));
  process.exit(1);
}
const contracts = {};
for (const [name, { evm }] of Object.entries(output.contracts["contracts.sol"])) {
  if (evm.deployedBytecode.object) {
    contracts[name] = { code: `0x${evm.deployedBytecode.object}`, selectors: evm.methodIdentifiers };
  }
}
console.log(JSON.stringify(contracts, null, 2));
