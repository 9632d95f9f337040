"""What a typed line means in each field of a form, and which forms are drawn at all."""

from __future__ import annotations

from typing import Any

import pytest

from server.client.client_errors import BadAnswer
from server.client.server_questions import PageQuestion, read_questions
from server.client.typed_forms import BadValue, FormField, nothing, parse, read_form, wanted
from server.mcp.call_questions import Question as ServerQuestion
from server.mcp.call_questions import QuestionMethod

ROOMS = [{"const": "g", "title": "The garden"}, {"const": "2", "title": "The hall"}]


def field(required: bool = True, **described: Any) -> FormField:
    (found,) = read_form(
        {"type": "object", "properties": {"x": described}, "required": ["x"] if required else []}
    )
    return found


def choices(**more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"anyOf": [*ROOMS, {"const": "c", "title": "Bar, cellar"}]}, **more}


@pytest.mark.parametrize(
    ("described", "text", "value"),
    [
        ({"type": "string"}, " as typed ", " as typed "),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", "abc"),
        ({"type": "integer"}, " -3 ", -3),
        ({"type": "integer", "minimum": 1, "maximum": 8}, "8", 8),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "1.5e2", 150.0),
        ({"type": "number"}, ".5", 0.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "boolean"}, "false", False),
        ({"type": "string", "oneOf": ROOMS}, "g", "g"),
        ({"type": "string", "oneOf": ROOMS}, "the HALL", "2"),
        ({"type": "string", "oneOf": ROOMS}, "2", "2"),
        ({"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}, "Large", "l"),
        ({"type": "string", "enum": ["a", "A"]}, "A", "A"),
        (choices(), "g, 2,g", ["g", "2"]),
        (choices(), "Bar, cellar", ["c"]),
        ({"type": "string", "format": "email"}, " ada.l+x@mail.example.org", "ada.l+x@mail.example.org"),
        ({"type": "string", "format": "uri"}, "https://example.org/a?b=%20#c", "https://example.org/a?b=%20#c"),
        ({"type": "string", "format": "uri"}, "mailto:ada@example.org", "mailto:ada@example.org"),
        ({"type": "string", "format": "date"}, "2028-02-29", "2028-02-29"),
        ({"type": "string", "format": "date-time"}, "2026-12-24 18:30Z", "2026-12-24T18:30:00Z"),
        (
            {"type": "string", "format": "date-time"},
            "2026-12-24t18:30:01.1234567+01:00",
            "2026-12-24T18:30:01.1234567+01:00",
        ),
        ({"type": "string", "format": "unheard-of"}, "anything", "anything"),
    ],
)  # fmt: skip
def test_a_line_becomes_the_value_that_it_means(described: dict[str, Any], text: str, value: Any) -> None:
    found = parse(field(**described), text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("described", "text", "said"),
    [
        ({"type": "string"}, "left\x1b[D", "control characters"),
        ({"type": "string"}, "c1\x9b", "control characters"),
        ({"type": "string", "minLength": 2}, "a", "at least 2 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 character$"),
        ({"type": "integer"}, "1.0", "whole number"),
        ({"type": "integer"}, "9007199254740992", "whole number"),
        ({"type": "integer"}, "٣", "whole number"),
        ({"type": "integer", "minimum": 1}, "0", "at least 1"),
        ({"type": "number", "maximum": 1.5}, "1.6", r"at most 1\.5"),
        ({"type": "number"}, "1e999", "too large"),
        ({"type": "number"}, "nan", "not a number"),
        ({"type": "number"}, "1,5", "not a number"),
        ({"type": "boolean"}, "1", "yes or no"),
        ({"type": "string", "oneOf": ROOMS}, "1", "the choices are g, 2$"),
        ({"type": "string", "enum": ["ab", "AB"]}, "aB", "the choices"),
        (choices(minItems=2), "g,g", "at least 2"),
        (choices(maxItems=1), "g,c", "at most 1"),
        (choices(), "g,x", "the choices"),
        ({"type": "string", "format": "email"}, "ada", "e-mail address: write it as ada@example.org"),
        ({"type": "string", "format": "email"}, "a b@example.org", "e-mail"),
        ({"type": "string", "format": "email"}, "a..b@example.org", "e-mail"),
        ({"type": "string", "format": "email"}, "ada@-x.example", "e-mail"),
        ({"type": "string", "format": "email"}, "a@" + "b" * 300, "e-mail"),
        ({"type": "string", "format": "uri"}, "example.org", "full address"),
        ({"type": "string", "format": "uri"}, "https://", "full address"),
        ({"type": "string", "format": "uri"}, "https:///x", "full address"),
        ({"type": "string", "format": "uri"}, "https://example.org/a b", "full address"),
        ({"type": "string", "format": "uri"}, "https://example.org:port", "full address"),
        ({"type": "string", "format": "date"}, "2026-02-30", "a date: write it as 2026-12-24"),
        ({"type": "string", "format": "date"}, "20261224", "date"),
        ({"type": "string", "format": "date-time"}, "2026-12-24 18:30", "with its zone"),
        ({"type": "string", "format": "date-time"}, "2026-12-24 25:30Z", "with its zone"),
        ({"type": "string", "format": "date-time"}, "2026-13-24 18:30Z", "with its zone"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_told_what_would(described: dict[str, Any], text: str, said: str) -> None:
    with pytest.raises(BadValue, match=said):
        parse(field(**described), text)


def test_a_number_is_the_place_of_an_option_where_options_have_numbers() -> None:
    assert parse(field(type="string", oneOf=ROOMS), "2", by_number=True) == "2"
    assert parse(field(type="string", oneOf=[ROOMS[1], ROOMS[0]]), "2", by_number=True) == "g"
    assert parse(field(type="string", oneOf=ROOMS), "the garden", by_number=True) == "g"
    assert parse(field(**choices()), "3 1", by_number=True) == ["c", "g"]
    assert parse(field(**choices()), "3, the garden", by_number=True) == ["c", "g"]
    assert parse(field(type="integer"), "7", by_number=True) == 7
    for text in ("0", "3", "9999"):
        with pytest.raises(BadValue, match="the choices are 1 to 2"):
            parse(field(type="string", oneOf=ROOMS), text, by_number=True)


@pytest.mark.parametrize(
    ("described", "required", "value"),
    [
        ({"type": "string"}, False, None),
        ({"type": "string", "default": "d"}, True, "d"),
        ({"type": "boolean", "default": False}, True, False),
        ({"type": "integer", "default": 0}, False, 0),
        (choices(), True, []),
        (choices(default=["c"]), True, ["c"]),
    ],
)
def test_nothing_typed_takes_the_default_or_leaves_the_field_out(
    described: dict[str, Any], required: bool, value: Any
) -> None:
    assert nothing(field(required, **described)) == value


@pytest.mark.parametrize(
    "described",
    [
        {"type": "string"},
        {"type": "string", "default": 7},
        {"type": "string", "format": "date", "default": "soon"},
        {"type": "string", "default": "\x1b[2J"},
        {"type": "integer", "default": True},
        {"type": "integer", "default": 10**400},
        {"type": "integer", "default": 9, "maximum": 8},
        {"type": "boolean", "default": "yes"},
        {"type": "string", "enum": ["a"], "default": "b"},
        choices(minItems=1),
        choices(minItems=1, default=["x"]),
        choices(minItems=1, default=[["g"]]),
    ],
)
def test_what_is_needed_is_needed_whatever_unfit_default_there_is(described: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match="needed"):
        nothing(field(**described))


def test_a_prompt_says_what_to_type() -> None:
    assert wanted(field(type="string", minLength=1)) == "text"
    assert wanted(field(type="string", minLength=2, maxLength=20)) == "text, 2 to 20 characters"
    assert wanted(field(type="string", format="date")) == "date, as in 2026-12-24"
    assert wanted(field(type="integer", minimum=1)) == "whole number, at least 1"
    assert wanted(field(type="number", maximum=0.5)) == "number, at most 0.5"
    assert wanted(field(type="boolean")) == "yes or no"
    assert wanted(field(type="string", enum=["a", "b"])) == "one of 1 to 2"
    assert wanted(field(**choices(maxItems=2))) == "any of 1 to 3, with commas, at most 2 of them"


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "object"},
        {"properties": {}},
        {"type": "object", "properties": {"x": 1}},
        {"type": "object", "properties": {"x": {"type": "object"}}},
        {"type": "object", "properties": {"x": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"x": {"type": "string", "enum": []}}},
        {"type": "object", "properties": {"x": {"type": "string", "enum": [1]}}},
        {"type": "object", "properties": {"x": {"type": "string", "oneOf": [{"title": "t"}]}}},
        {"type": "object", "properties": {"x": {"type": "string", "enum": list(map(str, range(1001)))}}},
        {"type": "object", "properties": {"": {"type": "string"}}},
        {"type": "object", "properties": {"x" * 129: {"type": "string"}}},
        {"type": "object", "properties": {str(number): {"type": "string"} for number in range(65)}},
    ],
)
def test_a_form_that_cannot_be_drawn_is_refused(schema: Any) -> None:
    with pytest.raises(BadAnswer, match="the server asks"):
        read_form(schema)


