"""What a client can be asked, which questions are put to it, and which of its answers can be used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.mcp.call_questions import (
    ABILITIES,
    MAX_ANSWER_BYTES,
    MAX_MESSAGE,
    MAX_QUESTION_BYTES,
    MAX_ROOTS,
    BadQuestion,
    Question,
    abilities,
    check_question,
    for_revision,
    missing,
    needed,
    problem,
)
from server.mcp.elicitation_forms import problem_in_form
from server.mcp.versions import LATEST, LATEST_LEGACY, REVISIONS, UNNAMED

SECRET = "what-was-typed"
JUNE = REVISIONS["2025-06-18"]
TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
EVERY_FIELD: dict[str, Any] = {
    "text": {
        "type": "string",
        "title": "T",
        "description": "D",
        "minLength": 1,
        "maxLength": 9,
        "default": "x",
    },
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "moment": {"type": "string", "format": "date-time"},
    "number": {"type": "number", "minimum": 0.5, "maximum": 9, "default": 2},
    "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
    "sure": {"type": "boolean", "default": False},
    "plain": {"type": "string", "enum": ["r", "g"], "default": "g"},
    "legacy": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
    "titled": {"type": "string", "oneOf": TITLED, "default": "r"},
    "many": {
        "type": "array",
        "items": {"type": "string", "enum": ["r", "g"]},
        "minItems": 1,
        "maxItems": 2,
        "default": ["r"],
    },
    "many_titled": {"type": "array", "items": {"anyOf": TITLED}},
}
FITTING: dict[str, Any] = {
    "text": "abc",
    "mail": "a@b.example",
    "page": "https://a.example/",
    "day": "2026-01-31",
    "moment": "2026-01-31T10:00:00Z",
    "number": 1.5,
    "count": 3,
    "sure": True,
    "plain": "r",
    "legacy": "g",
    "titled": "g",
    "many": ["g", "r"],
    "many_titled": [],
}


def form(properties: dict[str, Any] | None = None, **more: Any) -> Question:
    schema = {"type": "object", "properties": EVERY_FIELD if properties is None else properties}
    return Question(
        method="elicitation/create", params={"message": "Please", "requestedSchema": schema} | more
    )


def page(url: str = "https://a.example/x", **more: Any) -> Question:
    return Question(method="elicitation/create", params={"mode": "url", "message": "Go", "url": url} | more)


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {
        "role": role,
        "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks],
    }


def sampling(*messages: dict[str, Any], **more: Any) -> Question:
    return Question(
        method="sampling/createMessage",
        params={"messages": list(messages or (said("user", "Hi"),)), "maxTokens": 100} | more,
    )


ROOTS = Question(method="roots/list", params={})
TOOL = {"name": "add", "description": "adds", "inputSchema": {"type": "object"}}
USE = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
OUTCOME = {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "3"}]}


# What a client can be asked


@pytest.mark.requirement("meta.plain-elicitation")
@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        ({}, set()),
        ({"elicitation": {}}, {"elicitation"}),
        ({"elicitation": {"form": {}}}, {"elicitation"}),
        ({"elicitation": {"form": {"applyDefaults": True}}}, {"elicitation"}),
        ({"elicitation": {"applyDefaults": True}}, {"elicitation"}),
        ({"elicitation": {"url": {}}}, {"elicitation.url"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"elicitation", "elicitation.url"}),
        ({"sampling": {}}, {"sampling"}),
        ({"sampling": {"context": {}}}, {"sampling"}),
        ({"sampling": {"tools": {}}}, {"sampling", "sampling.tools"}),
        ({"roots": {"listChanged": True}, "experimental": {"a": {}}}, {"roots"}),
        ({"elicitation": True, "sampling": None, "roots": [], "tools": 1}, set()),
        ({"elicitation": {"form": None, "url": 1}}, set()),
        ({"sampling": {"tools": False}}, {"sampling"}),
        (None, set()),
        ([], set()),
        ("elicitation", set()),
    ],
)
def test_what_a_client_declares_is_what_it_can_be_asked(capabilities: Any, can: set[str]) -> None:
    assert abilities(capabilities) == can


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["elicitation", "form", "url", "sampling", "tools", "roots"]), inner
            )
        ),
    )
)
def test_no_capabilities_are_too_odd_to_be_read(capabilities: Any) -> None:
    assert abilities(capabilities) <= set(ABILITIES)


def test_a_revision_leaves_out_what_it_does_not_have() -> None:
    everything = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
    assert abilities(everything, LATEST) == abilities(everything, LATEST_LEGACY) == set(ABILITIES)
    assert abilities(everything, JUNE) == {"elicitation", "sampling", "roots"}
    assert abilities(everything, UNNAMED) == {"sampling", "roots"}


@pytest.mark.parametrize(
    ("question", "ability"),
    [
        (form(), "elicitation"),
        (form(mode="form"), "elicitation"),
        (page(), "elicitation.url"),
        (sampling(), "sampling"),
        (sampling(tools=[TOOL]), "sampling.tools"),
        (sampling(toolChoice={"mode": "none"}), "sampling.tools"),
        (ROOTS, "roots"),
    ],
)
def test_every_question_needs_one_ability(question: Question, ability: str) -> None:
    assert needed(question) == ability
    assert missing({"q": question}, frozenset({ability})) == {}


@pytest.mark.requirement("meta.missing-capability")
@pytest.mark.parametrize(
    ("questions", "can", "required"),
    [
        ([], (), {}),
        ([form()], (), {"elicitation": {"form": {}}}),
        ([form(), page()], (), {"elicitation": {"form": {}, "url": {}}}),
        ([form(), page()], ("elicitation",), {"elicitation": {"url": {}}}),
        ([sampling()], (), {"sampling": {}}),
        ([sampling(), sampling(tools=[TOOL])], ("sampling",), {"sampling": {"tools": {}}}),
        ([ROOTS, sampling()], ("elicitation",), {"roots": {}, "sampling": {}}),
    ],
)
def test_what_is_missing_is_said_as_the_capabilities_to_declare(
    questions: list[Question], can: tuple[str, ...], required: dict[str, Any]
) -> None:
    asked = {str(place): question for place, question in enumerate(questions)}
    assert missing(asked, frozenset(can)) == required


def test_a_client_that_declares_what_was_missing_can_be_asked() -> None:
    asked = {"a": form(), "b": page(), "c": sampling(tools=[TOOL]), "d": ROOTS}
    assert missing(asked, abilities(missing(asked, frozenset()))) == {}


# Which questions are put


@pytest.mark.parametrize(
    "question",
    [
        form(),
        form({}),
        form(mode="form"),
        form(requestedSchema={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        form(
            requestedSchema={
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": "T",
                "type": "object",
                "properties": {},
                "additionalProperties": False,
            }
        ),
        page(),
        page("http://127.0.0.1:8000/x?y=1#z"),
        sampling(),
        sampling({"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}}),
        sampling(
            systemPrompt="Be brief",
            temperature=0.5,
            stopSequences=["x"],
            includeContext="none",
            metadata={"a": 1},
            modelPreferences={"hints": [{"name": "m"}], "costPriority": 0.5},
        ),
        sampling(tools=[TOOL], toolChoice={"mode": "required"}),
        sampling(said("user", "Hi"), said("assistant", "let me", USE), said("user", OUTCOME), tools=[TOOL]),
        ROOTS,
    ],
)
def test_a_question_that_clients_understand_is_put(question: Question) -> None:
    check_question(question)


def field(**schema: Any) -> Question:
    return form({"f": schema})


@pytest.mark.requirement("ask.form")
@pytest.mark.requirement("ask.url")
@pytest.mark.requirement("ask.tool-loop")
@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (form(message=""), "message is empty"),
        (form(message="  \n"), "message is empty"),
        (form(message="x" * (MAX_MESSAGE + 1)), "message is longer"),
        (form(message=5), "$.message"),
        (Question(method="elicitation/create", params={}), "`message`"),
        (Question(method="elicitation/create", params={"message": "Hi"}), "`requestedSchema`"),
        (form(elicitationId="x"), "elicitationId"),
        (form(mode="page"), "$.mode"),
        (form(requestedSchema={"type": "array"}), "array"),
        (form(requestedSchema={"type": "object", "properties": {}, "required": ["a"]}), "'a'"),
        (form(requestedSchema={"type": "object", "properties": {}, "oneOf": []}), "oneOf"),
        (
            form(requestedSchema={"$schema": "https://x.example/", "type": "object", "properties": {}}),
            "usable",
        ),
        (form({f"f{n}": {"type": "string"} for n in range(65)}), "at most 64"),
        (form({"": {"type": "string"}}), "its name"),
        (field(), "type"),
        (field(type="object", properties={}), "object"),
        (field(type="array", items={"type": "object"}), "$.items.type"),
        (field(type="array", items={"type": "string"}), "neither enum nor anyOf"),
        (field(type="array", items={"enum": ["a"], "anyOf": TITLED}), "twice"),
        (field(type="array", items={"enum": ["a"]}, minItems=3, maxItems=2), "minItems is greater"),
        (field(type="array", items={"enum": ["a"]}, default=["b"]), "default"),
        (field(type=["string", "null"]), "field 'f': Expected `str`"),
        (field(anyOf=[{"type": "string"}]), "field 'f': Object missing required field `type`"),
        (field(type="string", pattern="a+"), "pattern"),
        (field(type="string", format="password"), "format"),
        (field(type="string", minLength=-1), "less than 0"),
        (field(type="string", minLength=3, maxLength=2), "minLength is greater"),
        (field(type="string", minLength=3, default="a"), "default"),
        (field(type="string", format="email", default="a"), "default"),
        (field(type="string", enum=[]), "no options"),
        (field(type="string", enum=["a", "a"]), "an option twice"),
        (field(type="string", enum=[1]), "int"),
        (field(type="string", enum=["a"], oneOf=TITLED), "its options twice"),
        (field(type="string", enum=["a"], enumNames=["A", "B"]), "enumNames"),
        (field(type="string", enumNames=["A"]), "enumNames"),
        (field(type="string", oneOf=[{"const": "a"}]), "title"),
        (field(type="string", oneOf=TITLED, default="b"), "default"),
        (field(type="integer", minimum=3, maximum=2), "minimum is greater"),
        (field(type="integer", default=1.5), "default"),
        (field(type="integer", minimum=3, default=2), "default"),
        (field(type="boolean", default="yes"), "default"),
        (page("not a url"), "not a full http"),
        (page("ftp://a.example/"), "not a full http"),
        (page("javascript:alert(1)"), "not a full http"),
        (page("https:///path"), "not a full http"),
        (page("https://a.example:99999/"), "not a URL"),
        (page("https://[::1/"), "not a URL"),
        (page("https://é.example/"), "not a full http"),
        (page("https://a.example/\n"), "not a full http"),
        (page("https://a.example/a b"), "percent-encoded"),
        (page("https://a.example\\@b.example/"), "percent-encoded"),
        (page("https://user:pass@a.example/"), "credentials"),
        (page("https://a.example/" + "x" * 5000), "longer"),
        (page(message=" "), "message is empty"),
        (page(requestedSchema={}), "requestedSchema"),
        (sampling(maxTokens=0), "maxTokens"),
        (sampling(maxTokens="5"), "maxTokens"),
        (sampling(messages=[]), "messages"),
        (sampling(messages=[said("user", "x")] * 257), "messages"),
        (sampling(said("system", "Hi")), "role"),
        (sampling(said("user")), "no content"),
        (sampling({"role": "user", "content": "Hi"}), "content"),
        (sampling(includeContext="allServers"), "includeContext"),
        (sampling(tools=[]), "tools"),
        (sampling(tools=[TOOL, TOOL]), "same name"),
        (sampling(tools=[{"name": "a"}]), "inputSchema"),
        (sampling(tools=[{"name": "a", "inputSchema": {}}]), "inputSchema"),
        (sampling(toolChoice={"mode": "any"}), "mode"),
        (sampling(max_tokens=5), "max_tokens"),
        (sampling(said("user", USE)), "assistant"),
        (sampling(said("assistant", USE)), "no tool_result"),
        (sampling(said("assistant", USE), said("user", "well")), "next message"),
        (sampling(said("assistant", USE), said("user", OUTCOME, "and")), "nothing else"),
        (sampling(said("assistant", USE), said("assistant", OUTCOME)), "of the user"),
        (sampling(said("assistant", USE, USE), said("user", OUTCOME)), "same id"),
        (sampling(said("user", OUTCOME)), "next message"),
        (sampling(systemPrompt="x" * MAX_QUESTION_BYTES), "larger than"),
        (sampling(metadata={"a": object()}), "not JSON"),
        (Question(method="roots/list", params={"a": 1}), "`a`"),
    ],
)
def test_a_question_that_clients_would_not_understand_is_refused_with_the_reason(
    question: Question, reason: str
) -> None:
    with pytest.raises(BadQuestion) as refused:
        check_question(question)
    text = str(refused.value)
    assert text.startswith(f"{question.method}: ")
    assert reason in text
    assert len(text) < 600


# Which answers can be used


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (form(), accept(**FITTING)),
        (form(), {"action": "accept"}),
        (form(), {"action": "accept", "content": None}),
        (form(), {"action": "decline"}),
        (form(), {"action": "cancel", "content": {"text": 5}}),
        (form(), accept(text="a", extra="x", more=["a"], _meta=1)),
        (form(), {"action": "accept", "content": {}, "_meta": {"a": 1}, "resultType": "complete"}),
        (page(), {"action": "accept"}),
        (page(), {"action": "accept", "content": {"a": {}}}),
        (sampling(), {"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m"}),
        (sampling(), said("assistant", "a", "b") | {"model": "m", "stopReason": "custom"}),
        (sampling(tools=[TOOL]), said("assistant", USE) | {"model": "m", "stopReason": "toolUse"}),
        (ROOTS, {"roots": []}),
        (ROOTS, {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B", "_meta": {}}]}),
    ],
)
def test_an_answer_that_fits_its_question_can_be_used(question: Question, answer: Any) -> None:
    check_question(question)
    assert problem(question, answer) is None


@pytest.mark.requirement("ask.content")
@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        *[(form(), answer, "not an object") for answer in (None, 5, SECRET, [SECRET], True)],
        (form(), {}, "action"),
        (form(), {"action": SECRET}, "action"),
        (form(), {"action": "accept", "content": SECRET}, "content"),
        (form(), {"action": "accept", "content": [SECRET]}, "content"),
        (form(), accept(text=5), "text: "),
        (form(), accept(text=SECRET), "text: "),
        (form(), accept(text=""), "text: "),
        (form(), accept(mail=SECRET), "mail: "),
        (form(), accept(page=SECRET), "page: "),
        (form(), accept(day="31.1.2026"), "day: "),
        (form(), accept(moment=SECRET), "moment: "),
        (form(), accept(number=0.4), "number: "),
        (form(), accept(count=1.5), "count: "),
        (form(), accept(count="3"), "count: "),
        (form(), accept(sure=SECRET), "sure: "),
        (form(), accept(plain=SECRET), "plain: "),
        (form(), accept(titled=SECRET), "titled: "),
        (form(), accept(many=[SECRET]), "many.0: "),
        (form(), accept(many=[]), "many: "),
        (form(), accept(many_titled=[SECRET]), "many_titled.0: "),
        (form(), accept(text=None), "text: "),
        (form(), accept(extra={"deep": SECRET}), "neither primitive"),
        (form(), accept(extra=[[SECRET]]), "neither primitive"),
        (form(), accept(text="a" * MAX_ANSWER_BYTES), "larger"),
        (form(), accept(text=object()), "not JSON"),
        (form(), accept(number=float("nan")), "number: "),
        (
            form(
                requestedSchema={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
            ),
            {"action": "accept"},
            '"a" is a required',
        ),
        (page(), {"action": SECRET}, "action"),
        (sampling(), {}, "role, content and model"),
        (sampling(), {"role": SECRET, "content": {"type": "text", "text": SECRET}, "model": "m"}, "role"),
        (sampling(), said("assistant", SECRET), "model"),
        (sampling(), {"role": "assistant", "content": SECRET, "model": "m"}, "content"),
        (sampling(), said("assistant", {"type": SECRET}) | {"model": "m"}, "content"),
        (sampling(), said("assistant", USE) | {"model": "m"}, "offered none"),
        (sampling(tools=[TOOL]), said("user", OUTCOME) | {"model": "m"}, "results of tools"),
        (ROOTS, {}, "roots"),
        (ROOTS, {"roots": SECRET}, "roots"),
        (ROOTS, {"roots": [SECRET]}, "roots"),
        (ROOTS, {"roots": [{"uri": f"https://{SECRET}"}]}, "file://"),
        (ROOTS, {"roots": [{"uri": "file:///a"}] * (MAX_ROOTS + 1)}, "more than"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_without_quoting_it(
    question: Question, answer: Any, reason: str
) -> None:
    text = problem(question, answer)
    assert text is not None
    assert reason in text
    assert SECRET not in text


def test_one_fault_in_a_form_is_enough() -> None:
    choices = {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}
    schema = {"type": "object", "properties": {"a": choices}}
    told = problem_in_form(schema, {"a": ["q"] * 200_000})
    assert told is not None
    assert told.startswith("a.0: ")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*EVERY_FIELD, "action", "content", "role", "model", "roots", "uri", "type"]),
            inner,
        )
    ),
    max_leaves=20,
)


@given(JUNK | st.fixed_dictionaries({"action": st.just("accept"), "content": JUNK}))
def test_no_answer_is_too_odd_to_be_judged(answer: Any) -> None:
    for question in (form(), page(), sampling(), ROOTS):
        found = problem(question, answer)
        assert found is None or 0 < len(found) < 600


# In the words of a revision


def test_the_latest_revision_takes_a_question_as_it_is() -> None:
    for question in (form(), form(mode="form"), page(), sampling(tools=[TOOL]), ROOTS):
        assert for_revision(question, LATEST) is question


@pytest.mark.requirement("ask.words")
def test_a_page_has_an_id_where_the_revision_wants_one() -> None:
    assert for_revision(page(), LATEST_LEGACY, elicitation_id="e1").params["elicitationId"] == "e1"
    assert "elicitationId" not in for_revision(page(), LATEST, elicitation_id="e1").params
    assert "elicitationId" not in for_revision(form(), LATEST_LEGACY, elicitation_id="e1").params
    with pytest.raises(ValueError, match="elicitationId"):
        for_revision(page(), LATEST_LEGACY)


def test_a_form_of_2025_06_has_no_mode_and_names_its_options_the_old_way() -> None:
    params = for_revision(form(mode="form"), JUNE).params
    assert params.keys() == {"message", "requestedSchema"}
    fields = params["requestedSchema"]["properties"]
    assert fields["titled"] == {
        "type": "string",
        "enum": ["r", "g"],
        "enumNames": ["Red", "Green"],
        "default": "r",
    }
    assert {name: field for name, field in fields.items() if name != "titled"} == {
        name: field for name, field in EVERY_FIELD.items() if name != "titled"
    }


def test_the_old_words_of_a_form_take_the_same_answers() -> None:
    old = for_revision(form(), JUNE)
    assert problem(old, accept(**FITTING)) is None
    assert problem(old, accept(titled="b")) is not None


def test_a_message_to_a_model_had_one_block_before_2025_11() -> None:
    question = sampling(
        said("user", "a", "b"), {"role": "assistant", "content": {"type": "text", "text": "c"}}
    )
    assert for_revision(question, JUNE).params["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "a"}},
        {"role": "user", "content": {"type": "text", "text": "b"}},
        {"role": "assistant", "content": {"type": "text", "text": "c"}},
    ]
    assert for_revision(question, LATEST_LEGACY) is question


@pytest.mark.parametrize(
    ("question", "version"),
    [
        (form(), "2025-03-26"),
        (page(), "2025-06-18"),
        (page(), "2024-11-05"),
        (sampling(tools=[TOOL]), "2025-06-18"),
    ],
)
def test_a_revision_is_not_asked_what_it_has_no_words_for(question: Question, version: str) -> None:
    with pytest.raises(ValueError, match=version):
        for_revision(question, REVISIONS[version], elicitation_id="e1")
