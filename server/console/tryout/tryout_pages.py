"""Trying tools out, page by page: who may, the form of a tool, what came of a call, what it asks.

A browser's session is no login of a program: nobody has consented to anything. So it may here what its person may, within their ceiling and
their selection of tools, and never what moves money; only at servers that accept logins, and only for people whom `try_page` names. A call that changes or
costs something wants a proof that is younger than a quarter of an hour, as all does that an unattended browser must not be enough for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

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
from server.console.tryout import try_call, tryout_words
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


class TriedTool(NamedTuple):
    """A tool that a visitor tries out, as they see it."""

    visit: PageVisit
    server: str
    endpoint: Endpoint
    tool: Mapping[str, Any]
    principal: Principal
    session: Any  # None where nobody has to be signed in

    @property
    def name(self) -> str:
        return str(self.tool["name"])

    @property
    def schema(self) -> Mapping[str, Any]:
        return mapping(self.tool.get("inputSchema"))

    @property
    def changes(self) -> bool:
        return try_call.changes(self.endpoint, self.name)

    @property
    def only_reads(self) -> bool:
        return try_call.only_reads(self.endpoint, self.name)

    @property
    def asks_first(self) -> bool:
        return not self.only_reads or tryout_words.destructive(self.tool)

    @property
    def once(self) -> str:
        return self.visit.form.get(ONCE, "")

    @property
    def purpose(self) -> str:
        return f"try {self.server} {self.name}"

    def meant(self, arguments: Mapping[str, Any], once: str) -> str:
        """Name one call in one form: its tool with what it is said to do and to cost, and its arguments."""
        tool = self.tool
        told = [self.server, tool["name"], tool.get("annotations"), tool.get("_meta"), arguments, once]
        return f"try this {hashlib.sha256(msgspec.json.encode(told, order='sorted')).hexdigest()}"

    def kept(self, field: str) -> dict[str, Any] | None:
        """Read what a field of the form carries along; None where it is no object."""
        try:
            found = json_of(self.visit.form.get(field, ""))
        except ValueError:
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def filled_in(self, arguments: Mapping[str, Any]) -> tuple[Sequence[TryField], str]:
        """Fill in the form with these arguments, and those as JSON where the fields cannot hold them."""
        fields = fields_of(self.schema, arguments)
        same = filled(fields, _posted(fields)).arguments == arguments
        return fields, "" if same else as_json(arguments)

    def page(self, template: str, title: str, *, wrong: bool = False, **values: object) -> WireReply:
        status = 400 if wrong else 200
        return draw(self.visit, template, title, self.server, status=status, tool=self.tool, **values)


class TryPages:
    """Pages of trying out: each method makes that of one path. `settings` are those that are served now."""

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

    @property
    def needs_login(self) -> bool:
        """True if anybody logs in here."""
        return self._resolved.needs_login

    async def servers(self, visit: PageVisit) -> WireReply:
        """Show the servers whose tools this visitor may try; the only one at once."""
        visit, caller = await self._caller(visit)
        if isinstance(caller, WireReply):
            return caller
        names = [name for name in self._endpoints if self._principal(visit, caller, name) is not None]
        if len(names) == 1:
            return redirect(f"/{names[0]}{PATH}")
        if not names:
            return self._not_for(visit)
        found = [(f"/{name}{PATH}", self._title(name)) for name in names]
        return draw(visit, "tryout_servers.html", "Try tools out", servers=found)

    async def tools(self, visit: PageVisit, server: str) -> WireReply:
        return await self._let_in(visit, server, self._tools)

    async def tool(self, visit: PageVisit, server: str, name: str) -> WireReply:
        async def show(tried: TriedTool) -> WireReply:
            arguments = stated(tried.schema, self._example(tried))
            return self._form(tried, fields_of(tried.schema, arguments))

        return await self._of_tool(visit, server, name, show)

    async def call(self, visit: PageVisit, server: str, name: str) -> WireReply:
        async def make(tried: TriedTool) -> WireReply:
            visit = tried.visit
            if not visit.shows(tried.purpose):
                return visit.stale_form()
            if tried.session is not None and not tried.only_reads:
                # It repeats this very form, once it has been answered.
                why = f"to call {name}, which may change something"
                page = await reauthentication.ask(visit, tried.session, why, back=f"/{server}{PATH}")
                if page is not None:
                    return page
            if STATE in visit.form:
                return await self._answered(tried)
            if SURE in visit.form:
                return await self._agreed(tried)
            return await self._called(tried)

        return await self._of_tool(visit, server, name, make)

    async def _of_tool(
        self, visit: PageVisit, server: str, name: str, show: Callable[[TriedTool], Awaitable[WireReply]]
    ) -> WireReply:
        async def find(visit: PageVisit, session: Any, principal: Principal) -> WireReply:
            endpoint = self._endpoints[server]
            tool = try_call.tool(endpoint, principal, name)
            if tool is not None:
                return await show(TriedTool(visit, server, endpoint, tool, principal, session))
            return visit.error(
                404,
                "No such tool",
                "It is not there, or it is nothing that you may call.",
                "Choose another one.",
                back=(f"/{server}{PATH}", "To the tools"),
            )

        return await self._let_in(visit, server, find)

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
        """Return the session of whoever is signed in; None where nobody has to be; or the page on which they sign in."""
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
        """Return whether nobody is asked to log in there, and nobody but this machine can be here."""
        settings = self._settings[name]
        return (
            self._resolved.open_to_all(settings)
            and self._resolved.loopback
            and is_loopback(visit.request.origin)
        )

    def _principal(self, visit: PageVisit, session: Any, name: str) -> Principal | None:
        """Return as whom they call the tools of a server; None if they may not try them."""
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
        found = await try_call.offered(self._endpoints[server], principal, self._random(), at)
        if found is None:  # the list is another by now
            return redirect(f"/{server}{PATH}")
        title = self._title(server)
        more = "" if found.after is None else f"/{server}{PATH}?{AT}={found.after}"
        first = "" if at is None else f"/{server}{PATH}"
        names = [str(tool["name"]) for tool in found.tools]
        changing = {name for name in names if try_call.changes(self._endpoints[server], name)}
        values: dict[str, Any] = {"more": more, "first": first, "changing": changing}
        return draw(visit, "tryout_tools.html", title, server, tools=found.tools, **values)

    def _form(
        self,
        tried: TriedTool,
        fields: Sequence[TryField],
        *,
        raw: str = "",
        problems: Mapping[str, str] | None = None,
        answer: TryAnswer | None = None,
        program: str = "",
    ) -> WireReply:
        samples = fields_of(tried.schema, sample(tried.schema, self._example(tried)))
        return tried.page(
            "tryout_form.html",
            tried.name,
            wrong=bool(problems),
            fields=sampled(fields, samples),
            hidden={"form_token": tried.visit.token(tried.purpose), ONCE: self._random()},
            raw=raw,
            problems=problems or {},
            whom=_whom(tried.principal),
            answer=answer,
            program=program,
            changes=tried.changes,
        )

    async def _called(self, tried: TriedTool) -> WireReply:
        posted = tried.visit.form
        fields, raw = fields_of(tried.schema, {}), posted.get("raw", "").strip()
        if raw:
            try:
                arguments = json_of(raw)
                problems = {} if isinstance(arguments, dict) else {"raw": "is no JSON object"}
            except ValueError as error:
                arguments, problems = {}, {"raw": str(error)}
        else:
            found = filled(fields, posted)
            arguments, problems = found.arguments, found.problems
        refill = refilled(fields, posted)
        if problems:
            return self._form(tried, refill, raw=raw, problems=problems)
        found = cast("Mapping[str, Any]", arguments)
        if tried.asks_first:
            return self._sure(tried, found)
        return await self._round(tried, found, refill, raw)

    # ── is it meant ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _carried(self, tried: TriedTool, arguments: Mapping[str, Any], once: str) -> dict[str, str]:
        """Return what a form carries of a call that was filled in."""
        return {
            "form_token": tried.visit.token(tried.purpose),
            ONCE: once,
            KEPT: _compact(arguments),
            SURE: tried.visit.token(tried.meant(arguments, once)),
        }

    def _sure(self, tried: TriedTool, arguments: Mapping[str, Any]) -> WireReply:
        return tried.page(
            "tryout_sure.html",
            f"Call {tried.name}?",
            arguments=arguments,
            hidden=self._carried(tried, arguments, self._random()),
            whom=_whom(tried.principal),
            changes=tried.changes,
        )

    async def _agreed(self, tried: TriedTool) -> WireReply:
        """Make the call that was shown. Where it is another by now, in arguments or price, it is shown again."""
        arguments = tried.kept(KEPT)
        if arguments is None:
            return tried.visit.stale_form()
        if not tried.visit.gave(tried.meant(arguments, tried.once), tried.visit.form[SURE]):
            return self._sure(tried, arguments)
        return await self._round(tried, arguments, *tried.filled_in(arguments))

    async def _round(
        self,
        tried: TriedTool,
        arguments: Mapping[str, Any],
        fields: Sequence[TryField],
        raw: str,
        again: TryRound | None = None,
    ) -> WireReply:
        answer = await try_call.call(
            tried.endpoint,
            tried.principal,
            tried.name,
            arguments,
            call_id=self._random(),
            address=tried.visit.who.ip,
            once=tried.once,
            again=again,
        )
        result = answer.result or {}
        if result.get("resultType") == "input_required":
            page = self._questions(tried, result, arguments)
            if page is not None:
                return page
            answer = TryAnswer(problem="What it asks is too long for this page. A program can answer it.")
        program = curl(
            SampleCall(
                url=self.parts.site.public(tried.visit.request.origin) + self._resolved.paths[tried.server],
                tool=tried.tool,
                arguments=arguments,
                with_token=tried.principal.kind is not PrincipalKind.ANONYMOUS,
            )
        )
        return self._form(tried, fields, raw=raw, answer=answer, program=program)

    # ── what it asks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _questions(
        self,
        tried: TriedTool,
        result: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        problems: Mapping[str, str] | None = None,
    ) -> WireReply | None:
        """Make the form for its questions; None where there is more of it than a form can carry."""
        asked = mapping(result.get("inputRequests"))
        hidden = self._carried(tried, arguments, tried.once) | {
            STATE: str(result.get("requestState", "")),
            ASKED: _compact(asked),
        }
        if sum(len(value) for value in hidden.values()) > BOUNDS.characters or any(
            mapping(each).get("method") != "elicitation/create" for each in asked.values()
        ):
            return None
        return tried.page(
            "tryout_questions.html",
            f"{tried.name} asks",
            wrong=bool(problems),
            asked=_asked_fields(asked, tried.visit.form if problems else None),
            hidden=hidden,
            problems=problems or {},
        )

    async def _answered(self, tried: TriedTool) -> WireReply:
        """Go on with the answers. The form is the browser's, and carries only what its person could have typed: the state alone counts, and
        is sealed."""
        visit, asked, arguments = tried.visit, tried.kept(ASKED), tried.kept(KEPT)
        if asked is None or arguments is None:
            return visit.stale_form()
        meant = tried.meant(arguments, tried.once)
        if tried.asks_first and not visit.gave(meant, visit.form.get(SURE, "")):
            return self._sure(tried, arguments)
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
        state = visit.form[STATE]
        if problems:
            result = {"inputRequests": asked, "requestState": state}
            return self._questions(tried, result, arguments, problems=problems) or visit.stale_form()
        again = TryRound(state=state, answers=answers)
        return await self._round(tried, arguments, *tried.filled_in(arguments), again)

    # ── ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _title(self, server: str) -> str:
        return self._settings[server].title or server

    def _example(self, tried: TriedTool) -> Mapping[str, Any] | None:
        own = self._settings[tried.server].tools.get(tried.name)
        return None if own is None or own.example is None else msgspec.to_builtins(own.example)

    def _random(self) -> str:
        return self.parts.entropy(ENTROPY_BYTES).hex()


def draw(
    visit: PageVisit, template: str, title: str, server: str = "", *, status: int = 200, **values: object
) -> WireReply:
    visit = replace(visit, frame=replace(visit.frame, wide=True))
    path = f"/{server}{PATH}"
    return visit.page(template, title=title, status=status, path=path, **values, **tryout_words.WORDS)


def _whom(principal: Principal) -> str:
    return principal.person or "somebody without a login"


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
    """Return what a browser would send of a form that is left as it is."""
    found: dict[str, str] = {}
    for field in fields:
        found |= _posted(field.fields) if field.kind == "group" else {field.name: field.value}
    return found
