"""Prompts, and completions of the arguments of prompts and of the variables of resource templates. None is found of which the caller may not
know. Spec: server/prompts, server/utilities/completion (2026-07-28)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from msgspec import UNSET

from server.agents.base.backend import ChecksArguments, Completing, PromptGet
from server.agents.base.catalog import PromptEntry, TemplateEntry
from server.calls.agent_use import perform
from server.calls.question_routes import resumable
from server.calls.request import Request
from server.calls.rights.standing import Standing
from server.lib.shortened import short_name
from server.mcp.call_outlet import Outlet
from server.mcp.errors import BadParams, UnknownPrompt
from server.mcp.messages import Prompt
from server.mcp.method_params import CompleteParams, GetPromptParams, PromptReference
from server.mcp.result_encoding import CompletionResult, InputRequiredResult, PromptResult

# As many as the protocol lets an answer hold.
MAX_COMPLETIONS: Final = 100


def visible_prompts(request: Request) -> Sequence[Prompt]:
    return [
        entry.prompt
        for entry in request.endpoint.catalog.prompts()
        if _stands(request, entry) is not Standing.HIDDEN
    ]


async def get_prompt(request: Request) -> PromptResult | InputRequiredResult:
    params = cast("GetPromptParams", request.route.params)
    arguments = params.arguments or {}

    async def get(line: Outlet, resumed: object) -> PromptResult:
        return await _get(request, params.name, arguments, line, resumed)

    return await resumable(request, params, {"name": params.name, "arguments": arguments}, get)


async def _get(
    request: Request, name: str, arguments: Mapping[str, str], line: Outlet, resumed: object
) -> PromptResult:
    entry = request.endpoint.catalog.prompt(name)
    if entry is None or (standing := _stands(request, entry)) is Standing.HIDDEN:
        raise UnknownPrompt(name)
    theirs = isinstance(entry.backend, ChecksArguments) and entry.backend.checks_arguments
    declared = () if theirs or entry.prompt.arguments is UNSET else entry.prompt.arguments
    missing = [one.name for one in declared if one.required is True and one.name not in arguments]
    if missing:
        raise BadParams(f"the prompt {name} needs the argument {', '.join(missing)}")

    async def get(outlet: Outlet) -> tuple[PromptResult, str]:
        question = PromptGet(
            prompt=name,
            arguments=arguments,
            subject=request.principal.subject,
            sharer=request.sharer,
            caller=request.principal,
            call_id=request.call_id,
            can=request.can,
            resumed=resumed,
            wants_progress=request.wants_progress,
            log_level=request.log_level(),
            came=request.route.came,
            handshake=request.handshake,
            session_can=None if request.session is None else request.session.can,
            origin=request,
        )
        return await entry.backend.get_prompt(question, outlet), "ok"

    if (policy := request.endpoint.catalog.policy) is not None:
        from server.calls.policy_stage import read_through

        return await perform(request, name, entry.terms, standing, read_through(policy, get), line)
    return await perform(request, name, entry.terms, standing, get, line)


async def complete(request: Request) -> CompletionResult:
    params = cast("CompleteParams", request.route.params)
    argument = params.argument
    if isinstance(params.ref, PromptReference):
        entry: PromptEntry | TemplateEntry = _completed_prompt(request, params.ref.name, argument.name)
        ref, name = "prompt", params.ref.name
    else:
        entry = _completed_template(request, params.ref.uri, argument.name)
        ref, name = "resource", params.ref.uri
    if (ref, name) not in entry.backend.completes():
        return CompletionResult(values=(), total=0, has_more=False)
    known = {} if params.context is None else params.context.arguments or {}
    question = Completing(
        ref=ref,
        name=name,
        argument=argument.name,
        value=argument.value,
        known=known,
        subject=request.principal.subject,
        sharer=request.sharer,
        caller=request.principal,
        call_id=request.call_id,
        handshake=request.handshake,
        session_can=None if request.session is None else request.session.can,
        origin=request,
    )

    async def find(_outlet: Outlet) -> tuple[CompletionResult, str]:
        return await entry.backend.complete(question), "ok"

    if (policy := request.endpoint.catalog.policy) is not None:
        from server.calls.policy_stage import read_through

        found = await perform(request, name, entry.terms, _stands(request, entry), read_through(policy, find))
    else:
        found = await perform(request, name, entry.terms, _stands(request, entry), find)
    if len(found.values) <= MAX_COMPLETIONS:
        return found
    total = found.total or len(found.values)
    return CompletionResult(values=found.values[:MAX_COMPLETIONS], total=total, has_more=True)


def _completed_prompt(request: Request, name: str, argument: str) -> PromptEntry:
    """Return the prompt whose argument is to be completed. Raises `UnknownPrompt`, `BadParams`."""
    entry = request.endpoint.catalog.prompt(name)
    if entry is None or _stands(request, entry) is Standing.HIDDEN:
        raise UnknownPrompt(name)
    declared = () if entry.prompt.arguments is UNSET else entry.prompt.arguments
    if all(one.name != argument for one in declared):
        raise BadParams(f"the prompt {name} has no argument {short_name(argument)}")
    return entry


def _completed_template(request: Request, uri: str, argument: str) -> TemplateEntry:
    """Return the template whose variable is to be completed. Raises `BadParams`."""
    entry = request.endpoint.catalog.template(uri)
    if entry is None or _stands(request, entry) is Standing.HIDDEN:
        # Nothing is read here, so it is no missing resource, which has a code of its own in the handshake era.
        raise BadParams(f"unknown resource template: {uri[:200]}")
    if argument not in entry.pattern.variables:
        raise BadParams(f"the template {uri[:200]} has no variable {short_name(argument)}")
    return entry


def _stands(request: Request, entry: PromptEntry | TemplateEntry) -> Standing:
    return request.endpoint.rights.standing(request.principal, entry)
