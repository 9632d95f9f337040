"""Whatever arguments hold, they are values: a request asks for what the document says, at the address that the settings say."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from api_pair import api, document
from hypothesis import given
from hypothesis import strategies as st

from server.agents.openapi.api_requests import PreparedRequest, Unsendable, prepare_request
from server.agents.openapi.openapi_document import read_document
from server.agents.openapi.operations import ApiOperation, read_operations

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def operation(data: bytes, name: str) -> ApiOperation:
    found, _ = read_operations(read_document(data), prefix="", include=(), exclude=())
    return next(each for each in found if each.tool == name)


BOOKS = operation(document("library"), "findBooks")
BOOK = operation(document("library"), "getBook")
LOAN = operation(document("library"), "post_loans")


def one(place: str, **how: Any) -> ApiOperation:
    path = "/a/{p}" if place == "path" else "/a"
    parameter = {"name": "p", "in": place, "schema": {}, **how}
    return operation(
        api({path: {"get": {"operationId": "x", "parameters": [parameter], "responses": {}}}}), "x"
    )


@given(TEXT)
def test_an_argument_in_a_path_is_one_step_of_it_or_refused(value: str) -> None:
    try:
        request = prepare_request(BOOK, "/v1", {"bookId": value})
    except Unsendable:
        steps = value.replace("\\", "/").split("/")
        assert not value or "." in steps or ".." in steps
        return
    parts = urlsplit(request.target)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("", "", "", "")
    assert parts.path.split("/")[:3] == ["", "v1", "books"]
    assert len(parts.path.split("/")) == 4
    assert unquote(parts.path.split("/")[3]) == value
    assert request.target.isascii()
    assert request.target.isprintable()


@given(TEXT, st.lists(st.sampled_from(["novel", "crime"]), min_size=1, max_size=3))
def test_arguments_in_a_query_are_its_values_and_nothing_more(title: str, genre: list[str]) -> None:
    request = prepare_request(BOOKS, "/", {"title": title, "genre": genre, "limit": 3})
    assert request.target == "/books"
    assert parse_qsl("&".join(request.query), keep_blank_values=True) == [
        ("title", title),
        ("genre", ",".join(genre)),
        ("limit", "3"),
    ]


@given(st.dictionaries(TEXT, TEXT, max_size=4))
def test_a_form_holds_what_it_was_given(fields: dict[str, str]) -> None:
    request = prepare_request(LOAN, "/", {"body": fields})
    assert parse_qsl(request.body.decode("ascii"), keep_blank_values=True) == list(fields.items())


@pytest.mark.parametrize(
    ("place", "how", "value", "written"),
    [
        ("path", {}, [1, 2], "/a/1,2"),
        ("path", {}, {"b": 1, "c": "x y"}, "/a/b,1,c,x%20y"),
        ("path", {"explode": True}, {"b": 1, "c": 2}, "/a/b=1,c=2"),
        ("path", {"style": "label"}, [1, 2], "/a/.1,2"),
        ("path", {"style": "label", "explode": True}, [1, 2], "/a/.1.2"),
        ("path", {"style": "label", "explode": True}, {"b": 1}, "/a/.b=1"),
        ("path", {"style": "matrix"}, [1, 2], "/a/;p=1,2"),
        ("path", {"style": "matrix", "explode": True}, [1, 2], "/a/;p=1;p=2"),
        ("path", {"style": "matrix", "explode": True}, {"b": 1, "c": 2}, "/a/;b=1;c=2"),
        ("query", {}, [1, 2], "p=1&p=2"),
        ("query", {"explode": False}, [1, 2], "p=1,2"),
        ("query", {"style": "spaceDelimited", "explode": False}, [1, 2], "p=1%202"),
        ("query", {"style": "pipeDelimited", "explode": False}, ["a|b", 2], "p=a%7Cb%7C2"),
        ("query", {}, {"b": 1, "c": True}, "b=1&c=true"),
        ("query", {"explode": False}, {"b": 1, "c": None}, "p=b,1,c,"),
        ("query", {"style": "deepObject"}, {"b": {"c": [1, 2]}}, "p%5Bb%5D%5Bc%5D=1&p%5Bb%5D%5Bc%5D=2"),
        ("query", {"allowReserved": True}, "a/b?c&d=e", "p=a/b?c%26d%3De"),
        ("query", {"content": {"application/json": {}}}, {"b": [1]}, "p=%7B%22b%22%3A%5B1%5D%7D"),
        ("query", {}, 42.0, "p=42"),
        ("query", {}, 4.5, "p=4.5"),
        ("header", {}, [1, "b"], "1,b"),
        ("header", {}, {"b": 1, "c": 2}, "b,1,c,2"),
        ("header", {"explode": True}, {"b": 1, "c": 2}, "b=1,c=2"),
        ("cookie", {}, "a;b", "p=a%3Bb"),
    ],
)
def test_each_style_is_written_as_the_specification_says(
    place: str, how: dict[str, Any], value: Any, written: str
) -> None:
    request: PreparedRequest = prepare_request(one(place, **how), "/", {"p": value})
    shown = {
        "path": request.target,
        "query": "&".join(request.query),
        "header": dict(request.headers).get("p"),
        "cookie": "; ".join(request.cookies),
    }
    assert shown[place] == written


def test_a_body_that_is_too_large_is_refused() -> None:
    with pytest.raises(Unsendable, match="more than 4 MiB"):
        prepare_request(LOAN, "/", {"body": {"x": "y" * (4 * 1024 * 1024)}})
