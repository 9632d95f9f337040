"""From a document to tools: which there are, what they take and promise, and what is left out and why."""

from __future__ import annotations

import hashlib
import json
from io import StringIO
from typing import Any

import msgspec
import pytest
import structlog
import trio
from api_pair import NOBODY, api, config, document, opened
from msgspec import UNSET

from server.agents.base.catalog import Catalog, Source
from server.agents.openapi.api_schemas import SchemaWriter
from server.agents.openapi.openapi_agent import OpenApiBackend
from server.agents.openapi.openapi_document import ApiDocument, BadApi, read_document
from server.calls.rights.tiers import ServerRules
from server.mcp.call_failures import BackendError
from server.mcp.messages import Tool
from server.mcp.schema import ToolSchema
from tests.agents.python.fake_agent import fake_agent, says


async def tools_of(data: bytes, sink: StringIO | None = None, **settings: Any) -> dict[str, Tool]:
    async with opened(data, sink=sink, **settings) as under_test:
        return {tool.name: tool for tool in under_test.tools()}


async def refusal_of(data: bytes, **settings: Any) -> str:
    with pytest.raises(BackendError) as caught:
        await tools_of(data, **settings)
    return str(caught.value)


async def test_each_operation_is_a_tool_named_by_its_id_or_else_by_method_and_path() -> None:
    sink = StringIO()
    tools = await tools_of(document("library"), sink)
    assert list(tools) == [
        "findBooks", "addBook", "getBook", "replaceBook", "removeBook", "getCover", "post_loans", "opening_hours",
    ]  # fmt: skip
    told = json.loads(sink.getvalue())
    assert (told["event"], told["count"], told["offered"]) == ("openapi.left_out", 1, 8)
    assert told["operations"] == [
        "POST /books/{bookId}/cover: its body is multipart/form-data; JSON, forms and text can be sent, files cannot"
    ]
    # All of them can be offered together with others.
    Catalog([Source(name="api", backend=BackendWith(list(tools.values())))])


class BackendWith:
    def __init__(self, tools: list[Tool]) -> None:
        self._tools = tools

    def tools(self) -> list[Tool]:
        return self._tools

    async def call(self, call: Any, outlet: Any) -> Any:
        raise AssertionError

    async def aclose(self) -> None: ...


async def test_what_a_method_does_to_the_world_is_hinted_and_settles_the_tier() -> None:
    tools = await tools_of(document("library"))
    hints = {
        name: msgspec.to_builtins(tools[name].annotations)
        for name in ("getBook", "addBook", "replaceBook", "removeBook")
    }
    assert hints == {
        "getBook": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True},
        "addBook": {"openWorldHint": True},
        "replaceBook": {"idempotentHint": True, "openWorldHint": True},
        "removeBook": {"destructiveHint": True, "idempotentHint": True, "openWorldHint": True},
    }
    tiers = {name: Catalog([Source(name="api", backend=BackendWith([tool]))], ServerRules()).tools[name].terms.tier for name, tool in tools.items()}  # fmt: skip
    assert {name for name, tier in tiers.items() if tier == "read"} == {
        "findBooks",
        "getBook",
        "getCover",
        "opening_hours",
    }


async def test_descriptions_say_what_the_document_says() -> None:
    tools = await tools_of(document("library"))
    assert (tools["findBooks"].title, tools["findBooks"].description) == ("Find books", "Find books")
    warning, description = str(tools["removeBook"].description).split("\n\n")
    assert warning.startswith("Deprecated: ")
    assert description == "Takes it off the shelf for good."
    assert tools["getBook"].description == "GET /books/{bookId}"
    assert tools["findBooks"].input_schema["properties"]["title"]["description"] == "A part of it"


