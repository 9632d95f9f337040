-- One 2026-07-28 `tools/call` of an echo tool, over and over on kept-alive connections; every answer must say the same again.
-- After wrk's own arguments: the tool and its argument. The token comes by the environment, because arguments are for every
-- process to see.

local template = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{"%s":"hello"},'
  .. '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},'
  .. '"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}'
local threads = {}
local sent = 0

-- Not local: `done` asks each thread for them.
wrong = 0
wrong_answer = ""

function setup(thread)
  threads[#threads + 1] = thread
end

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
  -- The same call at the same time is one call where it costs money: so each says something else.
  if os.getenv("BENCH_VARIES") then
    request = function()
      sent = sent + 1
      return wrk.format(nil, nil, nil, (wrk.body:gsub('"hello"', '"hello ' .. sent .. '"')))
    end
  end
end

-- wrk itself takes an error in a 200 for a success.
function response(status, _, body)
  if status == 200 and body:find('"hello', 1, true) and not body:find('"error":', 1, true)
    and not body:find('"isError":%s*true') then return end
  wrong = wrong + 1
  if wrong == 1 then wrong_answer = status .. " " .. body:sub(1, 300) end
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout
  for _, thread in ipairs(threads) do
    failed = failed + thread:get("wrong")
    if thread:get("wrong") > 0 then io.stderr:write(thread:get("wrong_answer"), "\n") end
  end
  io.write(string.format(
    '\nRESULT {"requests":%d,"seconds":%.6f,"failed":%d,"p50_ms":%.4f,"p99_ms":%.4f}\n',
    summary.requests, summary.duration / 1e6, failed, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
