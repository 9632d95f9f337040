"""The back-end that answers for an agent, from its settings. Adding a kind of agent: a row in `AGENT_KINDS` of settings/settings_reader.py,
and one here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from auth.values import scopes
from server.agents.base.backend import Backend
from server.agents.base.catalog import Source
from server.agents.base.demo_agent import DEMO_TERMS, Demo, DemoConfig
from server.calls.servers.upstream_registry_place import UpstreamRegistryPlace
from server.lib.log.logger import Logger
from server.mcp.terms import CallTerms
from server.settings.program_rights import ProgramRights
from server.settings.rule_settings import HookProgram
from server.settings.secret_reference import SecretUnreadable, read_secret
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import kind_of

if TYPE_CHECKING:
    from server.agents.base.agent_wallet import PayConfig
    from server.agents.base.child_environment import ChildEnvironment, Written
    from server.agents.chat.shared_memory import SharedMemory
    from server.agents.mcp.remote_suspended import RemoteSuspended
    from server.agents.mcp.upstream_agent import MakeBuyer, TellReceipt
    from server.lib.landlock import ForbiddenPaths
    from server.payments.buyer.outlays import GivenReceipt
    from server.payments.seller.purchases import PurchaseBook

# A back-end with a deadline of its own answers by itself when that passes; ours, a little later, is only the net below it.
DEADLINE_SLACK_SECONDS = 5.0
DEMO_SECONDS = 300.0  # the longest countdown

# What a login must cover to read what an agent offers. What a call needs hangs on the tool (tiers.py).
READING = frozenset({scopes.RESOURCES.name})

Subkey = Callable[[str], bytes]
MakeForbiddenPaths: TypeAlias = "Callable[[], ForbiddenPaths]"
Surroundings: TypeAlias = "Callable[[ProgramRights, Written], ChildEnvironment]"


def make_source(
    server: str,
    position: int,
    agent: msgspec.Struct,
    subkey: Subkey,
    log: Logger,
    data_dir: Path,
    kept_out: MakeForbiddenPaths | None,
    trust: UpstreamRegistryPlace | None = None,
    parked: Callable[[], RemoteSuspended] | None = None,
    conversations: Callable[[], SharedMemory] | None = None,
) -> Source:
    """Make the back-end of an agent. `data_dir` is where what an agent was paid is kept; `kept_out`: what its programs may not open; `trust`: where what is known of upstreams is; `parked` and `conversations`:
    what passes between processes, where there are several. Raises `SecretUnreadable` and `ValueError` for settings that turn out not to work on this machine."""
    short = f"{server}[{position}]"
    name = agent_name(server, position, agent)
    try:
        source = _source(agent, short, subkey, log, data_dir, kept_out, server, trust, parked, conversations)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    except SecretUnreadable as error:
        raise SecretUnreadable(f"{name}: {error}") from error
    library_terms = msgspec.structs.replace(source.terms, scopes=READING)
    return msgspec.structs.replace(source, name=name, library_terms=library_terms)


def agent_name(server: str, position: int, agent: msgspec.Struct) -> str:
    """Return its name as its owner is told of it everywhere."""
    return f"{server}[{position}] ({_what(agent)})"


def make_stand_ins(server: ServerConfig) -> Mapping[str, Backend]:
    """Make the mocks of tools that their owner has switched to one. Raises `ValueError` for mocks that turn out not to work."""
    found: dict[str, Backend] = {}
    opened: dict[str, Backend] = {}
    for tool, settings in server.tools.items():
        if settings.mock:
            from server.agents.mock.mock_agent import open_mock

            mock = opened.get(settings.mock) or open_mock(settings.mock)
            opened[settings.mock] = mock
            if tool not in {offered.name for offered in mock.tools()}:
                raise ValueError(f"{server.name}: {settings.mock} has no mock of the tool {tool}")
            found[tool] = mock
    return found


def _what(agent: msgspec.Struct) -> str:
    """Return what its owner knows it by: the file or module where there is one, else its kind."""
    own = next(
        (
            found
            for name in ("file", "module", "what", "path", "document")
            if (found := getattr(agent, name, ""))
        ),
        "",
    )
    return own or (f"hook {agent.run[0]}" if isinstance(agent, HookProgram) else kind_of(agent))


def _source(
    agent: msgspec.Struct,
    name: str,
    subkey: Subkey,
    log: Logger,
    data_dir: Path,
    kept_out: MakeForbiddenPaths | None,
    server: str,
    trust: UpstreamRegistryPlace | None,
    parked: Callable[[], RemoteSuspended] | None,
    conversations: Callable[[], SharedMemory] | None,
) -> Source:
    """Make the back-end. `name` is for the log of the agent's own."""
    if getattr(agent, "unconfined", False):
        kept_out = None
    surroundings = partial(_surroundings, kept_out, name, data_dir)
    if isinstance(agent, DemoConfig):
        return Source(name=name, backend=Demo(), terms=_terms(DEMO_SECONDS), tool_terms=DEMO_TERMS)
    # Imported where they are used: who serves something else need not load an HTTP client.
    if type(agent).__module__.startswith("server.agents.command."):
        return _program(agent, name, log, surroundings)
    if type(agent).__module__.startswith("server.agents.mock."):
        from server.agents.mock.mock_agent import MockConfig, open_mock

        assert isinstance(agent, MockConfig)
        return Source(name=name, backend=open_mock(agent.file), terms=_terms(agent.deadline_seconds))
    if type(agent).__module__ == "server.agents.skills.skills_agent":
        return _skills(agent, name, log)
    if type(agent).__module__ == "server.agents.openapi.openapi_settings":
        return _openapi(agent, name, log)
    if isinstance(agent, HookProgram):
        return _hook(agent, name, log, surroundings)
    from server.agents.base.agent_wallet import open_wallet
    from server.agents.chat.chat_agent import ChatBackend, ChatConfig
    from server.agents.chat.openai_agent import OpenAIBackend, OpenAIConfig
    from server.settings.header_settings import read_headers

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
            shared=None
            if conversations is None
            else partial(conversations().of_agent, f"{server} {agent.tool_name} {agent.base_url}"),
        )
        return Source(name=name, backend=model, terms=_terms(agent.deadline_seconds))
    from server.agents.python.python_agent import PythonBackend
    from server.agents.python.python_settings import PythonConfig

    if isinstance(agent, PythonConfig):
        environment = surroundings(agent, agent.environment)
        python = PythonBackend(agent, environment=environment, name=name, log=log)
        terms = CallTerms(deadline_seconds=agent.deadline_seconds)
        return Source(name=name, backend=python, terms=terms)
    from server.agents.mcp.mcp_settings import McpConfig

    if isinstance(agent, McpConfig):
        from server.agents.mcp.trust.upstream_opening import open_upstream

        assert trust is not None
        assert trust.desk is not None  # opened for the settings that have this agent
        purchases = cache(partial(_purchases, trust, subkey, server, log))
        upstream = open_upstream(
            agent,
            trust.desk,
            server=server,
            headers=read_headers(agent.headers),
            environment=surroundings(agent, agent.env),
            name=name,
            log=log,
            buying=_buying(agent.pay, purchases, data_dir, name=name, log=log),
            tell_receipt=None if trust.purchases is None else _tell_receipt(purchases),
            parked=None if parked is None else parked(),
        )
        terms = CallTerms(deadline_seconds=agent.deadline_seconds)
        return Source(name=name, backend=upstream, terms=terms)
    raise TypeError(f"no back-end for {type(agent).__name__}")


