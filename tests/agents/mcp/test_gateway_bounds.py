"""How much an upstream may list, ask and leave waiting: each bound is reached, and not passed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw
from upstreams import MODERN, Caller, Log

from server.agents.base.backend import AgentRequest, BadArguments, NoSuchResource, ProtocolFailure, ToolCall
from server.agents.mcp import forwarded_meta, offer_lists, suspended_requests, upstream_rounds
from server.agents.mcp.asked_prices import AskedPrice, asked_price
from server.agents.mcp.forwarded_meta import CarriedMeta
from server.agents.mcp.suspended_requests import SuspendedRequests
from server.agents.mcp.suspension_ticket import GONE
from server.agents.mcp.upstream_results import error_of
from server.client.mcp_session import followed_tasks, incoming_messages, list_pages, question_rounds
from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.connection_places import giving_way
from server.client.mcp_session.followed_tasks import ID_CHARACTERS, created, follow_task
from server.client.mcp_session.incoming_messages import IncomingMessages, lower
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_link import Link, ServerNews
from server.client.mcp_session.session_messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Asked,
    NoMcpServer,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    Told,
)
from server.lib.money.amounts import MOST, ONE
from server.mcp.call_failures import BackendError, Busy, CannotAsk, Paused
from server.mcp.call_outlet import Progress

ALICE = AgentRequest(subject="alice", sharer="laptop", call_id="1", can=frozenset({"elicitation"}))
BOB = AgentRequest(subject="bob", call_id="2")
FORM = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
EVERY_KIND = frozenset({"elicitation", "sampling", "roots"})


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


class Scripted:
    """A link whose upstream gives these answers, one after the other."""

    def __init__(self, answers: Iterator[Any], *, modern: bool = True, **capabilities: Any) -> None:
        self.agreement = Agreement(version=MODERN, modern=modern, capabilities=capabilities)
        self.in_sessions: Link | None = None
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.given_up: list[SentRequest] = []
        self._answers = answers

    async def request(self, method: str, params: Mapping[str, Any], **_: Any) -> Raw:
        self.asked.append((method, params))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Raw) else raw(answer)

    async def begin(
        self, method: str, params: Mapping[str, Any], call: AgentRequest, **_: Any
    ) -> SentRequest:
        return SentRequest(1, call)

    async def follow(self, running: SentRequest, outlet: Any) -> Raw:
        return await self.request("", {})

    async def give_up(self, running: SentRequest) -> None:
        self.given_up.append(running)


def link(*answers: Any, **more: Any) -> Link:
    return cast("Link", Scripted(iter(answers), **more))


# ── lists ──


def tools(*names: str, **page: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {}} for name in names], **page}


async def offered(*pages: Any, log: Log | None = None, entries: int = 1000) -> list[str]:
    over, logger = link(*pages, tools={}), (log or Log()).logger
    found = await offer_lists.read_lists(over, entries=entries, name="test", log=logger)
    return [each.name for each in found.tools]


async def test_a_list_goes_on_with_each_cursor_to_its_end() -> None:
    over = Scripted(iter([tools("a", nextCursor="1"), tools("b", nextCursor="2"), tools("c")]), tools={})
    found = await offer_lists.read_lists(cast("Link", over), entries=1000, name="test", log=Log().logger)
    assert [each.name for each in found.tools] == ["a", "b", "c"]
    assert [params for _, params in over.asked] == [{}, {"cursor": "1"}, {"cursor": "2"}]


async def test_a_list_has_so_many_entries_and_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_pages, "PAGES", 2)
    log = Log()
    assert await offered(tools("a", "b", nextCursor="1"), tools("c"), entries=3, log=log) == ["a", "b", "c"]
    assert not log.of("upstream.left_out")
    assert await offered(tools("a", "b", nextCursor="1"), tools("c", "d"), entries=3, log=log) == [
        "a",
        "b",
        "c",
    ]
    assert "all but the first 3 of tools/list" in log.of("upstream.left_out")[0]["which"][0]
    with pytest.raises(NoMcpServer, match="never comes to the end"):
        await offered(tools("a", nextCursor="1"), tools("b", nextCursor="2"), tools("c"))


async def test_a_list_weighs_no_more_than_may_be_all_pages_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [raw(tools("a", nextCursor="1")), raw(tools("b"))]
    monkeypatch.setattr(offer_lists, "LIST_BYTES", sum(map(len, pages)))
    assert await offered(*pages) == ["a", "b"]
    monkeypatch.setattr(offer_lists, "LIST_BYTES", sum(map(len, pages)) - 1)
    log = Log()
    assert await offered(*pages, log=log) == ["a"]
    assert log.of("upstream.left_out")[0]["kind"] == "tools"


async def test_a_cursor_is_of_so_many_characters_and_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_pages, "CURSOR_CHARACTERS", 3)
    assert await offered(tools("a", nextCursor="abc"), tools("b")) == ["a", "b"]
    for cursor in ("abcd", "b"):
        with pytest.raises(NoMcpServer, match="never comes to the end"):
            await offered(tools("a", nextCursor="b"), tools("b", nextCursor=cursor), tools("c"))


@pytest.mark.parametrize(
    ("answer", "comes"),
    [
        (ServerRefusal(METHOD_NOT_FOUND, "no"), None),
        (ServerRefusal(INVALID_PARAMS, "no"), "refuses tools/list: no"),
        ({"tools": 7}, "answers tools/list with something else"),
    ],
)
async def test_a_method_that_is_not_known_lists_nothing(answer: Any, comes: str | None) -> None:
    if comes is None:
        assert await offered(tools("a", nextCursor="1"), answer) == ["a"]
    else:
        with pytest.raises(NoMcpServer, match=comes):
            await offered(answer)


@pytest.mark.parametrize("name", ["", "a\n", "n" * (offer_lists.NAME_CHARACTERS + 1)])
async def test_an_entry_whose_name_cannot_be_shown_is_left_out_and_the_first_of_two_stays(name: str) -> None:
    log = Log()
    longest = "n" * offer_lists.NAME_CHARACTERS
    assert await offered(tools("a", name, longest, "a"), log=log) == ["a", longest]
    (left_out,) = log.of("upstream.left_out")
    assert (left_out["kind"], left_out["count"]) == ("tool", 2)


async def test_the_log_names_some_of_many_that_are_left_out() -> None:
    log = Log()
    await offered(tools(*[""] * (offer_lists.SHOWN + 2)), log=log)
    (left_out,) = log.of("upstream.left_out")
    assert (left_out["count"], len(left_out["which"])) == (offer_lists.SHOWN + 2, offer_lists.SHOWN)


@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        ({}, ["tools/list"]),
        ({"tools": {}}, ["tools/list"]),
        ({"prompts": {}}, ["prompts/list"]),
        ({"resources": {}}, ["resources/list", "resources/templates/list"]),
    ],
)
async def test_only_what_an_upstream_declares_is_read(capabilities: Any, asked: Sequence[str]) -> None:
    over = Scripted(iter([{}, {}]), **capabilities)
    found = await offer_lists.read_lists(cast("Link", over), entries=1000, name="test", log=Log().logger)
    assert [method for method, _ in over.asked] == asked
    assert found.features == capabilities.keys() - {"tools"}


async def test_what_there_is_for_one_caller_is_not_waited_for_for_long(autojump_clock: object) -> None:
    class Slow(Scripted):
        async def request(self, method: str, params: Mapping[str, Any], **more: Any) -> Raw:
            self.asked.append((method, more))
            await trio.sleep_forever()
            raise AssertionError("never")

    begun = trio.current_time()
    over = Slow(iter(()), resources={})
    assert (
        await offer_lists.read_resources(
            cast("Link", over), ALICE, entries=1000, name="test", log=Log().logger
        )
        == ()
    )
    assert trio.current_time() - begun == pytest.approx(offer_lists.OWN_SECONDS)
    ((_, more),) = over.asked
    assert (more["call"].subject, more["call"].can) == ("alice", frozenset())


# ── rounds of questions in the stateless era ──


def asks(count: int = 1, state: str | None = None, **questions: Any) -> dict[str, Any]:
    named = questions or {f"q{place}": {"method": "roots/list", "params": {}} for place in range(count)}
    found: dict[str, Any] = {"resultType": "input_required", "inputRequests": named}
    return found if state is None else {**found, "requestState": state}


async def used(*answers: Any, call: AgentRequest = ALICE, caller: Caller | None = None, **more: Any) -> Raw:
    return await upstream_rounds.use(
        link(*answers, **more),
        "tools/call",
        {"name": "x"},
        call,
        caller or Caller(lambda asked: {key: {"action": "accept"} for key in asked}),
        parking=SuspendedRequests(),
        questions=EVERY_KIND,
    )


async def test_a_caller_is_asked_so_often_and_no_more() -> None:
    done = {"content": []}
    assert await used(*[asks()] * upstream_rounds.MOST.rounds, done) == raw(done)
    with pytest.raises(ServerFailure, match=f"more than {upstream_rounds.MOST.rounds} times"):
        await used(*[asks()] * (upstream_rounds.MOST.rounds + 1), done)


@pytest.mark.parametrize(
    ("asked", "comes"),
    [
        (asks(question_rounds.QUESTIONS), None),
        (asks(question_rounds.QUESTIONS + 1), "more at once"),
        (asks(state="s" * question_rounds.STATE_CHARACTERS), None),
        (asks(state="s" * (question_rounds.STATE_CHARACTERS + 1)), "more at once"),
        ({"resultType": "input_required", "requestState": ""}, None),
        ({"resultType": "input_required"}, "asks no question"),
        (asks(q=7), "that is none"),
        (asks(q={"method": "tools/call"}), "not told that it may"),
    ],
)
async def test_so_much_is_asked_at_once_and_nothing_that_is_no_question(
    asked: Any, comes: str | None
) -> None:
    if comes is None:
        assert await used(asked, {}) == raw({})
    else:
        with pytest.raises(ServerFailure, match=comes):
            await used(asked, {})


async def test_a_key_stands_for_one_question_for_as_long_as_the_call_lasts() -> None:
    roots, form = {"method": "roots/list", "params": {}}, {"method": "elicitation/create", "params": FORM}
    longest = "k" * question_rounds.KEY_CHARACTERS
    caller = Caller(lambda asked: {key: {"action": "accept"} for key in asked})
    first: dict[str, Any] = {"q": roots, longest: roots, f"{longest}k": roots, "": roots}
    over = Scripted(iter([asks(**first), asks(q=form, state="s"), asks(q=roots), {}]))
    await upstream_rounds.use(
        cast("Link", over),
        "tools/call",
        {"name": "x"},
        ALICE,
        caller,
        parking=SuspendedRequests(),
        questions=EVERY_KIND,
    )
    assert [list(asked) for asked in caller.asked] == [
        ["q", longest, "upstream-3", "upstream-4"],
        ["q-2"],
        ["q"],
    ]
    told = [params for _, params in over.asked]
    assert told[0] == {"name": "x"}
    assert list(told[1]["inputResponses"]) == list(first)
    assert "requestState" not in told[1]
    assert (list(told[2]["inputResponses"]), told[2]["requestState"]) == (["q"], "s")
    assert [kept["round"]["number"] for kept in caller.kept] == [1, 2, 3]


async def test_what_was_asked_before_its_caller_came_back_counts_as_a_round() -> None:
    def pause(_: object) -> Any:
        raise Paused

    caller = Caller(pause)
    with pytest.raises(Paused):
        await used(asks(), caller=caller)
    (kept,) = caller.kept
    back = msgspec.structs.replace(ALICE, resumed=kept)
    with pytest.raises(ServerFailure, match="times"):
        await used(*[asks()] * upstream_rounds.MOST.rounds, call=back)
    assert await used(*[asks()] * (upstream_rounds.MOST.rounds - 1), {}, call=back) == raw({})


def page(url: str = "https://a.example/") -> dict[str, Any]:
    return {"message": "open", "url": url}


async def test_a_page_that_has_to_be_opened_first_is_asked_for_so_often() -> None:
    first = ServerRefusal(question_rounds.PAGE_FIRST, "open", {"elicitations": [page(), 7]})
    caller = Caller(lambda asked: {key: {"action": "accept"} for key in asked})
    assert await used(first, first, {}, caller=caller, modern=False) == raw({})
    assert [list(asked) for asked in caller.asked] == [
        ["page-1-1", "page-1-2"],
        ["page-2-1", "page-2-2"],
    ]
    with pytest.raises(ServerRefusal):
        await used(*[first] * question_rounds.PAGES, {}, modern=False)


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (question_rounds.PAGE_FIRST, None),
        (question_rounds.PAGE_FIRST, {"elicitations": []}),
        (question_rounds.PAGE_FIRST, {"elicitations": {"url": "x"}}),
        (question_rounds.PAGE_FIRST + 1, {"elicitations": [page()]}),
    ],
)
async def test_any_other_refusal_asks_for_no_page(code: int, data: Any) -> None:
    with pytest.raises(ServerRefusal):
        await used(ServerRefusal(code, "no", data), {}, caller=Caller(), modern=False)


async def test_of_many_pages_so_many_are_asked_for_and_one_that_nobody_opened_ends_it() -> None:
    many = ServerRefusal(
        question_rounds.PAGE_FIRST, "open", {"elicitations": [page()] * (question_rounds.QUESTIONS + 1)}
    )
    caller = Caller(
        lambda asked: {key: {"action": "decline" if key == "page-1-1" else "accept"} for key in asked}
    )
    with pytest.raises(ServerFailure, match="nobody did"):
        await used(many, {}, caller=caller, modern=False)
    assert len(caller.asked[0]) == question_rounds.QUESTIONS


# ── calls that wait for callers who come back ──


async def ticket_refused(place: SuspendedRequests, call: AgentRequest) -> bool:
    try:
        place.park(link(), SentRequest(1, call))
    except BackendError:
        return True
    return False


async def test_so_many_calls_of_one_caller_wait_and_so_many_of_all() -> None:
    place = SuspendedRequests()
    for _ in range(suspended_requests.PARKED_BY_ONE):
        assert not await ticket_refused(place, ALICE)
    assert await ticket_refused(place, ALICE)
    for number in range(suspended_requests.MOST_PARKED - suspended_requests.PARKED_BY_ONE):
        assert not await ticket_refused(place, AgentRequest(subject=str(number), call_id="1"))
    assert await ticket_refused(place, BOB)
    assert len(place) == suspended_requests.MOST_PARKED


async def test_a_ticket_opens_once_and_for_its_caller() -> None:
    place, running = SuspendedRequests(), SentRequest(1, ALICE)
    ticket = place.park(link(), running)
    for subject in ("bob", "alice", "alice"):
        if (subject, len(place)) == ("alice", 1):
            assert place.take_up(ticket, subject)[1] is running
        else:
            with pytest.raises(BackendError, match=GONE):
                place.take_up(ticket, subject)
    assert place.at_another_node(ticket) is None


async def test_a_call_that_nobody_comes_back_to_or_that_has_ended_is_given_up(autojump_clock: object) -> None:
    over = Scripted(iter(()))
    place = SuspendedRequests()
    waits, ended, late = (SentRequest(number, ALICE) for number in range(3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.run)
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        place.park(cast("Link", over), waits)
        place.park(cast("Link", over), ended)
        ended.end(raw({}))
        await trio.sleep(suspended_requests.SWEEP_SECONDS + 1)
        assert over.given_up == [ended]
        place.park(cast("Link", over), late)
        await trio.sleep_until(begun + suspended_requests.PARKED_SECONDS - 1)
        assert over.given_up == [ended]
        await trio.sleep(2)
        assert over.given_up == [ended, waits]
        assert len(place) == 1
        nursery.cancel_scope.cancel()


# ── places ──


@pytest.mark.parametrize(
    ("places", "newcomer", "most", "gives_way"),
    [
        ([], "a", 1, None),
        ([("a", False)], "a", 3, 0),
        ([("a", False)], "a", 4, None),
        ([("a", False), ("a", False)], "a", 4, 0),
        ([("b", False), ("c", False)], "a", 2, 0),
        ([("b", False), ("c", False), ("c", False)], "a", 3, 1),
        ([("b", True), ("c", True), ("c", False)], "a", 3, 2),
        ([("a", True), ("a", False), ("b", False), ("b", False)], "a", 4, 1),
        ([("a", False), ("b", False), ("c", False), ("d", False)], "a", 4, 0),
        ([("a", False)], "b", 1, 0),
    ],
)
def test_who_has_the_most_or_was_not_heard_of_for_longest_gives_way(
    places: Sequence[tuple[str, bool]], newcomer: str, most: int, gives_way: int | None
) -> None:
    assert giving_way(places, newcomer, most) == gives_way


@pytest.mark.parametrize(
    ("places", "newcomer", "most"),
    [
        ([("a", True)], "a", 2),
        ([("b", True), ("b", True)], "a", 2),
        ([("a", True), ("b", False), ("c", False), ("d", False)], "a", 4),
        ([("a", True), ("a", True), ("b", False), ("b", False), ("b", False)], "a", 5),
        ([("b", True)], "a", 1),
    ],
)
def test_whoever_is_at_work_or_has_no_more_than_the_newcomer_keeps_their_place(
    places: Sequence[tuple[str, bool]], newcomer: str, most: int
) -> None:
    with pytest.raises(Busy):
        giving_way(places, newcomer, most)


# ── what is heard of which call ──


class Heard:
    """Two callers' calls at one upstream, and one of our own."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.alice, self.ours = SentRequest(1, ALICE), SentRequest(2, None)
        self.running = {1: self.alice, 2: self.ours}
        tells = ServerNews(lambda: self.came.append("lists"), self.came.append)
        self.hearing = IncomingMessages(
            self.running, tells, questions=EVERY_KIND, name="test", log=Log().logger
        )

    def told(
        self, method: str, running: SentRequest | None = None, *, shared: bool = True, **params: Any
    ) -> None:
        self.hearing.told(Told(f"notifications/{method}", raw(params)), 1, running, shared=shared)

    def asked(
        self, method: str, running: SentRequest | None = None, *, followed: bool = True, shared: bool = True
    ) -> Any:
        message = Asked("q", method, raw({}))
        said = self.hearing.asked(message, running, followed=followed, shared=shared)
        return None if said is None else json.loads(said)


