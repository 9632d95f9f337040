"""The examples of docs/python.md and docs/python: every one is a file that is served, and does what the text says."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from shim_child import Child

DOCS = Path(__file__).parent.parent.parent.parent.parent / "docs"
EXAMPLES = [
    example
    for document in (DOCS / "python.md", *sorted((DOCS / "python").glob("*.md")))
    for example in re.findall(
        r"^```python\n(.*?)^```$", document.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
]

# The page that docs/python/pages.md shows.
PAGE = re.findall(
    r"^```html\n(.*?)^```$", (DOCS / "python" / "pages.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)[0]


def example_with(name: str) -> str:
    return next(example for example in EXAMPLES if f"def {name}(" in example)


@pytest.fixture
def shown(tmp_path: Path, children: ExitStack) -> Any:
    def start(example: str) -> Child:
        file = tmp_path / "agent.py"
        file.write_text(example, "utf-8")
        for page in ("dice.html", "map.html"):
            (tmp_path / page).write_text(PAGE, "utf-8")
        (tmp_path / "weather.py").write_text("def forecast() -> str:\n    return 'rain'\n", "utf-8")
        return children.enter_context(Child(file))

    return start


@pytest.mark.parametrize("example", EXAMPLES, ids=[re.findall(r"def (\w+)", text)[0] for text in EXAMPLES])
def test_every_example_is_served(shown: Any, example: str) -> None:
    ready = shown(example).hear()
    assert ready["event"] == "ready", ready


CALLS = [
    ("add", {"a": 2}, "3"),
    ("book", {"guests": [{"name": "Ada"}], "day": "2026-01-02"}, "1 in the hall on 02.01."),
    ("route", {"from": "a"}, "a → anywhere"),
    ("weather", {"city": "Rome"}, '{"degrees": 21.5, "sky": "clear"}'),
    ("weather", {"city": "Atlantis"}, "That city is under water. Try one on land."),
    ("in_detail", {}, "done"),
    ("tell", {"words": ["once", "upon"]}, "once upon "),
    ("count", {"up_to": 3}, "3"),
    ("rows", {"table": "guests"}, "0"),
    ("hello", {"name": " Ada "}, "Hello, Ada!"),
    ("erase", {"name": "Ada"}, "That is for administrators."),
    ("look", {}, "nothing to see"),
    ("home", {}, "here"),
    ("convert", {"amount": 10, "currency": "EUR"}, "11.0"),
    ("convert", {"amount": 10, "currency": "XYZ"}, "no rate for XYZ"),
]


@pytest.mark.parametrize(
    ("name", "arguments", "text"), CALLS, ids=[f"{call[0]}-{call[2][:8]}" for call in CALLS]
)
def test_an_example_answers_as_the_text_says(
    shown: Any, name: str, arguments: dict[str, Any], text: str
) -> None:
    child: Child = shown(example_with(name))
    child.hear()
    assert child.text(name, arguments) == text


def test_the_example_that_asks_takes_the_order(shown: Any) -> None:
    child: Child = shown(example_with("coffee"))
    child.hear()
    call = child.start("coffee")
    asked = child.hear()
    answers = {"ask-1": {"action": "accept", "content": {"name": "Ada", "size": "large"}}}
    child.tell({"do": "answer", "id": call, "ask": asked["ask"], "answers": answers})
    assert child.end(call)["result"]["content"][0]["text"] == "A large one for Ada."


def test_the_example_that_resumes_reserves_once(shown: Any) -> None:
    child: Child = shown(example_with("transfer"))
    child.hear()
    child.start("transfer", {"amount": 5})
    saved = child.hear()
    number = saved["data"]["number"]
    again = child.start("transfer", {"amount": 5}, resumed=saved["data"])
    asked = child.hear()
    assert (asked["id"], list(asked["questions"])) == (again, ["sure"])
    answers = {"sure": {"action": "accept", "content": {"value": True}}}
    child.tell({"do": "answer", "id": again, "ask": asked["ask"], "answers": answers})
    assert child.end(again)["result"]["content"][0]["text"] == f"{number} is done"


def test_the_example_that_changes_its_lists_tells_so(shown: Any) -> None:
    child: Child = shown(example_with("toggle"))
    child.hear()
    call = child.start("toggle")
    events = [child.hear() for _ in range(3)]
    assert {event["event"] for event in events} == {"updated", "catalog", "final"}
    assert events[-1]["id"] == call
    assert child.text("enter") == "inside"


def test_the_example_that_remembers_counts_for_each_conversation(shown: Any) -> None:
    child: Child = shown(example_with("rows"))
    child.hear()
    known = {"session": "s-1", "person": "Ada"}
    texts = [child.text("greet", caller=known) for _ in range(2)]
    assert texts == ["Hello, Ada! (1)", "Hello, Ada! (2)"]
    assert child.text("greet", caller={"session": "s-2"}) == "Hello, you! (1)"


def test_the_example_that_uses_other_tools_adds_up_what_they_say(shown: Any) -> None:
    child: Child = shown(example_with("price_of"))
    child.hear()
    call = child.start("order", {"items": ["tea", "tea"]})
    for _ in range(2):
        asked = child.hear()
        assert (asked["what"], asked["name"], asked["arguments"]) == ("tool", "price_of", {"item": "tea"})
        result = child.call("price_of", asked["arguments"])
        child.tell({"do": "used", "id": call, "ask": asked["ask"], "result": result})
    asked = child.hear()
    child.tell({"do": "not_used", "id": call, "ask": asked["ask"], "reason": "no such", "missing": True})
    assert child.end(call)["result"]["content"][0]["text"] == "500 cents, no note"


def test_the_example_of_defaults_and_that_of_parts_offer_what_they_say(shown: Any) -> None:
    example = next(example for example in EXAMPLES if "coerce=True)\n\n\n@tool\ndef add" in example)
    (add,) = shown(example).hear()["catalog"]["tools"]
    assert add["coerces"]
    assert add["outputSchema"]["properties"] == {"result": {"type": "integer"}}
    tools = shown(example_with("home")).hear()["catalog"]["tools"]
    assert [tool["name"] for tool in tools] == ["weather_forecast", "home"]