async def test_arguments_have_the_schema_of_the_document_with_all_that_it_refers_to() -> None:
    tools = await tools_of(document("library"))
    schema = tools["addBook"].input_schema
    assert schema["required"] == ["body"]
    assert schema["additionalProperties"] is False
    book = schema["$defs"]["Book"]
    assert book["required"] == ["title"]  # the id is read only
    assert sorted(book["properties"]) == ["genre", "returned", "secret", "sequel", "title"]
    assert book["properties"]["title"] == {"type": "string", "examples": ["The Trial"]}
    assert book["properties"]["returned"] == {"type": ["string", "null"]}
    assert book["properties"]["sequel"] == {
        "anyOf": [{"allOf": [{"$ref": "#/$defs/Book"}]}, {"type": "null"}]
    }
    checked = ToolSchema(tools["addBook"])
    assert checked.problems({"body": {"title": "a", "sequel": {"title": "b", "sequel": None}}}) == ()
    assert checked.problems({"body": {"title": "a", "sequel": {"title": 5}}})
    days = tools["post_loans"].input_schema["properties"]["body"]["properties"]["days"]
    assert days == {"type": "integer", "exclusiveMinimum": 0}


async def test_parameters_of_one_name_in_two_places_are_told_apart() -> None:
    tools = await tools_of(document("harbour"))
    assert list(tools) == ["list-berths", "ships.at", "write.log", "announce"]
    assert sorted(tools["ships.at"].input_schema["properties"]) == [
        "ids_path",
        "ids_query",
        "number",
        "pier",
        "session",
    ]
    assert tools["ships.at"].input_schema["required"] == ["pier", "number", "ids_path"]
    assert ToolSchema(tools["announce"]).problems({"body": {"convoy": [{"name": "a", "draught": 0}]}})


async def test_answers_are_promised_only_when_told_and_where_all_of_them_are_described() -> None:
    assert (await tools_of(document("library")))["getBook"].output_schema is UNSET
    tools = await tools_of(document("library"), answers="promised")
    promised = {name for name, tool in tools.items() if tool.output_schema is not UNSET}
    assert promised == {"findBooks", "addBook", "getBook"}
    written = tools["getBook"].output_schema
    assert written is not UNSET
    assert (written["type"], written["required"]) == ("object", ["id", "title"])
    assert "secret" not in written["properties"]
    tree = (await tools_of(document("harbour"), answers="promised"))["ships.at"]
    assert ToolSchema(tree).conforms({"name": "a", "children": [{"children": []}]})
    assert not ToolSchema(tree).conforms({"children": [{"children": 1}]})


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["tag:loans"], [], ["post_loans"]),
        (["GET *"], [], ["findBooks", "getBook", "getCover", "opening_hours"]),
        (["tag:books"], ["DELETE *", "PUT /books/*"], ["findBooks", "addBook", "getBook"]),
        (["/books/{bookId}"], [], ["getBook", "replaceBook", "removeBook"]),
        (["find*", "opening hours!"], [], ["findBooks", "opening_hours"]),
        ([], ["/books*"], ["post_loans", "opening_hours"]),
    ],
)
async def test_operations_are_selected_by_name_tag_path_and_method(
    include: list[str], exclude: list[str], names: list[str]
) -> None:
    assert list(await tools_of(document("library"), include=include, exclude=exclude)) == names


async def test_a_word_that_selects_nothing_is_refused() -> None:
    why = await refusal_of(document("library"), include=["tag:book"], exclude=["getbook"])
    assert why.endswith("has no operation that include or exclude could mean by 'getbook', 'tag:book'")


