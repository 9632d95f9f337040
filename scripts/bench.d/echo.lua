-- One 2026-07-28 `tools/call` of an echo tool, over and over on kept-alive connections.
-- The token comes by the environment, because arguments are for every process to see.

local template = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{"%s":"hello"},'
  .. '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},'
  .. '"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}'

function init(arguments)
  wrk.method = "POST"
  wrk.body = template:format(arguments[1], arguments[2])
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Accept"] = "application/json, text/event-stream"
  wrk.headers["MCP-Protocol-Version"] = "2026-07-28"
  wrk.headers["Mcp-Method"] = "tools/call"
  wrk.headers["Mcp-Name"] = arguments[1]
  local token = os.getenv("BENCH_TOKEN")
  if token then wrk.headers["Authorization"] = "Bearer " .. token end
end

function done(summary, latency)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format(
    '\nRESULT {"requests":%d,"seconds":%.6f,"bytes":%d,"failed":%d,"p50_ms":%.4f,"p99_ms":%.4f}\n',
    summary.requests, summary.duration / 1e6, summary.bytes, failed,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
