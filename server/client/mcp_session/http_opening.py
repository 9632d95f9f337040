"""The beginning of a session over HTTP, in whichever of the transports its server has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import trio

from server.client.mcp_session.session_link import Link
from server.client.mcp_session.session_messages import NoMcpServer, ServerGone
from server.client.mcp_session.streamable_http import HttpLink
from server.lib.bare_nursery import bare_nursery


@asynccontextmanager
async def agreed_over_http(
    link: HttpLink,
    era: str,
    seconds: float,
    old: Callable[[], AbstractAsyncContextManager[Link]],
    *,
    listens: bool,
) -> AsyncGenerator[Link]:
    """Give `link`, agreed on, or one over the transport of 2024-11-05, which `old` opens, where the server has nothing else. `listens`: somebody
    wants to be told of changes. Raises `BackendError` where that takes too long, or comes to nothing."""
    async with AsyncExitStack() as opened:
        found: Link = link
        try:
            with trio.fail_after(seconds):
                await link.agree(era)
        except trio.TooSlowError:
            raise ServerGone(f"did not answer within {seconds:g} s") from None
        except NoMcpServer as problem:
            if era == "stateless":
                raise
            try:
                found = await opened.enter_async_context(old())
            except NoMcpServer:
                raise problem from None
        else:
            opened.push_async_callback(link.end)
            if listens:
                nursery = await opened.enter_async_context(bare_nursery())
                nursery.start_soon(link.run)
        yield found
