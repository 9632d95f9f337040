"""How this process has metadata documents of clients, and the key sets they point to: by the policy, with our own fetcher.

Nothing is asked at the start, nor loaded: what calls outside takes its time to import, and many a server never needs it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from auth.clients.client_identifier_urls import NO_DOCUMENTS, Documents, FetchDocument, FetchedDocument
from auth.clients.stored_client_documents import ClientDocuments
from auth.values.limits_and_lifetimes import RegistrationPolicy
from server.lib.http_client.single_flight import SingleFlight
from server.store.jobs import Store

if TYPE_CHECKING:
    from server.run.pinned_fetcher import Reach


def open_documents(
    store: Store, policy: RegistrationPolicy, *, reach: Reach | None = None
) -> tuple[Documents, FetchDocument | None]:
    """The documents, and what fetches key sets. `reach` is for tests; there is no setting for it."""
    share = SingleFlight[str | None]()
    match policy.documents:
        case "off":
            return NO_DOCUMENTS, None
        case "pinned":
            return ClientDocuments(store, fetch=None, share=share, policy=policy), None
        case "on":
            fetches = _Fetches(reach)
            documents = ClientDocuments(
                store,
                fetch=fetches.document,
                fetch_for_people=fetches.document_for_people,
                share=share,
                policy=policy,
            )
            return documents, fetches.keys


class _Fetches:
    """For documents and for key sets, over one reach; and over another for people who are signed in: strangers may take all
    exchanges and look-ups of theirs. Each is made when it is first used."""

    def __init__(self, reach: Reach | None) -> None:
        self._given = reach

    async def document(self, url: str) -> FetchedDocument:
        return await self._for_strangers[0](url)

    async def keys(self, url: str) -> FetchedDocument:
        return await self._for_strangers[1](url)

    async def document_for_people(self, url: str) -> FetchedDocument:
        return await self._for_people(url)

    @cached_property
    def _for_strangers(self) -> tuple[FetchDocument, FetchDocument]:
        from server.run import pinned_fetcher as pinned_fetch

        outside = self._given or pinned_fetch.Reach.system()
        return (
            pinned_fetch.make_fetch(outside, limit=pinned_fetch.DOCUMENT_BYTES),
            pinned_fetch.make_fetch(outside, limit=pinned_fetch.KEY_SET_BYTES),
        )

    @cached_property
    def _for_people(self) -> FetchDocument:
        from server.run import pinned_fetcher as pinned_fetch

        outside = self._given.apart() if self._given is not None else pinned_fetch.Reach.system()
        return pinned_fetch.make_fetch(outside, limit=pinned_fetch.DOCUMENT_BYTES)
