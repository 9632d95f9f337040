"""Words in which programs are refused by the OAuth endpoints: each once, with what it was first said to; in tests/snapshots."""

from __future__ import annotations

import json

from auth.clients.client_metadata_document import BadDocument, read
from auth.values.http_messages import WireReply
from tests.auth.authorization.test_authorize_requests import WRONG as WRONG_REQUESTS
from tests.auth.authorization.test_authorize_requests import path_of
from tests.auth.clients.test_client_metadata import BAD, URL, document
from tests.auth.clients.test_registration import REFUSED
from tests.auth.code_fakes import answer_of, open_porch
from tests.auth.endpoints.test_oauth_endpoints import CLI, ERRORS, MALFORMED, send
from tests.auth.endpoints.test_pushed_requests import WRONG as WRONG_PUSHES
from tests.auth.grant_types.test_authorization_codes import WRONG as WRONG_EXCHANGES
from tests.auth.identity_fakes import open_identity, post
from tests.auth.registration_fakes import SEEN, ask, sent
from tests.snapshots import Snapshot, ToldOnce


class Refusals(ToldOnce):
    """Requests to each endpoint, and how they were refused."""

    def told(self, what: str, reply: WireReply) -> None:
        body = json.loads(reply.body)
        self.note(what, f"  {reply.status} {body['error']}: {body['error_description']}")


async def test_what_programs_are_told_that_are_refused(snapshot: Snapshot) -> None:
    book = Refusals()
    async with open_identity() as identity:
        book.begin("forms")
        for pairs, _ in MALFORMED:
            book.told(pairs[-1][0], await send(identity, post("/device_authorization", *pairs)))
        book.told("nobody", await send(identity, post("/device_authorization", client_id="nobody")))
        for path, form, _ in ERRORS:
            book.told(
                f"{path} {' '.join(form.values())}", await send(identity, post(path, client_id=CLI, **form))
            )
        book.begin("/register")
        for changed, _, _ in REFUSED:
            book.told(
                " ".join(changed), await sent(identity, ask("/register", {**SEEN["Claude Code"], **changed}))
            )
    book.begin("documents of clients")
    for changes, _ in BAD:
        try:
            read(URL, document(**changes))
        except BadDocument as problem:
            book.note(" ".join(changes), f"  {problem}")
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        book.begin("/authorize")
        for name, (_, more, asked) in WRONG_REQUESTS.items():
            reply = await browser.get(path_of(program, *more, **asked), site="cross-site", follow=False)
            answer = answer_of(reply)
            book.note(name, f"  {answer['error']}: {answer['error_description']}")
        book.begin("/par")
        for name, (_, more, asked) in WRONG_PUSHES.items():
            book.told(name, await porch.post("/par", *more, **program.request(**asked)))
        book.begin("/token, with a code")
        code = (await program.agreed(browser))["code"]
        for name, (_, changed) in WRONG_EXCHANGES.items():
            wanted = {"code": code, **changed}
            book.told(name, await program.redeem(wanted.pop("code") or "", **wanted))
    snapshot("oauth_refusals", book.text)