async def test_names_are_made_what_names_may_be_and_never_the_same() -> None:
    operations = {"operationId": "a b/c", "responses": {}}
    paths = {f"/{n}": {"get": operations} for n in range(3)} | {"/x/{y}": {"put": {"responses": {}, "parameters": [{"name": "y", "in": "path", "schema": {}}]}}}  # fmt: skip
    assert list(await tools_of(api(paths), prefix="p.")) == ["p.a_b_c", "p.a_b_c_2", "p.a_b_c_3", "p.put_x_y"]
    long = {"operationId": "x" * 100, "responses": {}}
    assert [len(name) for name in await tools_of(api({"/a": {"get": long, "post": long}}))] == [64, 64]


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"parameters": [{"$ref": "other.yaml#/x"}]}, "nothing outside of it"),
        ({"parameters": [{"$ref": "#/nowhere"}]}, "which it does not have"),
        ({"parameters": [{"$ref": "#/paths/~1a/get/parameters/0"}]}, "leads to itself"),
        ({"parameters": [{"name": "a", "in": "body"}]}, "none of the four places"),
        ({"parameters": [{"name": "a", "in": "query", "style": "matrix"}]}, "style matrix"),
        ({"parameters": [{"name": "a", "in": "query", "content": {"text/csv": {}}}]}, "written as text/csv"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"type": "strin"}}]}, "not a usable JSON Schema"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"pattern": "("}}]}, "not a usable JSON Schema"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "#/components/schemas/Loop"}}]}, "defined by itself alone"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"$ref": "#/components/schemas/Ring"}}]}, "defined by itself alone"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"$dynamicRef": "#x"}}]}, "which is not read"),
        ({"parameters": [{"name": f"a{n}", "in": "query"} for n in range(201)]}, "more than 200 parameters"),
        ({"parameters": [{"name": "a", "in": "query", "schema": {"description": "x" * 200_000}}]}, "larger than 128 KiB"),
        ({"requestBody": {"content": {"application/octet-stream": {}}}}, "files cannot"),
    ],
)  # fmt: skip
async def test_an_operation_that_cannot_be_called_is_left_out_with_the_reason(
    operation: dict[str, Any], why: str
) -> None:
    schemas = {
        "Loop": {"allOf": [{"$ref": "#/components/schemas/Loop"}]},
        "Ring": {"$ref": "#/components/schemas/Ring"},
    }
    data = api(
        {"/a": {"get": {**operation, "responses": {}}}, "/b": {"get": {"responses": {}}}},
        components={"schemas": schemas},
    )
    sink = StringIO()
    assert list(await tools_of(data, sink)) == ["get_b"]
    (told,) = json.loads(sink.getvalue())["operations"]
    assert told.startswith("GET /a: ")
    assert why in told
    assert "has no operation that can be offered: GET /a: " in await refusal_of(data, exclude=["/b"])


async def test_a_path_whose_variables_are_no_parameters_is_left_out() -> None:
    assert "its path has {x}" in await refusal_of(api({"/a/{x}": {"get": {"responses": {}}}}))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"swagger": "2.0", "paths": {}}', "Swagger 2.0; OpenAPI 3.0 and 3.1 are read"),
        (b'{"openapi": "4.0.0", "paths": {}}', "of version '4.0.0'"),
        (b"openapi: 3.1\ninfo: {}\n", "has no paths"),
        (b"- a\n", "it has no keys"),
        (b"\xff", "not text in UTF-8"),
        (b"a: b: c", "cannot be read as YAML: line 1"),
        (b'{"a": ', "neither JSON nor YAML"),
        (b"[" * 100_000, "levels deep"),
        (b'{"a":' * 100_000, "neither JSON nor YAML"),
        (b" " * (16 * 1024 * 1024 + 1), "larger than 16 MiB"),
    ],
)
def test_what_is_no_document_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadApi, match=why):
        read_document(data)


def test_a_document_in_flow_style_is_yaml_all_the_same() -> None:
    assert read_document(b"{openapi: 3.0.1, paths: {}}").root["paths"] == {}


