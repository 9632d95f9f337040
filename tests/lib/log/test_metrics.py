"""What Prometheus reads."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.lib.log.metrics import SECONDS, Metrics
from server.lib.log.prometheus_text import families_of, merged, render


def test_calls_and_requests_are_counted_and_durations_fall_into_their_buckets() -> None:
    metrics = Metrics("1.2.3")
    request_answered = metrics.counting_requests({"/mcp": "/mcp"})
    request_answered("/mcp", 200)
    request_answered("/mcp", 200)
    request_answered("/nonsense", 404)
    metrics.tool_called("main", "echo", "ok", 0.0005)
    metrics.tool_called("main", "echo", "error", 400.0)
    metrics.gauge("subscriptions", "Open streams", lambda: 3)
    metrics.counter("connections_accepted", "Accepted", lambda: 7)
    metrics.gauges("agent_out_of_order", "Bad ones", "agent", lambda: {"main[1]": 1})
    lines = render(families_of(metrics)).decode().splitlines()
    for line in (
        'ostiary_info{version="1.2.3"} 1.0',
        'ostiary_http_requests_total{route="/mcp",status="200"} 2.0',
        'ostiary_http_requests_total{route="other",status="404"} 1.0',
        'ostiary_tool_calls_total{outcome="ok",server="main",tool="echo"} 1.0',
        'ostiary_tool_call_seconds_bucket{le="0.0005",server="main",tool="echo"} 1.0',
        'ostiary_tool_call_seconds_bucket{le="300",server="main",tool="echo"} 1.0',
        'ostiary_tool_call_seconds_bucket{le="+Inf",server="main",tool="echo"} 2.0',
        'ostiary_tool_call_seconds_count{server="main",tool="echo"} 2.0',
        "ostiary_subscriptions 3.0",
        "ostiary_connections_accepted_total 7.0",
        "# TYPE ostiary_agent_out_of_order gauge",
        'ostiary_agent_out_of_order{agent="main[1]"} 1.0',
    ):
        assert line in lines


def counted() -> Metrics:
    metrics = Metrics("1.2.3")
    metrics.counting_requests({"/mcp": "/mcp"})("/mcp", 200)
    metrics.tool_called("main", 'a"quoted\\tool\n', "ok", 0.0005)
    metrics.tool_called("main", 'a"quoted\\tool\n', "ok", 2.0)
    metrics.gauge("subscriptions", "Open\nstreams, or a \\", lambda: 3)
    metrics.counter("connections_accepted", "Accepted", lambda: 7)
    return metrics


def test_prometheus_reads_what_is_exposed_with_its_types_and_help() -> None:
    families = {
        each.name: each for each in text_string_to_metric_families(render(families_of(counted())).decode())
    }
    assert {name: (each.type, each.documentation) for name, each in families.items()} == {
        "ostiary_info": ("gauge", "The running version"),
        "ostiary_http_requests": ("counter", "Requests answered"),
        "ostiary_tool_calls": ("counter", "Tool calls ended"),
        "ostiary_tool_call_seconds": ("histogram", "How long tool calls took"),
        "ostiary_subscriptions": ("gauge", "Open\nstreams, or a \\"),
        "ostiary_connections_accepted": ("counter", "Accepted"),
    }
    (call,) = families["ostiary_tool_calls"].samples
    assert (call.labels["tool"], call.value) == ('a"quoted\\tool\n', 2.0)
    seconds = families["ostiary_tool_call_seconds"].samples
    buckets = {each.labels["le"]: each.value for each in seconds if each.name.endswith("_bucket")}
    assert list(buckets) == [*map(str, SECONDS), "+Inf"]
    assert (buckets["0.0005"], buckets["1"], buckets["2.5"], buckets["+Inf"]) == (1.0, 1.0, 2.0, 2.0)
    ends = {each.name.rpartition("_")[2]: each.value for each in seconds if "le" not in each.labels}
    assert ends == {"count": 2.0, "sum": pytest.approx(2.0005)}


def test_a_server_that_was_never_called_exposes_its_families_all_the_same() -> None:
    names = {each.name for each in text_string_to_metric_families(render(families_of(Metrics("1"))).decode())}
    assert {"ostiary_http_requests", "ostiary_tool_calls", "ostiary_tool_call_seconds"} <= names


def test_of_several_processes_each_number_has_its_worker_and_their_sum_is_the_whole() -> None:
    both = merged({1: families_of(counted()), 2: families_of(counted())})
    text = render(both).decode()
    assert text.count("# TYPE ostiary_tool_calls_total counter\n") == 1
    families = {each.name: each for each in text_string_to_metric_families(text)}
    calls = families["ostiary_tool_calls"].samples
    assert [(each.labels["worker"], each.value) for each in calls] == [("1", 2.0), ("2", 2.0)]
    buckets = [each for each in families["ostiary_tool_call_seconds"].samples if each.name.endswith("_count")]
    assert [(each.labels["worker"], each.value) for each in buckets] == [("1", 2.0), ("2", 2.0)]