def _buying(
    config: PayConfig, purchases: Callable[[], PurchaseBook], data_dir: Path, *, name: str, log: Logger
) -> MakeBuyer | None:
    """Return who pays for the calls of an upstream; None: nobody, and then nothing of it is loaded. Raises `SecretUnreadable`."""
    from server.agents.base.agent_wallet import open_wallet

    payer = open_wallet(config, data_dir, agent=name, log=log)
    if payer is None:
        return None
    from server.agents.mcp.buying import Buyer

    return lambda place, dearer: Buyer(payer, place, purchases().book, dearer=dearer)


def _tell_receipt(purchases: Callable[[], PurchaseBook]) -> TellReceipt:
    """Return what books a receipt. Nothing of the books is loaded before the first one."""

    async def tell(given: GivenReceipt) -> None:
        await purchases().book_receipt(given)

    return tell


def _purchases(trust: UpstreamRegistryPlace, subkey: Subkey, server: str, log: Logger) -> PurchaseBook:
    from server.payments.seller.ledger import Books
    from server.payments.seller.purchases import PurchaseBook
    from server.store.ledger_chain import KEY_PURPOSE

    desk = trust.desk
    assert desk is not None  # as above
    books, arrears = (
        (None, None) if trust.purchases is None else (Books(subkey(KEY_PURPOSE)), trust.purchases())
    )
    return PurchaseBook(server, desk.store, books, arrears, clock=desk.clock, log=log)


