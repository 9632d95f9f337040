"""Trying tools out, page by page: who may, the form of a tool, what came of a call, what it asks.

A browser's session is no login of a program: nobody has consented to anything. So it may here what its person may, within their ceiling and
their selection of tools, and never what moves money; only at servers that accept logins, and only for people whom `try_page` names. What changes something or costs something wants a proof that is younger than a quarter of an hour, as all does that
an unattended browser must not be enough for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, cast

import msgspec
from markupsafe import Markup

from auth.context.identity_parts import Parts
from auth.pages import reauthentication
from auth.pages.html_shell import redirect
from auth.pages.page_admission import FormBounds, is_loopback
from auth.pages.page_visit import PageVisit
from auth.values import scopes
from auth.values.http_messages import WireReply
from auth.values.identity_model import Principal, PrincipalKind
from server.calls.servers.endpoint import Endpoint
from server.client.samples.sample_arguments import sample, stated
from server.client.samples.sample_programs import SampleCall, curl
from server.console.tryout import try_call, tryout_html
from server.console.tryout.tool_form import TryField, as_json, fields_of, filled, json_of, refilled, sampled
from server.console.tryout.try_call import TryAnswer, TryRound
from server.lib.json_objects import mapping
from server.settings.resolved_settings import Resolved
from server.settings.setting_shapes import ServerConfig

PATH: Final = "/try"
AT: Final = "at"  # where a page of the list begins, in the query
SIGN_IN: Final = f"/signin?next={PATH}"
# What the calls of these pages are known by, in records and to whoever keeps callers apart.
CLIENT_ID: Final = "try-page"
PROGRAM: Final = "the try-it page"
# Of a whole form, which has 64 KiB: a text that somebody pastes, and what a round of questions carries along.
BOUNDS: Final = FormBounds(fields=90, characters=48 * 1024)
# What a call carries to its next round, as it came.
STATE: Final = "state"
ASKED: Final = "asked"
KEPT: Final = "kept"
ONCE: Final = "once"
SURE: Final = "sure"  # that somebody was shown this very call, and what it does and costs
ENTROPY_BYTES: Final = 16

Who = Literal["owners", "people"]


class TryPages:
    """Each method makes the page of one path. `settings` are those that are served now."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        settings: Mapping[str, ServerConfig],
        resolved: Resolved,
        parts: Parts,
        *,
        who: Who,
    ) -> None:
        self.parts: Final = parts
        self._endpoints = endpoints
        self._settings = settings
        self._resolved = resolved
        self._who = who

    async def servers(self, visit: PageVisit) -> WireReply:
        """Those whose tools this visitor may try; the only one at once."""
        visit, caller = await self._caller(visit)
        if isinstance(caller, WireReply):
            return caller
        names = [name for name in self._endpoints if self._principal(visit, caller, name) is not None]
        if len(names) == 1:
            return redirect(f"/{names[0]}{PATH}")
        if not names:
            return self._not_for(visit)
        found = [(f"/{name}{PATH}", self._title(name)) for name in names]
        return self._page(visit, "Try tools out", tryout_html.servers(found))

    async def tools(self, visit: PageVisit, server: str) -> WireReply:
        return await self._let_in(visit, server, self._tools)

    async def tool(self, visit: PageVisit, server: str, name: str) -> WireReply:
        async def show(visit: PageVisit, session: Any, principal: Principal) -> WireReply:
            tool = self._tool(server, principal, name)
            if tool is None:
                return self._no_tool(visit, server)
            arguments = stated(_schema(tool), self._example(server, name))
            return self._form(visit, server, tool, principal, fields_of(_schema(tool), arguments))

        return await self._let_in(visit, server, show)

    async def call(self, visit: PageVisit, server: str, name: str) -> WireReply:
        async def make(visit: PageVisit, session: Any, principal: Principal) -> WireReply:
            tool = self._tool(server, principal, name)
            if tool is None:
                return self._no_tool(visit, server)
            if not visit.shows(_purpose(server, name)):
                return visit.stale_form()
            if session is not None and not try_call.only_reads(self._endpoints[server], name):
                # It repeats this very form, once it has been answered.
                page = await reauthentication.ask(
                    visit, session, f"to call {name}, which may change something", back=f"/{server}{PATH}"
                )
                if page is not None:
                    return page
            if STATE in visit.form:
                return await self._answered(visit, server, tool, principal)
            if SURE in visit.form:
                return await self._agreed(visit, server, tool, principal)
            return await self._called(visit, server, tool, principal)

        return await self._let_in(visit, server, make)

    # ── who ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _let_in(
        self,
        visit: PageVisit,
        server: str,
        show: Callable[[PageVisit, Any, Principal], Awaitable[WireReply]],
    ) -> WireReply:
        if server not in self._endpoints:
            return visit.error(
                404,
                "Nothing here",
                "There is no server of that name.",
                "Start at the list of servers.",
                back=(PATH, "To the list"),
            )
        visit, caller = await self._caller(visit, server)
        if isinstance(caller, WireReply):
            return caller
        principal = self._principal(visit, caller, server)
        return self._not_for(visit) if principal is None else await show(visit, caller, principal)

    async def _caller(self, visit: PageVisit, server: str | None = None) -> tuple[PageVisit, Any]:
        """The session of whoever is signed in; None where nobody has to be; or the page on which they sign in."""
        open_here = [name for name in self._endpoints if self._open(visit, name)]
        if server in open_here or (server is None and len(open_here) == len(self._endpoints)):
            return visit, None
        session = await visit.session() if self._resolved.needs_login else None
        if session is None:
            if not self._resolved.needs_login:
                return visit, self._not_for(visit)
            return visit, redirect(SIGN_IN)
        return visit.of(session), session

    def _open(self, visit: PageVisit, name: str) -> bool:
        """Whether nobody is asked to log in there, and nobody but this machine can be here."""
        settings = self._settings[name]
        return (
            self._resolved.open_to_all(settings)
            and self._resolved.loopback
            and is_loopback(visit.request.origin)
        )

    def _principal(self, visit: PageVisit, session: Any, name: str) -> Principal | None:
        """As whom they call the tools of a server; None if they may not try them."""
        vocabulary = self.parts.site.scopes
        harmless = scopes.join(each for each in vocabulary.names if not vocabulary.financial(each))
        if self._open(visit, name):
            return Principal(
                kind=PrincipalKind.ANONYMOUS,
                subject="anonymous",
                scopes=frozenset(scopes.parse(harmless)),
                program=PROGRAM,
                known_as=(PROGRAM,),
            )
        if session is None or "login" not in self._settings[name].accepts:
            return None
        user = session.user
        if user.role != "owner" and self._who != "people":
            return None
        return Principal(
            kind=PrincipalKind.USER,
            subject=user.id,
            client_id=CLIENT_ID,
            scopes=frozenset(scopes.parse(scopes.narrow(harmless, user.scope))),
            tools=user.tools,
            # Nobody is asked for more here: what is beyond these scopes is not there.
            reach=frozenset(),
            person=user.name,
            program=PROGRAM,
            known_as=(PROGRAM,),
        )

    def _not_for(self, visit: PageVisit) -> WireReply:
        return visit.error(
            403,
            "This page is not for you",
            "Whoever runs this server has not opened it to your account.",
            "The tools can be called from your own programs, as before.",
            back=("/account", "Your account") if self._resolved.needs_login else None,
        )

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tools(self, visit: PageVisit, session: Any, principal: Principal) -> WireReply:
        server = visit.request.path.split("/")[1]
        at = visit.query(AT) or None
        found = await try_call.offered(self._endpoints[server], principal, self._call_id(), at)
        if found is None:  # the list is another by now
            return redirect(f"/{server}{PATH}")
        title = self._title(server)
        more = "" if found.after is None else f"/{server}{PATH}?{AT}={found.after}"
        first = "" if at is None else f"/{server}{PATH}"
        names = [str(tool["name"]) for tool in found.tools]
        changing = {name for name in names if try_call.changes(self._endpoints[server], name)}
        body = tryout_html.tools(title, server, found.tools, more=more, first=first, changing=changing)
        return self._page(visit, title, body)

    def _tool(self, server: str, principal: Principal, name: str) -> Mapping[str, Any] | None:
        return try_call.tool(self._endpoints[server], principal, name)

    def _form(
        self,
        visit: PageVisit,
        server: str,
        tool: Mapping[str, Any],
        principal: Principal,
        fields: Sequence[TryField],
        *,
        raw: str = "",
        problems: Mapping[str, str] | None = None,
        above: Markup = tryout_html.NOTHING,
    ) -> WireReply:
        name = str(tool["name"])
        hidden = {
            "form_token": visit.token(_purpose(server, name)),
            ONCE: self.parts.entropy(ENTROPY_BYTES).hex(),
        }
        samples = fields_of(_schema(tool), sample(_schema(tool), self._example(server, name)))
        body = tryout_html.form(
            server,
            tool,
            sampled(fields, samples),
            hidden=hidden,
            raw=raw,
            problems=problems or {},
            as_whom=_whom(principal),
            above=above,
            changes=try_call.changes(self._endpoints[server], name),
        )
        return self._page(visit, name, body, status=400 if problems else 200)

    async def _called(
        self, visit: PageVisit, server: str, tool: Mapping[str, Any], principal: Principal
    ) -> WireReply:
        fields, raw = fields_of(_schema(tool), {}), visit.form.get("raw", "").strip()
        if raw:
            try:
                arguments = json_of(raw)
                problems = {} if isinstance(arguments, dict) else {"raw": "is no JSON object"}
            except ValueError as error:
                arguments, problems = {}, {"raw": str(error)}
        else:
            found = filled(fields, visit.form)
            arguments, problems = found.arguments, found.problems
        refill = refilled(fields, visit.form)
        if problems:
            return self._form(visit, server, tool, principal, refill, raw=raw, problems=problems)
        found = cast("Mapping[str, Any]", arguments)
        if self._asks_first(server, tool):
            return self._sure(visit, server, tool, principal, found)
        once = visit.form.get(ONCE, "")
        return await self._round(visit, server, tool, principal, found, once, None, refill, raw)

    # ── is it meant ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _asks_first(self, server: str, tool: Mapping[str, Any]) -> bool:
        reads = try_call.only_reads(self._endpoints[server], str(tool["name"]))
        return not reads or tryout_html.destructive(tool)

    def _sure(
        self,
        visit: PageVisit,
        server: str,
        tool: Mapping[str, Any],
        principal: Principal,
        arguments: Mapping[str, Any],
    ) -> WireReply:
        name, once = str(tool["name"]), self.parts.entropy(ENTROPY_BYTES).hex()
        hidden = {
            "form_token": visit.token(_purpose(server, name)),
            ONCE: once,
            KEPT: _compact(arguments),
            SURE: visit.token(_meant(server, tool, arguments, once)),
        }
        changes = try_call.changes(self._endpoints[server], name)
        body = tryout_html.sure(
            server, tool, arguments, hidden=hidden, as_whom=_whom(principal), changes=changes
        )
        return self._page(visit, f"Call {name}?", body)

    async def _agreed(
        self, visit: PageVisit, server: str, tool: Mapping[str, Any], principal: Principal
    ) -> WireReply:
        """Make the call that was shown. Where it is another by now, in arguments or price, it is shown again."""
        try:
            arguments = json_of(visit.form.get(KEPT, ""))
        except ValueError:
            return visit.stale_form()
        if not isinstance(arguments, dict):
            return visit.stale_form()
        found, once = cast("dict[str, Any]", arguments), visit.form.get(ONCE, "")
        if not visit.gave(_meant(server, tool, found, once), visit.form[SURE]):
            return self._sure(visit, server, tool, principal, found)
        fields, raw = _again(tool, found)
        return await self._round(visit, server, tool, principal, found, once, None, fields, raw)

    async def _round(
        self,
        visit: PageVisit,
        server: str,
        tool: Mapping[str, Any],
        principal: Principal,
        arguments: Mapping[str, Any],
        once: str,
        again: TryRound | None,
        fields: Sequence[TryField],
        raw: str,
    ) -> WireReply:
        answer = await try_call.call(
            self._endpoints[server],
            principal,
            str(tool["name"]),
            arguments,
            call_id=self._call_id(),
            address=visit.who.ip,
            once=once,
            again=again,
        )
        result = answer.result or {}
        if result.get("resultType") == "input_required":
            page = self._questions(visit, server, tool, principal, result, arguments, once)
            if page is not None:
                return page
            answer = TryAnswer(problem="What it asks is too long for this page. A program can answer it.")
        address = self.parts.site.public(visit.request.origin) + self._resolved.paths[server]
        program = curl(
            SampleCall(
                url=address,
                tool=tool,
                arguments=arguments,
                with_token=principal.kind is not PrincipalKind.ANONYMOUS,
            )
        )
        above = tryout_html.answer(tool, answer, program)
        return self._form(visit, server, tool, principal, fields, raw=raw, above=above)

    # ── what it asks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _questions(
        self,
        visit: PageVisit,
        server: str,
        tool: Mapping[str, Any],
        principal: Principal,
        result: Mapping[str, Any],
        arguments: Mapping[str, Any],
        once: str,
        *,
        problems: Mapping[str, str] | None = None,
    ) -> WireReply | None:
        """None: there is more of it than a form can carry."""
        asked = mapping(result.get("inputRequests"))
        hidden = {
            "form_token": visit.token(_purpose(server, str(tool["name"]))),
            ONCE: once,
            KEPT: _compact(arguments),
            STATE: str(result.get("requestState", "")),
            ASKED: _compact(asked),
            SURE: visit.token(_meant(server, tool, arguments, once)),
        }
        if sum(len(value) for value in hidden.values()) > BOUNDS.characters or any(
            mapping(each).get("method") != "elicitation/create" for each in asked.values()
        ):
            return None
        body = tryout_html.questions(
            server,
            tool,
            _asked_fields(asked, visit.form if problems else None),
            hidden=hidden,
            problems=problems or {},
        )
        return self._page(visit, f"{tool['name']} asks", body, status=400 if problems else 200)

    async def _answered(
        self, visit: PageVisit, server: str, tool: Mapping[str, Any], principal: Principal
    ) -> WireReply:
        """What the form carries is of the browser, and only what its person could have typed: the state alone counts, and is sealed."""
        try:
            asked, arguments = json_of(visit.form.get(ASKED, "")), json_of(visit.form.get(KEPT, ""))
        except ValueError:
            return visit.stale_form()
        if not isinstance(asked, dict) or not isinstance(arguments, dict):
            return visit.stale_form()
        asked, arguments = cast("dict[str, Any]", asked), cast("dict[str, Any]", arguments)
        meant = _meant(server, tool, arguments, visit.form.get(ONCE, ""))
        if self._asks_first(server, tool) and not visit.gave(meant, visit.form.get(SURE, "")):
            return self._sure(visit, server, tool, principal, arguments)
        accepts = visit.form.get("answer") == "accept"
        answers: dict[str, Any] = {}
        problems: dict[str, str] = {}
        for key, params, fields in _asked_fields(asked, None):
            if not accepts:
                answers[key] = {"action": "decline"}
            elif params.get("mode") == "url":
                answers[key] = {"action": "accept"}
            else:
                found = filled(fields, visit.form)
                problems |= found.problems
                answers[key] = {"action": "accept", "content": found.arguments}
        state, once = visit.form[STATE], visit.form.get(ONCE, "")
        if problems:
            result = {"inputRequests": asked, "requestState": state}
            page = self._questions(visit, server, tool, principal, result, arguments, once, problems=problems)
            return page or visit.stale_form()
        fields, raw = _again(tool, arguments)
        again = TryRound(state=state, answers=answers)
        return await self._round(visit, server, tool, principal, arguments, once, again, fields, raw)

    # ── ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _page(self, visit: PageVisit, title: str, body: Any, *, status: int = 200) -> WireReply:
        visit = replace(visit, frame=replace(visit.frame, wide=True))
        return visit.page("shell.html", title=title, status=status, body=body)

    def _no_tool(self, visit: PageVisit, server: str) -> WireReply:
        return visit.error(
            404,
            "No such tool",
            "It is not there, or it is nothing that you may call.",
            "Choose another one.",
            back=(f"/{server}{PATH}", "To the tools"),
        )

    def _title(self, server: str) -> str:
        return self._settings[server].title or server

    def _example(self, server: str, name: str) -> Mapping[str, Any] | None:
        own = self._settings[server].tools.get(name)
        return None if own is None or own.example is None else msgspec.to_builtins(own.example)

    def _call_id(self) -> str:
        return self.parts.entropy(ENTROPY_BYTES).hex()