def counts(running: SentRequest) -> int:
    return len(running.taken())


async def test_progress_is_of_the_call_that_its_token_names() -> None:
    heard = Heard()
    for token in (1, 1.0, True, "1", 3, None):
        heard.told("progress", progressToken=token, progress=1)
    assert heard.alice.taken() == [Progress(progress=1)]


async def test_a_line_of_a_log_on_a_shared_wire_is_of_the_one_call_that_runs() -> None:
    heard = Heard()
    heard.told("message", data="a")
    assert counts(heard.alice) == 1
    heard.running[3] = SentRequest(3, BOB)
    heard.told("message", data="b")
    assert counts(heard.alice) == counts(heard.running[3]) == 0
    heard.told("message", heard.alice, shared=False, data="c")
    heard.told("message", heard.ours, shared=False, data="d")
    heard.told("message", None, shared=False, data="e")
    assert (counts(heard.alice), counts(heard.ours)) == (1, 0)


async def test_what_may_be_of_a_call_that_ended_lately_is_nobodys(autojump_clock: object) -> None:
    heard = Heard()
    heard.hearing.ended(SentRequest(9, ALICE))
    heard.hearing.ended(SentRequest(8, None))
    heard.told("message", data="a")
    assert counts(heard.alice) == 1
    heard.hearing.ended(SentRequest(9, BOB))
    await trio.sleep(incoming_messages.LATELY_SECONDS - 1)
    heard.told("message", data="b")
    assert counts(heard.alice) == 0
    await trio.sleep(1)
    heard.told("message", data="c")
    assert counts(heard.alice) == 1