def _surroundings(
    kept_out: MakeForbiddenPaths | None, name: str, data_dir: Path, program: ProgramRights, written: Written
) -> ChildEnvironment:
    """Return the surroundings of an agent's or a hook's program. Raises `SecretUnreadable`, and `ValueError` where its bounds cannot be kept here."""
    from server.agents.base.child_environment import child_environment

    forbidden = _made(kept_out)
    if not program.confined and not program.run_as:
        return child_environment(written, kept_out=forbidden)
    from server.calls.servers.program_bounds import bounds_of, user_of

    user = user_of(program)
    confinement = bounds_of(program, user, forbidden, name=name, data_dir=data_dir)
    return child_environment(written, kept_out=forbidden, confinement=confinement, user=user)


def _program(agent: msgspec.Struct, name: str, log: Logger, surroundings: Surroundings) -> Source:
    from server.agents.command.command_agent import CommandBackend, CommandConfig
    from server.agents.command.program_agent import AgentBackend, AgentConfig

    assert isinstance(agent, AgentConfig | CommandConfig)
    environment = surroundings(agent, agent.environment)
    backend = (
        AgentBackend(agent, environment=environment, name=name, log=log)
        if isinstance(agent, AgentConfig)
        else CommandBackend(agent, environment=environment, name=name, log=log)
    )
    return Source(name=name, backend=backend, terms=CallTerms(deadline_seconds=agent.deadline_seconds))


def _hook(program: HookProgram, name: str, log: Logger, surroundings: Surroundings) -> Source:
    from server.calls.policy.hooks import open_hook

    environment = surroundings(program, program.environment)
    return Source(name=name, backend=open_hook(program, environment=environment, name=name, log=log))


def _skills(agent: msgspec.Struct, name: str, log: Logger) -> Source:
    from server.agents.skills.skills_agent import SkillsBackend, SkillsConfig

    assert isinstance(agent, SkillsConfig)
    # What is read is in memory, so nothing waits.
    return Source(name=name, backend=SkillsBackend(agent, name=name, log=log), terms=CallTerms(quick=True))


def _openapi(agent: msgspec.Struct, name: str, log: Logger) -> Source:
    from server.agents.openapi.openapi_agent import open_api
    from server.agents.openapi.openapi_settings import OpenApiConfig

    assert isinstance(agent, OpenApiConfig)
    return Source(
        name=name, backend=open_api(agent, name=name, log=log), terms=_terms(agent.deadline_seconds)
    )


def _made(kept_out: MakeForbiddenPaths | None) -> ForbiddenPaths | None:
    """Make them now that a program is to be started, which nobody else loads them for."""
    return None if kept_out is None else kept_out()


def _terms(deadline_seconds: float) -> CallTerms:
    return CallTerms(deadline_seconds=deadline_seconds + DEADLINE_SLACK_SECONDS)