def _purpose(server: str, tool: str) -> str:
    return f"try {server} {tool}"


def _meant(server: str, tool: Mapping[str, Any], arguments: Mapping[str, Any], once: str) -> str:
    """Name one call in one form: its tool with what it is said to do and to cost, and its arguments."""
    told = [server, tool["name"], tool.get("annotations"), tool.get("_meta"), arguments, once]
    return f"try this {hashlib.sha256(msgspec.json.encode(told, order='sorted')).hexdigest()}"


def _again(tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[Sequence[TryField], str]:
    """Fill in the form with these arguments, and those as JSON where the fields cannot hold them."""
    fields = fields_of(_schema(tool), arguments)
    same = filled(fields, _posted(fields)).arguments == arguments
    return fields, "" if same else as_json(arguments)


def _whom(principal: Principal) -> str:
    return principal.person or "somebody without a login"


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(tool.get("inputSchema"))


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _asked_fields(
    asked: Mapping[str, Any], posted: Mapping[str, str] | None
) -> list[tuple[str, Mapping[str, Any], Sequence[TryField]]]:
    found: list[tuple[str, Mapping[str, Any], Sequence[TryField]]] = []
    for place, (key, question) in enumerate(asked.items()):
        params = mapping(mapping(question).get("params"))
        schema = mapping(params.get("requestedSchema"))
        made = fields_of(schema, _defaults(schema), prefix=f"q{place}")
        # What people are asked has a line for an answer, so that the key for a new line sends it.
        fields: Sequence[TryField] = [
            msgspec.structs.replace(each, kind="text")
            if each.kind == "long" and "\n" not in each.value
            else each
            for each in made
        ]
        if posted is not None:
            fields = refilled(fields, posted)
        found.append((key, params, fields))
    return found


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: mapping(field)["default"]
        for key, field in mapping(schema.get("properties")).items()
        if "default" in mapping(field)
    }


def _posted(fields: Sequence[TryField]) -> dict[str, str]:
    """What a browser would send of a form that is left as it is."""
    found: dict[str, str] = {}
    for field in fields:
        found |= _posted(field.fields) if field.kind == "group" else {field.name: field.value}
    return found
