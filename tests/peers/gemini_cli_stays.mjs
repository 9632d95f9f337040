// Gemini CLI as a client that stays, in the handshake era, without an account: its model is this file, which has it call `echo` with
// each line that it reads, to the end of its input.
// usage: MCP_TOKEN=… node gemini_cli_stays.mjs URL        prints one JSON object for each line: what the program told its model

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("gemini_cli/node_modules/@google/gemini-cli/bundle/gemini.js", import.meta.url));
const TOOL = "mcp_door_echo";
const home = mkdtempSync(join(tmpdir(), "gemini-"));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// Where it is to look, and nothing that would leave this machine.
mkdirSync(join(home, ".gemini"));
writeFileSync(
  join(home, ".gemini", "settings.json"),
  JSON.stringify({
    mcpServers: { door: { httpUrl: process.argv[2], headers: { Authorization: "Bearer ${MCP_TOKEN}" }, trust: true } },
    security: { auth: { selectedType: "gemini-api-key" }, folderTrust: { enabled: false } },
    general: { enableAutoUpdate: false, maxAttempts: 1 },
    privacy: { usageStatisticsEnabled: false },
    telemetry: { enabled: false },
  }),
);

// Each question of the program to its model tells first what came of the call before.
let called = 0;
const model = createServer(async (request, response) => {
  const asked = JSON.parse(Buffer.concat(await request.toArray()));
  const answers = asked.contents.flatMap((content) => content.parts).filter((part) => part.functionResponse);
  if (answers.length !== called) throw new Error(`${called} calls and ${answers.length} answers`);
  if (called > 0) console.log(JSON.stringify(told(answers.at(-1).functionResponse.response)));
  const { value: text, done } = await lines.next();
  called += 1;
  const part = done ? { text: "That is all." } : { functionCall: { name: TOOL, args: { text } } };
  const said = { candidates: [{ index: 0, content: { role: "model", parts: [part] }, finishReason: "STOP" }] };
  response.writeHead(200, { "Content-Type": "text/event-stream" }).end(`data: ${JSON.stringify(said)}\r\n\r\n`);
});

function told({ output, error }) {
  const marked = /^<untrusted_context>\n(.*)\n<\/untrusted_context>$/s.exec(output ?? "");
  return error === undefined ? { text: marked ? marked[1] : output } : { error };
}

model.listen(0, "127.0.0.1", () => {
  const program = spawn(process.execPath, [PROGRAM, "--yolo", "--model", "gemini-2.5-flash", "--prompt", "Call echo."], {
    cwd: home,
    env: {
      PATH: process.env.PATH,
      HOME: home,
      GEMINI_API_KEY: "none",
      GOOGLE_GEMINI_BASE_URL: `http://127.0.0.1:${model.address().port}`,
      MCP_TOKEN: process.env.MCP_TOKEN,
    },
    stdio: ["ignore", 2, 2],
  });
  program.on("exit", (code) => process.exit(code ?? 1));
});
