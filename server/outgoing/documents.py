"""How this process has metadata documents of clients, and the key sets they point to: by the policy, with our own fetcher.

Nothing is asked at the start, nor loaded: what calls outside takes its time to import, and many a server never needs it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from auth.clients.document_store import ClientDocuments
from auth.clients.documents import NO_DOCUMENTS, Documents, FetchDocument, FetchedDocument
from auth.values.policy import RegistrationPolicy
from server.outgoing.single_flight import SingleFlight
from server.store.jobs import Store

if TYPE_CHECKING:
    from server.outgoing.pinned import Reach


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
            fetch_document, fetch_keys = _fetches(reach)
            documents = ClientDocuments(store, fetch=fetch_document, share=share, policy=policy)
            return documents, fetch_keys


def _fetches(reach: Reach | None) -> tuple[FetchDocument, FetchDocument]:
    """For documents and for key sets; both are made, over one reach, when the first of them is used."""

    @cache
    def made() -> tuple[FetchDocument, FetchDocument]:
        from server.outgoing import pinned as pinned_fetch

        outside = reach or pinned_fetch.Reach.system()
        return (
            pinned_fetch.make_fetch(outside, limit=pinned_fetch.DOCUMENT_BYTES),
            pinned_fetch.make_fetch(outside, limit=pinned_fetch.KEY_SET_BYTES),
        )

    async def fetch_document(url: str) -> FetchedDocument:
        return await made()[0](url)

    async def fetch_keys(url: str) -> FetchedDocument:
        return await made()[1](url)

    return fetch_document, fetch_keys
