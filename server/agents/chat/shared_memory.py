"""What was said in conversations, where several processes serve: whichever of them is asked next knows it.

Each exchange is written down when the model has answered, sealed, and a conversation is looked up before it goes on. Calls of one
conversation take turns in one process (agents/chat/conversation_memory.py). Two that run in two processes at once know nothing of each other, and both are
remembered.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from auth.values.identity_model import Millis
from server.agents.chat import conversation_rows
from server.agents.chat.conversation_memory import ChatHistory, ChatTurn, Memory
from server.agents.chat.conversation_rows import ConversationRow, KeptConversation
from server.lib.log.logger import Logger
from server.lib.shortened import short_reason
from server.mcp.call_failures import BackendError
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.jobs import Store, StoreError

# How often others may have gone on with it in the moment in which it is written.
_TRIES: Final = 8
_NOT_KNOWN: Final = (
    "what was said in this conversation cannot be looked up right now, so the model was not asked: try again in a few seconds,"
    " or leave session_id out"
)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[ChatTurn, ...]).decode


class SharedMemory:
    """Of all agents of an installation."""

    def __init__(
        self, store: Store, vault: AnswerVault, *, key: bytes, clock: Callable[[], Millis], log: Logger
    ) -> None:
        self.store = store
        self.vault = vault
        self.key = key
        self.clock = clock
        self.log = log

    def of_agent(self, name: str, memory: Memory) -> AgentMemory:
        """`name`: the same in each process, and after a restart. `memory`: what this process has of it."""
        return AgentMemory(self, name, memory)


class AgentMemory:
    def __init__(self, shared: SharedMemory, agent: str, memory: Memory) -> None:
        self._shared = shared
        self._memory = memory
        self._agent = self._hash("agent", agent)

    async def recall(self, conversation: ChatHistory) -> None:
        """What others have said in it meanwhile. To be called within the conversation's turn. Raises `BackendError`."""
        shared = self._shared
        id_hash = self._id_hash(conversation)
        job = partial(
            conversation_rows.look_up, id_hash=id_hash, known=conversation.version, now=shared.clock()
        )
        try:
            self._take(conversation, id_hash, await shared.store.read(job))
        except StoreError as problem:
            shared.log.warning("conversation.not_known", reason=short_reason(problem))
            raise BackendError(_NOT_KNOWN) from problem

    async def add(self, conversation: ChatHistory, said: str, answered: str) -> None:
        """The same as `Memory.add`, for all. Where it cannot be written the reply is given all the same, and what all know is what counts."""
        shared, memory, id_hash = self._shared, self._memory, self._id_hash(conversation)
        memory.add(conversation, said, answered)
        known, conversation.version = conversation.version, 0  # until it is kept, this is none of those
        try:
            for _ in range(_TRIES):
                kept = await self._kept(conversation, id_hash, known)
                if kept.sealed is None:
                    conversation.version = kept.version
                    return
                self._take(conversation, id_hash, kept)
                memory.add(conversation, said, answered)
                known, conversation.version = kept.version, 0
            why = "others went on with it again and again"
        except StoreError as problem:
            why = short_reason(problem)
        shared.log.warning("conversation.not_kept", reason=why)

    async def _kept(self, conversation: ChatHistory, id_hash: str, known: int) -> KeptConversation:
        shared, limits, now = self._shared, self._memory.limits, self._shared.clock()
        row = ConversationRow(
            id_hash=id_hash,
            agent=self._agent,
            owner=self._hash("owner", self._agent, conversation.key[0]),
            sealed=shared.vault.seal_bytes(id_hash, _encode(conversation.exchanges)),
            expires_at=now + int(limits.idle_seconds * 1000),
            owner_most=limits.sessions_per_subject,
            agent_most=limits.sessions,
        )
        return await shared.store.write(partial(conversation_rows.keep, row=row, known=known, now=now))

    def _take(self, conversation: ChatHistory, id_hash: str, kept: KeptConversation | None) -> None:
        if kept is None:
            self._memory.replace(conversation, (), version=0)
        elif kept.sealed is not None:
            self._memory.replace(conversation, self._open(id_hash, kept.sealed), version=kept.version)

    def _open(self, id_hash: str, sealed: bytes) -> Sequence[ChatTurn]:
        """What was sealed under another key, or has another form, is as if it had never been said."""
        try:
            return _decode(self._shared.vault.open_bytes(id_hash, sealed))
        except ValueError as problem:  # msgspec's is one
            self._shared.log.warning("conversation.unreadable", reason=short_reason(problem))
            return ()

    def _id_hash(self, conversation: ChatHistory) -> str:
        return self._hash("session", self._agent, *conversation.key)

    def _hash(self, *names: str) -> str:
        return hmac.digest(self._shared.key, _encode(names), "sha256").hex()
