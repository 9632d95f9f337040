"""The alerts and the dashboard in docs/monitoring know numbers that there are, and each alert is explained where it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from server.store.store_health import REASONS

ROOT = Path(__file__).parent.parent.parent.parent
ALERTS = (ROOT / "docs/monitoring/alerts.yml").read_text("utf-8")
DASHBOARD = (ROOT / "docs/monitoring/dashboard.json").read_text("utf-8")
CASES = (Path(__file__).parent / "alerts_test.yml").read_text("utf-8")
BOARD: Final[dict[str, Any]] = json.loads(DASHBOARD)
PANELS: Final[list[Any]] = BOARD["panels"]
VARIABLES: Final[list[str]] = [variable["name"] for variable in BOARD["templating"]["list"]]
NAMES = set(re.findall(r"^- alert: (\w+)$", re.sub(r"(?m)^ +", "", ALERTS), re.MULTILINE))

# Without these something is out of order, and nobody is told.
ALERTED = {
    "ostiary_agent_out_of_order",
    "ostiary_calls_missed_total",
    "ostiary_certificate_ends_at_seconds",
    "ostiary_clock_off_seconds",
    "ostiary_connections_accept_errors_total",
    "ostiary_connections_crashed_total",
    "ostiary_connections_over_cap_total",
    "ostiary_letters_dropped_total",
    "ostiary_log_lines_dropped_total",
    "ostiary_payments_unknown",
    "ostiary_processes_alive",
    "ostiary_processes_silent",
    "ostiary_store_confirmed_seconds",
    "ostiary_store_free_bytes",
    "ostiary_store_oldest_wait_seconds",
    "ostiary_store_writes_failed_total",
    "ostiary_telemetry_failures_total",
    "ostiary_tool_calls_total",
    "ostiary_worker_restarts_total",
    "ostiary_workers",
}
# Where somebody looks who was told of any of it.
SHOWN = {
    "ostiary_agent_out_of_order",
    "ostiary_certificate_ends_at_seconds",
    "ostiary_clock_off_seconds",
    "ostiary_connections_accept_errors_total",
    "ostiary_connections_over_cap_total",
    "ostiary_letters_dropped_total",
    "ostiary_letters_heard_total",
    "ostiary_letters_written_total",
    "ostiary_payments_unknown",
    "ostiary_processes_alive",
    "ostiary_processes_silent",
    "ostiary_store_confirmed_seconds",
    "ostiary_store_free_bytes",
    "ostiary_store_oldest_wait_seconds",
    "ostiary_store_waiting",
    "ostiary_store_writes_failed_total",
    "ostiary_tool_calls_total",
    "ostiary_worker_restarts_total",
    "ostiary_workers",
}


def test_what_they_look_at_is_counted() -> None:
    explained = (ROOT / "docs/metrics.md").read_text("utf-8")
    known = set(re.findall(r"^\| `(ostiary_\w+)", explained, re.MULTILINE))
    known |= {f"{name}_bucket" for name in known if name.endswith("_seconds")}
    for text in (ALERTS, DASHBOARD):
        asked = set(re.findall(r"\bostiary_\w+", text))
        assert len(asked) > 10 and asked <= known, asked - known


def test_labels_and_outcomes_are_those_that_are_counted() -> None:
    labels = {"instance", "job", "le"}
    for name, written in re.findall(
        r"`ostiary_\w+?(\w*)\{([\w,]+)\}`", (ROOT / "docs/metrics.md").read_text("utf-8")
    ):
        del name
        labels |= set(written.split(","))
    found = set(re.findall(r"(?:by \(|\{\{|\$labels\.)([\w, ]+)", DASHBOARD + ALERTS))
    used = {word for each in found for word in re.findall(r"\w+", each)}
    assert used - {"labels"} <= labels, used - labels
    outcomes = set(re.findall(r'outcome=~\\?"([\w|]+)', DASHBOARD + ALERTS))
    assert outcomes == {"error|failed|timeout|crashed"}


def test_every_alert_is_explained_where_it_says() -> None:
    explained = (ROOT / "docs/operating.md").read_text("utf-8")
    assert len(NAMES) > 10
    for name in NAMES:
        paragraph = re.search(rf"^### {name}\n\n(.+?)\n#", explained, re.MULTILINE | re.DOTALL)
        assert paragraph is not None and len(paragraph[1]) > 100, name
        assert f"runbook: operating.md#{name.lower()}\n" in ALERTS
    assert set(re.findall(r"^### (Ostiary\w+)$", explained, re.MULTILINE)) == NAMES


def test_what_has_to_be_known_is_in_an_alert_and_in_a_panel() -> None:
    for text, names in ((ALERTS, ALERTED), (DASHBOARD, SHOWN)):
        assert names <= set(re.findall(r"\bostiary_\w+", text)), names - set(
            re.findall(r"\bostiary_\w+", text)
        )


def test_each_reason_for_which_a_write_is_refused_wakes_somebody_but_that_the_server_stops() -> None:
    named = set(re.findall(r'reason=~?"([\w|]+)"', ALERTS))
    assert set("|".join(named).split("|")) == set(REASONS.values()) - {"closed"}


def test_each_alert_is_made_to_fire_and_not_to() -> None:
    looked_at = re.findall(r"alertname: (\w+)(?:, exp_alerts: (\[\])|\n +exp_alerts:\n +- )", CASES)
    assert len(looked_at) == CASES.count("alertname:")
    assert {name for name, silent in looked_at if silent} == NAMES
    assert {name for name, silent in looked_at if not silent} == NAMES


@pytest.mark.peers
def test_the_alerts_fire_for_what_is_written_down_and_for_nothing_that_is_like_it() -> None:
    said = promtool("test", "rules", "alerts_test.yml", folder=Path(__file__).parent)
    assert "SUCCESS" in said


@pytest.mark.peers
def test_prometheus_understands_each_question_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{panel['id']}:{target['refId']}", "expr": filled_in(target["expr"])}
        for panel in PANELS
        for target in panel.get("targets", ())
    ]
    # A rule file is YAML, and so is JSON.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", "rules.yml", folder=tmp_path)


def promtool(*arguments: str, folder: Path) -> str:
    if shutil.which("promtool") is None:
        pytest.fail("Prometheus is not installed: scripts/peers system")
    done = subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def filled_in(question: str) -> str:
    """As Grafana does it for everything at once."""
    for variable, value in (("$__rate_interval", "1m"), *((f"${name}", ".*") for name in VARIABLES)):
        question = question.replace(variable, value)
    assert "$" not in question
    return question


# ── the dashboard, by what Grafana takes ─────────────────────────────────────────────────────────────────────────────


def test_the_dashboard_can_be_imported() -> None:
    assert (BOARD["uid"], type(BOARD["schemaVersion"]), BOARD["title"]) == ("ostiary", int, "Ostiary")
    assert BOARD["templating"]["list"][0]["type"] == "datasource"
    assert "__inputs" not in BOARD  # nobody is asked anything: the source of data is a variable
    assert BOARD.get("id") is None  # it is another one in each Grafana
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        assert panel["type"] in {"row", "stat", "timeseries"}
        assert panel["title"]
        if panel["type"] == "row":
            assert (panel["collapsed"], panel["panels"]) == (False, [])
            continue
        assert panel["targets"]
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == list("ABCDEFGH"[: len(refs)])
        for target in panel["targets"]:
            assert target["expr"]
            assert target["instant"] is (panel["type"] == "stat") is not target["range"]
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in {"short", "percentunit", "s", "bytes", "reqps", "ops"}
        assert panel["fieldConfig"]["overrides"] == []
        if "thresholds" in defaults:
            # The first step has no value: everything below the next is it.
            values = [step["value"] for step in defaults["thresholds"]["steps"]]
            assert values[0] is None
            assert values[1:] == sorted(values[1:])


def test_no_panel_covers_another_and_each_row_heads_what_stands_below_it() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["w"] > 0 < place["h"] and place["x"] >= 0 <= place["y"] and place["x"] + place["w"] <= 24
        if panel["type"] == "row":
            assert (place["x"], place["w"], place["h"]) == (0, 24, 1)
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} covers {taken[x, y]}"
                taken[x, y] = panel["title"]
    assert len(taken) == 24 * (1 + max(y for _, y in taken)), "there is a hole"
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in PANELS]
    assert places == sorted(places)
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == [
        "Now", "Calls", "The door", "The store", "Nodes", "Money",
    ]  # fmt: skip


def test_each_variable_is_there_and_asks_the_source_that_was_chosen() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for variable in BOARD["templating"]["list"][1:]:
        assert variable["datasource"] == source
        assert variable["query"]["query"].startswith("label_values(")
        # A label that is not there at all is matched as well: of one process no series has a worker.
        assert (variable["includeAll"], variable["multi"], variable["allValue"]) == (True, True, ".*")
        for matcher in re.findall(r'\$(\w+)"', variable["query"]["query"]):
            assert matcher in VARIABLES
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == source
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= set(VARIABLES)
            assert "instance" in used


def test_whatever_a_legend_names_is_still_there_when_it_was_added_up() -> None:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            for kept in re.findall(r"\bby \(([\w, ]+)\)", target["expr"]):
                assert named <= set(kept.split(", ")), target
            for lost in re.findall(r"\bwithout \(([\w, ]+)\)", target["expr"]):
                assert not named & set(lost.split(", ")), target
            if re.match(r"(sum|min|max)\(", target["expr"]):
                assert not named, target


def test_nodes_and_their_workers_are_told_apart() -> None:
    at = next(index for index, panel in enumerate(PANELS) if panel["title"] == "Nodes")
    row: list[Any] = []
    for panel in PANELS[at + 1 :]:
        if panel["type"] == "row":
            break
        row.append(panel)
    assert len(row) == 6
    for panel in row:
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(legends) == len(set(legends))
        for target in panel["targets"]:
            assert "{{instance}}" in target["legendFormat"]
            # What is not the same for all workers of a node says which of them it is, and can be asked of one alone.
            of_workers = "{{worker}}" in target["legendFormat"]
            assert of_workers == ('worker=~"$worker"' in target["expr"])
            assert of_workers == (
                "without (worker)" not in target["expr"] and "ostiary_workers" not in target["expr"]
            )
