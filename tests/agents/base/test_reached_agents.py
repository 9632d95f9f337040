"""Whether an agent is there is found out without asking it what a caller would ask: by a connection, or by what lists its models."""

from __future__ import annotations

import pytest

from server.agents.base.backend import Reachable
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from tests.agents.chat import chat_pair, openai_pair
from tests.agents.python.fake_agent import Exchange, says


async def test_an_agent_that_is_not_there_is_found_out_by_a_connection_on_which_nothing_is_said() -> None:
    async with chat_pair.against(says(b"{}")) as (agent, _):
        url = agent.url
        there = chat_pair.backend(url)
        assert isinstance(there, Reachable)
        await there.reach()
        assert there.trouble() is None
        assert agent.requests == []
        await there.aclose()
    gone = chat_pair.backend(url)
    await gone.reach()
    found = gone.trouble()
    assert found is not None
    assert (found.words, found.kind) == ("it cannot be reached: connection refused", "fails")
    await gone.aclose()


async def test_being_there_again_ends_that_it_was_not_and_nothing_else() -> None:
    async def overloaded(exchange: Exchange) -> None:
        await exchange.reply({"text": "overloaded"}, status=503)

    async with chat_pair.against(overloaded) as (_, agent):
        agent._endpoint.trouble.begins("it cannot be reached: connection refused", unreached=True)  # pyright: ignore[reportPrivateUsage]
        await agent.reach()
        assert agent.trouble() is None
        with pytest.raises(BackendError):
            await chat_pair.ask(agent)
        await agent.reach()
        found = agent.trouble()
        assert found is not None
        assert "503" in found.words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (200, None),
        (404, None),  # not everybody has such a list
        (401, "it answers with status 401: Incorrect API key provided: ***"),
        (500, "it answers with status 500: Incorrect API key provided: ***"),
    ],
)
async def test_of_an_openai_api_its_models_are_asked_for_with_our_credentials(
    status: int, words: str | None
) -> None:
    async def answer(exchange: Exchange) -> None:
        message = {"error": {"message": "Incorrect API key provided: sk-hunter2hunter2"}}
        await exchange.reply(message if status != 200 else {"data": []}, status=status)

    key = Secret("sk-hunter2hunter2")
    async with openai_pair.against(answer, api_key=key) as (api, agent):
        await agent.reach()
        (seen,) = api.requests
        assert (seen.method, seen.target, seen.body) == ("GET", "/v1/models", b"")
        assert seen.headers["authorization"] == "Bearer sk-hunter2hunter2"
        found = agent.trouble()
        assert (None if found is None else found.words) == words