async def test_of_too_many_callers_nothing_is_taken_for_one_of_them(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(incoming_messages, "CALLERS_KNOWN", 3)
    heard = Heard()
    for known, alone in ((2, 1), (3, 0), (4, 0)):
        for number in range(known):
            heard.hearing.ended(SentRequest(9, AgentRequest(subject=str(number), call_id="1")))
        await trio.sleep(incoming_messages.LATELY_SECONDS)
        heard.told("message", data="a")
        assert counts(heard.alice) == alone


@pytest.mark.parametrize(
    ("uri", "known"),
    [
        ("u", True),
        ("u" * incoming_messages.URI_CHARACTERS, True),
        ("u" * (incoming_messages.URI_CHARACTERS + 1), False),
        (7, False),
    ],
)
async def test_a_resource_that_changed_has_a_uri_of_so_many_characters(uri: Any, known: bool) -> None:
    heard = Heard()
    heard.told("resources/updated", uri=uri)
    assert heard.came == ([uri] if known else [])


async def test_each_list_that_changed_is_told_and_nothing_else() -> None:
    heard = Heard()
    for kind in ("tools", "resources", "prompts"):
        heard.told(f"{kind}/list_changed")
    heard.told("other/list_changed")
    assert heard.came == ["lists"] * 3


@pytest.mark.parametrize(
    ("shared", "of", "open_there"), [(True, None, 0), (False, "alice", 0), (False, None, 1)]
)
async def test_a_question_is_withdrawn_where_it_was_asked(
    shared: bool, of: str | None, open_there: int
) -> None:
    heard = Heard()
    assert heard.asked("roots/list") is None
    heard.told("cancelled", heard.alice if of else None, shared=shared, requestId=[])
    assert len(heard.alice.open) == 1
    heard.told("cancelled", heard.alice if of else None, shared=shared, requestId="q")
    assert len(heard.alice.open) == open_there


async def test_what_is_asked_is_answered_at_once_unless_somebody_can_be_asked() -> None:
    heard = Heard()
    assert heard.asked("ping") == {"jsonrpc": "2.0", "id": "q", "result": {}}
    assert heard.asked("tools/call")["error"]["code"] == METHOD_NOT_FOUND
    assert heard.asked("roots/list", None, shared=False)["error"]["code"] == INVALID_PARAMS
    assert heard.asked("roots/list", heard.ours, shared=False)["error"]["code"] == INVALID_PARAMS
    assert heard.alice.refused is None
    assert heard.asked("roots/list", followed=False)["error"]["code"] == INVALID_PARAMS
    assert heard.alice.refused is not None
    assert heard.asked("roots/list") is None
    assert "too many" in heard.asked("roots/list")["error"]["message"]  # one id, one question
    assert [each.id for each in heard.alice.questions()] == ["q"]


@pytest.mark.parametrize(
    ("wanted", "level", "is_lower"),
    [("info", None, True), ("info", "error", True), ("info", "info", False), ("error", "info", False)],
)
def test_a_level_is_set_where_less_is_told_than_is_wanted(wanted: Any, level: Any, is_lower: bool) -> None:
    assert lower(wanted, level) is is_lower


# ── what goes over, and what comes back ──


@pytest.mark.parametrize(
    ("code", "about", "kind"),
    [
        (-32769, "tool", ProtocolFailure),
        (-32768, "tool", BackendError),
        (-32603, "tool", BackendError),
        (-32000, "tool", BackendError),
        (-31999, "tool", ProtocolFailure),
        (0, "tool", ProtocolFailure),
        (-32602, "tool", BadArguments),
        (-32602, "prompt", BadArguments),
        (-32602, "resource", NoSuchResource),
        (-32002, "resource", NoSuchResource),
        (-32002, "tool", BackendError),
        (-32021, "tool", CannotAsk),
        (-32021, "resource", CannotAsk),
        (402, "tool", ProtocolFailure),
    ],
)
def test_each_code_of_an_upstream_is_one_of_ours(code: int, about: str, kind: type[Exception]) -> None:
    found = error_of(ServerRefusal(code, "no", {"a": 1}), about=about)
    assert type(found) is kind
    assert str(found) == "no"


def test_what_a_caller_would_have_to_offer_is_told_where_it_is_said() -> None:
    for data, required in (
        ({"requiredCapabilities": {"roots": {}}}, {"roots": {}}),
        ({}, None),
        (None, None),
    ):
        found = error_of(ServerRefusal(-32021, "no", data), about="tool")
        assert isinstance(found, CannotAsk)
        assert (found.required or None) == required


def test_of_a_callers_context_so_much_goes_on() -> None:
    value, words = forwarded_meta.VALUE_BYTES, forwarded_meta.CARRIED_BYTES // forwarded_meta.VALUE_BYTES
    of = CarriedMeta([*(f"k{number}" for number in range(words + 1)), "a/*"]).of

    def came(**meta: str) -> Raw:
        return raw({"_meta": meta})

    longest = "x" * (value - 2)  # and its quotes
    whole = {f"k{number}": longest for number in range(words)}
    assert of(None) is None
    assert of(came()) is None
    assert list(of(came(k0=longest)) or {}) == ["k0"]
    assert of(came(k0=f"{longest}x")) is None
    assert list(of(came(**whole)) or {}) == list(whole)
    assert of(came(**whole, **{f"k{words}": ""})) is None
    assert list(of(came(**{"a/b": "1", "ab": "1", "b": "1"})) or {}) == ["a/b"]


@pytest.mark.parametrize(
    ("answer", "modern", "task_id"),
    [
        ({"resultType": "task", "taskId": "t"}, True, "t"),
        ({"resultType": "task", "taskId": "t" * ID_CHARACTERS}, True, "t" * ID_CHARACTERS),
        ({"resultType": "complete", "taskId": "t"}, True, None),
        ({"taskId": "t"}, False, None),
        ({"task": {"taskId": "t"}}, False, "t"),
        ({"task": {}}, False, None),
        ([], True, None),
    ],
)
def test_an_answer_is_a_task_where_it_says_so(answer: Any, modern: bool, task_id: str | None) -> None:
    assert created(raw(answer), modern=modern) == task_id


@pytest.mark.parametrize("task_id", ["", "t" * (ID_CHARACTERS + 1), 7])
def test_a_task_has_an_id_of_so_many_characters(task_id: Any) -> None:
    with pytest.raises(ServerFailure, match="no id"):
        created(raw({"task": {"taskId": task_id}}), modern=False)
    if isinstance(task_id, str):
        with pytest.raises(ServerFailure, match="no id"):
            created(raw({"resultType": "task", "taskId": task_id}), modern=True)


CALL = ToolCall(subject="alice", call_id="1", tool="x", arguments={}, wants_progress=True)


async def followed(*states: Any, caller: Caller | None = None) -> Raw:
    over = link(*states)

    @asynccontextmanager
    async def open_link() -> AsyncGenerator[Link]:
        await trio.lowlevel.checkpoint()
        yield over

    async def wait(*_: object) -> Raw:
        raise AssertionError("in the stateless era nobody waits")

    return await follow_task("t", CALL, caller or Caller(), open_link, wait)


DONE = {"status": "completed", "result": {"a": 1}}


@pytest.mark.parametrize(
    ("poll", "pauses"),
    [
        ({}, [0.1, 0.2, 0.4, 0.8, followed_tasks.POLL_SECONDS]),
        ({"pollIntervalMs": 300}, [0.1, 0.2, 0.3, 0.3, 0.3]),
        ({"pollInterval": 300, "pollIntervalMs": 1}, [0.1, 0.2, 0.3, 0.3, 0.3]),
        ({"pollIntervalMs": 0}, [followed_tasks.SHORTEST_POLL_SECONDS] * 5),
        (
            {"pollIntervalMs": 86_400_000},
            [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, followed_tasks.LONGEST_POLL_SECONDS],
        ),
    ],
)
async def test_a_task_is_looked_at_soon_and_then_as_often_as_it_wants_within_bounds(
    poll: Any, pauses: Sequence[float], autojump_clock: object
) -> None:
    begun = trio.current_time()
    looks = [{"status": "working", **poll} for _ in pauses]
    assert json.loads(bytes(await followed(*looks, DONE))) == {"a": 1}
    assert trio.current_time() - begun == pytest.approx(sum(pauses))


async def test_an_upstream_that_is_away_is_waited_for_and_not_for_ever(autojump_clock: object) -> None:
    looks = int(followed_tasks.AWAY_AT_MOST_SECONDS // followed_tasks.AWAY_SECONDS)
    gone = [ServerGone("is away")]
    assert await followed(*gone * (looks + 1), {"status": "working"}, *gone * (looks + 1), DONE)
    with pytest.raises(ServerGone):
        await followed(*gone * (looks + 2), DONE)


async def test_what_a_task_says_is_told_once_and_its_steps_are_counted(autojump_clock: object) -> None:
    caller = Caller()
    said_so = [{"status": "working", "statusMessage": words} for words in ("", "a", "a", "b")]
    await followed(*said_so, DONE, caller=caller)
    assert caller.events == [Progress(progress=1, message="a"), Progress(progress=2, message="b")]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ({"status": "failed", "error": {"code": 7, "message": "no"}}, ServerRefusal),
        ({"status": "cancelled"}, ServerFailure),
        ([], ServerFailure),
    ],
)
async def test_a_task_that_came_to_nothing_says_how(state: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await followed(state)


async def test_a_task_asks_each_question_once(autojump_clock: object) -> None:
    caller = Caller(lambda asked: {key: {"action": "accept"} for key in asked})
    asks_now = {"status": "input_required", "inputRequests": {"q": {"method": "roots/list"}}}
    await followed(asks_now, {}, asks_now, DONE, caller=caller)
    assert [list(asked) for asked in caller.asked] == [["task-q"]]


@pytest.mark.parametrize(
    ("number", "amount"),
    [
        (0, None),
        (0.0000001, None),
        (0.000001, 1),
        (MOST // ONE - 1, MOST - ONE),
        (MOST // ONE, None),
        (True, False),
    ],
)
def test_a_price_in_dollars_is_more_than_nothing_and_less_than_all(number: Any, amount: Any) -> None:
    found = asked_price({"agents-x402/priceUSD": number})
    assert found == (None if amount is False else AskedPrice(amount))