def page(url: Any) -> dict[str, ServerQuestion]:
    return asks("elicitation/create", mode="url", message="open it", url=url)


def asks(method: QuestionMethod, **params: Any) -> dict[str, ServerQuestion]:
    return {"k": ServerQuestion(method=method, params=params)}


def test_a_page_comes_with_the_host_that_it_is_on() -> None:
    (question,) = read_questions(page("https://a.example:8443/b"), frozenset({"form", "url"})).values()
    assert question == PageQuestion(message="open it", url="https://a.example:8443/b", host="a.example:8443")


@pytest.mark.parametrize(
    "url",
    [
        None,
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://good.example@evil.example/",
        "https://good.example\\@evil.example/",
        "https://a.example/ send this",
        "https://a.example/\x1b[2J",
        "https://a.example:port/",
        "https://аpple.example/",
        "https://a.example/" + "x" * 4096,
    ],
)
def test_an_address_that_could_mislead_is_not_shown(url: Any) -> None:
    with pytest.raises(BadAnswer, match="https URL"):
        read_questions(page(url), frozenset({"form", "url"}))


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        (asks("sampling/createMessage"), "asks for sampling/createMessage"),
        (asks("roots/list"), "asks for roots/list"),
        (page("https://a.example"), "asks for a page to be opened"),
        ({str(number): page("x")["k"] for number in range(33)}, "more than 32"),
    ],
)
def test_a_question_of_a_kind_that_was_not_offered_is_not_put_to_anybody(
    questions: dict[str, ServerQuestion], said: str
) -> None:
    with pytest.raises(BadAnswer, match=said):
        read_questions(questions, frozenset({"form"}))
