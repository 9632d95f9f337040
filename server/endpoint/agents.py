"""From the settings of an agent to the back-end that answers for it. Adding a kind of agent: a row in `AGENT_KINDS` of settings/reading.py,
and one here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from auth.values import scopes
from server.backends.catalog import Source
from server.backends.demo import DEMO_TERMS, Demo, DemoConfig
from server.backends.terms import CallTerms
from server.observe.log import Logger
from server.settings.reading import AGENT_KINDS
from server.settings.secret import SecretUnreadable, read_secret
from server.settings.shapes import ServerConfig

if TYPE_CHECKING:
    from server.trust.desk import TrustDesk

# A back-end with a deadline of its own answers by itself when that passes; ours, a little later, is only the net below it.
DEADLINE_SLACK_SECONDS = 5.0
DEMO_SECONDS = 300.0  # the longest countdown

# What a login must cover to read what an agent offers. What a call needs hangs on the tool (tiers.py).
READING = frozenset({scopes.RESOURCES.name})

Subkey = Callable[[str], bytes]


def make_sources(
    server: ServerConfig, subkey: Subkey, log: Logger, data_dir: Path, trust: TrustDesk | None = None
) -> Sequence[Source]:
    """`data_dir` is where what an agent was paid is kept; `trust` is there where an agent has an upstream. Raises `SecretUnreadable` and `ValueError` for settings that turn out not to work on this machine."""
    sources: list[Source] = []
    for position, agent in enumerate(server.agents, 1):
        short = f"{server.name}[{position}]"
        name = f"{short} ({_what(agent)})"
        try:
            source = _source(agent, short, subkey, log, data_dir, server.name, trust)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        except SecretUnreadable as error:
            raise SecretUnreadable(f"{name}: {error}") from error
        library_terms = msgspec.structs.replace(source.terms, scopes=READING)
        sources.append(msgspec.structs.replace(source, name=name, library_terms=library_terms))
    return sources


def _what(agent: msgspec.Struct) -> str:
    """What its owner knows it by: the file or module where there is one, else its kind."""
    own = getattr(agent, "file", "") or getattr(agent, "module", "") or getattr(agent, "what", "")
    return own or next(kind for kind, (_, shape) in AGENT_KINDS.items() if shape == type(agent).__name__)


def _source(
    agent: msgspec.Struct,
    name: str,
    subkey: Subkey,
    log: Logger,
    data_dir: Path,
    server: str,
    trust: TrustDesk | None,
) -> Source:
    """`name` is for the log of the agent's own."""
    if isinstance(agent, DemoConfig):
        return Source(name=name, backend=Demo(), terms=_terms(DEMO_SECONDS), tool_terms=DEMO_TERMS)
    # Imported where they are used: who serves something else need not load an HTTP client.
    from server.backends.chat import ChatBackend, ChatConfig
    from server.backends.endpoint import read_headers
    from server.backends.openai import OpenAIBackend, OpenAIConfig
    from server.backends.wallet import open_wallet

    session_key = subkey("agent-sessions")
    if isinstance(agent, ChatConfig):
        chat = ChatBackend(
            agent,
            headers=read_headers(agent.headers),
            session_key=session_key,
            random=secrets.token_bytes,
            payer=open_wallet(agent.pay, data_dir, agent=name, log=log),
        )
        return Source(name=name, backend=chat, terms=_terms(agent.deadline_seconds))
    if isinstance(agent, OpenAIConfig):
        model = OpenAIBackend(
            agent,
            api_key=read_secret(agent.api_key) if agent.api_key else None,
            headers=read_headers(agent.headers),
            session_key=session_key,
            random=secrets.token_bytes,
            payer=open_wallet(agent.pay, data_dir, agent=name, log=log),
        )
        return Source(name=name, backend=model, terms=_terms(agent.deadline_seconds))
    from server.backends.environment import child_environment
    from server.backends.python import PythonBackend, PythonConfig

    if isinstance(agent, PythonConfig):
        environment = child_environment(agent.environment)
        python = PythonBackend(agent, environment=environment, name=name, log=log)
        terms = CallTerms(deadline_seconds=agent.deadline_seconds)
        return Source(name=name, backend=python, terms=terms)
    from server.gateway.settings import McpConfig

    if isinstance(agent, McpConfig):
        from server.trust.opening import open_upstream

        assert trust is not None
        upstream = open_upstream(
            agent,
            trust,
            server=server,
            headers=read_headers(agent.headers),
            environment=child_environment(agent.env),
            name=name,
            log=log,
        )
        terms = CallTerms(deadline_seconds=agent.deadline_seconds)
        return Source(name=name, backend=upstream, terms=terms)
    raise TypeError(f"no back-end for {type(agent).__name__}")


def _terms(deadline_seconds: float) -> CallTerms:
    return CallTerms(deadline_seconds=deadline_seconds + DEADLINE_SLACK_SECONDS)
