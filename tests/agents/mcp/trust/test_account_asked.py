"""A call that needs its caller's own account: who can be shown a page is shown it and the call goes on, others are told in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from server.agents.base.backend import AgentRequest, ToolCall
from server.agents.mcp.upstream_credentials import AccountNeeded
from server.mcp.call_failures import NotAnswered
from server.mcp.call_questions import Question, check_question
from tests.agents.mcp.upstreams import Double, gate, over_http, words

URL = "https://here.example/connect/main/mail"


class Account:
    """A credential of one person, who connects when they are asked for it."""

    shared = False

    def __init__(self, *, comes: bool = True) -> None:
        self.there = False
        self.comes = comes
        self.waited = 0

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        if call is None or self.there:
            return {"Authorization": "Bearer their own token"}
        raise AccountNeeded("mail.example", URL, self._connected)

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return False

    async def _connected(self) -> bool:
        self.waited += 1
        self.there = self.comes
        return self.comes


class Asked:
    """An outlet to somebody who answers questions with `action`."""

    def __init__(self, action: str = "accept") -> None:
        self.action = action
        self.questions: list[Mapping[str, Question]] = []

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self.questions.append(questions)
        for question in questions.values():
            check_question(question)
        if self.action == "nothing":
            raise NotAnswered("they said nothing")
        return {key: {"action": self.action} for key in questions}

    async def emit(self, event: Any) -> None: ...

    async def checkpoint(self, data: Any) -> None: ...

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None: ...


def a_call(*can: str) -> ToolCall:
    return ToolCall(
        tool="say", arguments={"word": "sent"}, subject="usr_ann", call_id="c", can=frozenset(can)
    )


def mail() -> Double:
    return Double()


async def test_who_can_be_shown_a_page_is_shown_it_and_the_call_goes_on() -> None:
    account, asked = Account(), Asked()
    async with over_http(mail()) as url, gate(url=url, credential=account) as door:
        answer = await door.backend.call(a_call("elicitation.url"), asked)
        assert words(answer) == "sent"
    (question,) = asked.questions
    assert question["io.ostiary/account"].params["url"] == URL
    assert "Connect your account at mail.example" in question["io.ostiary/account"].params["message"]
    assert account.waited == 1


@pytest.mark.parametrize("can", [(), ("elicitation",)])
async def test_who_cannot_is_told_in_words(can: tuple[str, ...]) -> None:
    asked = Asked()
    async with over_http(mail()) as url, gate(url=url, credential=Account()) as door:
        with pytest.raises(AccountNeeded, match=f"Open {URL} in a browser"):
            await door.backend.call(a_call(*can), asked)
    assert asked.questions == []


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_who_says_no_is_told_what_it_would_take(action: str) -> None:
    account = Account()
    async with over_http(mail()) as url, gate(url=url, credential=account) as door:
        with pytest.raises(AccountNeeded):
            await door.backend.call(a_call("elicitation.url"), Asked(action))
    assert account.waited == 0


async def test_who_opens_the_page_and_does_not_finish_is_told_as_well() -> None:
    async with over_http(mail()) as url, gate(url=url, credential=Account(comes=False)) as door:
        with pytest.raises(AccountNeeded):
            await door.backend.call(a_call("elicitation.url"), Asked())
