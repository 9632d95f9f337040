"""What Prometheus reads."""

from server.observe.metrics import Metrics


def test_calls_and_requests_are_counted_and_durations_fall_into_their_buckets() -> None:
    metrics = Metrics("1.2.3")
    metrics.request("/mcp", 200)
    metrics.request("/mcp", 200)
    metrics.tool_called("main", "echo", "ok", 0.0005)
    metrics.tool_called("main", "echo", "error", 400.0)
    metrics.gauge("subscriptions", "Open streams", lambda: 3)
    metrics.counter("connections_accepted", "Accepted", lambda: 7)
    lines = metrics.exposition().decode().splitlines()
    for line in (
        'ostiary_info{version="1.2.3"} 1.0',
        'ostiary_http_requests_total{route="/mcp",status="200"} 2.0',
        'ostiary_tool_calls_total{outcome="ok",server="main",tool="echo"} 1.0',
        'ostiary_tool_call_seconds_bucket{le="0.0005",server="main",tool="echo"} 1.0',
        'ostiary_tool_call_seconds_bucket{le="300",server="main",tool="echo"} 1.0',
        'ostiary_tool_call_seconds_bucket{le="+Inf",server="main",tool="echo"} 2.0',
        'ostiary_tool_call_seconds_count{server="main",tool="echo"} 2.0',
        "ostiary_subscriptions 3.0",
        "ostiary_connections_accepted_total 7.0",
    ):
        assert line in lines
