"""The alerts and the dashboard in docs/monitoring know numbers that there are, and each alert is explained where it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ALERTS = (ROOT / "docs/monitoring/alerts.yml").read_text("utf-8")
DASHBOARD = (ROOT / "docs/monitoring/dashboard.json").read_text("utf-8")
NAMES = set(re.findall(r"^- alert: (\w+)$", re.sub(r"(?m)^ +", "", ALERTS), re.MULTILINE))


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
        paragraph = re.search(rf"^### {name}\n\n([^#]+)", explained, re.MULTILINE)
        assert paragraph is not None and len(paragraph[1]) > 100, name
        assert f"runbook: operating.md#{name.lower()}\n" in ALERTS
    assert set(re.findall(r"^### (Ostiary\w+)$", explained, re.MULTILINE)) == NAMES


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(DASHBOARD)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) and dashboard["uid"] == "ostiary"
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["targets"] and all(target["expr"] for target in panel["targets"])