@pytest.mark.parametrize(
    ("servers", "fetched_from", "url"),
    [
        ([{"url": "https://a.example/v1"}], "", "https://a.example/v1"),
        (
            [{"url": "https://{x}.example/{y}", "variables": {"x": {"default": "a"}}}],
            "",
            "https://a.example/",
        ),
        ([{"url": "/v2"}], "https://a.example/docs/api.json", "https://a.example/v2"),
        ([{"url": "v2"}], "https://a.example/docs/api.json", "https://a.example/docs/v2"),
        ([], "https://a.example/docs/api.json", "https://a.example/"),
        ([{"url": "/v2"}], "", ""),
        ([{"url": "file:///etc"}], "", ""),
    ],
)
def test_the_address_is_that_of_the_first_server(servers: list[Any], fetched_from: str, url: str) -> None:
    read = ApiDocument({"openapi": "3.1.0", "paths": {}, "servers": servers}, since_31=True)
    assert read.base_url(fetched_from) == url


async def test_a_document_without_an_address_needs_one_in_the_settings() -> None:
    assert "set base_url" in await refusal_of(api({"/a": {"get": {"responses": {}}}}), base_url="")


async def test_fields_of_a_tool_that_there_is_not_are_refused() -> None:
    assert "no tool 'getBok', which fields names" in await refusal_of(
        document("library"), fields={"getBok": ["id"]}
    )


async def test_schemas_that_refer_to_each_other_in_a_long_chain_are_written_and_too_many_are_not() -> None:
    for length, offered in ((900, True), (3_000, False)):
        schemas: dict[str, Any] = {
            f"S{n}": {"properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}}}
            for n in range(length)
        }
        schemas[f"S{length}"] = {"type": "string"}
        body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
        paths = {"/a": {"put": {"requestBody": body, "responses": {}}}, "/b": {"get": {"responses": {}}}}
        tools = await tools_of(api(paths, components={"schemas": schemas}))
        assert ("put_a" in tools) is offered


async def test_a_thousand_operations_are_too_many() -> None:
    paths = {f"/{n}": {"get": {"responses": {}}} for n in range(1001)}
    assert "select some with include" in await refusal_of(api(paths))


# ── documents at an address ──────────────────────────────────────────────────────────────────────────────────────────


async def from_address(url: str, digest: str) -> OpenApiBackend:
    under_test = OpenApiBackend(
        config(document=url, sha256=digest), headers={}, given={}, name="main[1]", log=structlog.get_logger()
    )
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(under_test.run, NOBODY)
    except* BackendError as group:
        raise group.exceptions[0] from None
    await under_test.aclose()
    return under_test


async def test_a_document_at_an_address_is_taken_if_it_is_the_pinned_one() -> None:
    data = document("harbour")
    async with fake_agent(says(data)) as agent:
        under_test = await from_address(agent.url, hashlib.sha256(data).hexdigest().upper())
        assert len(under_test.tools()) == 4
        with pytest.raises(BackendError, match="its sha256 is " + hashlib.sha256(data).hexdigest()):
            await from_address(agent.url, "0" * 64)
    async with fake_agent(says(b"", status=302, headers=[("Location", agent.url)])) as moved:
        with pytest.raises(BackendError, match="answered 302, and no document"):
            await from_address(moved.url, "0" * 64)


def test_schemas_write_what_31_has_and_30_has_not() -> None:
    root = {"components": {"schemas": {"A": {"type": "integer"}}}}
    reference = {"$ref": "#/components/schemas/A", "description": "beside", "nullable": True}
    for since_31, written in (
        (True, {"$ref": "#/$defs/A", "description": "beside"}),
        (False, {"$ref": "#/$defs/A"}),
    ):
        writer = SchemaWriter(ApiDocument(root, since_31=since_31), "request")
        assert writer.write(reference) == written
    older = SchemaWriter(ApiDocument(root, since_31=False), "request")
    assert older.write(
        {"type": "string", "enum": ["a"], "nullable": True, "x-mcp-header": "A", "xml": {}}
    ) == {
        "type": ["string", "null"],
        "enum": ["a", None],
    }
    assert older.write({"maximum": 5, "exclusiveMaximum": True, "minimum": 1, "exclusiveMinimum": False}) == {
        "minimum": 1,
        "exclusiveMaximum": 5,
    }
