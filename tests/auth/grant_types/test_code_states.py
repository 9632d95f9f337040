"""Whatever happens in whatever order, one yes gives at most one login (RFC 6749 §4.1.2)."""

from __future__ import annotations

from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from auth.authorization import authorization_request as authorize
from auth.authorization.authorization_request import AuthorizationRequest, SendBack
from auth.clients.client_registry import ClientCredentials
from auth.endpoints import pushed_authorization
from auth.grant_types.authorization_code_grant import redeem_code
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import Issue
from auth.pages import consent_decisions
from auth.pages.consent_decisions import SentWithCode
from auth.people import browser_sessions
from auth.values.identity_model import AUTHORIZATION_CODE, REFRESH_TOKEN, Client
from tests.auth.code_fakes import CALLBACK, CHALLENGE, VERIFIER
from tests.auth.identity_fakes import SECOND, World

COOKIE = "c" * 43


class CodeLogins(RuleBasedStateMachine):
    requests = Bundle("requests")
    codes = Bundle("codes")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.db.execute("UPDATE users SET name = 'alice', state = 'enabled'")
        self.program, self.other = (self.add(name) for name in ("Program", "Other"))
        self.issued: dict[str, list[Issue]] = {}
        self.decided: list[AuthorizationRequest] = []
        self.sign_in()

    def add(self, name: str) -> Client:
        return self.world.add_client(
            name, redirect_uris=(CALLBACK,), grant_types=(AUTHORIZATION_CODE, REFRESH_TOKEN)
        ).client

    @rule()
    def sign_in(self) -> None:
        world = self.world
        world.db.run(
            partial(
                browser_sessions.begin,
                cookie=COOKIE,
                replaces=COOKIE,
                user_id=world.owner,
                who=world.who(),
                now=world.now,
            )
        )

    @rule(target=requests, pushed=st.booleans(), scope=st.sampled_from(["mcp", "mcp:tools"]))
    def ask(self, pushed: bool, scope: str) -> AuthorizationRequest:
        asked = authorize.read(
            (
                ("response_type", "code"),
                ("client_id", self.program.id),
                ("redirect_uri", CALLBACK),
                ("code_challenge", CHALLENGE),
                ("code_challenge_method", "S256"),
                ("scope", scope),
            )
        )
        if not pushed:
            return asked
        world, seed = self.world, self.world.draw(32)
        outcome = world.db.run(
            lambda db: pushed_authorization.push(
                db,
                self.program,
                asked,
                site=world.site,
                who=world.who(),
                seed=seed,
                policy=world.policy,
                limits=world.policy.at_home,
                now=world.now,
            )
        )
        assert isinstance(outcome, pushed_authorization.PushedRequest)
        return authorize.read((("client_id", self.program.id), ("request_uri", outcome.request_uri)))

    @rule(target=codes, asked=requests, asking=st.booleans(), copied=st.booleans())
    def agree(self, asked: AuthorizationRequest, asking: bool, copied: bool) -> str:
        world, seed = self.world, self.world.draw(32)
        outcome = world.db.run(
            lambda db: consent_decisions.agree(
                db,
                cookie=COOKIE,
                asked=asked,
                ticked=("mcp", "mcp:tools") if asking else None,
                copied=copied,
                site=world.site,
                policy=world.policy.tokens,
                who=world.who(),
                seed=seed,
                now=world.now,
            )
        )
        if not isinstance(outcome, SentWithCode):
            return "none"
        if pushed_authorization.is_pushed(asked):
            assert asked not in self.decided, "a pushed request is decided once"
            self.decided.append(asked)
        code = outcome.location.partition("?code=")[2].partition("&")[0]
        assert code not in self.issued
        self.issued[code] = []
        return code

    @rule(asked=requests)
    def deny(self, asked: AuthorizationRequest) -> None:
        world, before = self.world, self.world.db.count("authorization_codes")
        outcome = world.db.run(
            lambda db: consent_decisions.deny(
                db, cookie=COOKIE, asked=asked, site=world.site, who=world.who(), now=world.now
            )
        )
        assert world.db.count("authorization_codes") == before
        if pushed_authorization.is_pushed(asked) and isinstance(outcome, SendBack):
            assert asked not in self.decided, "a pushed request is decided once"
            self.decided.append(asked)

    @rule(
        code=codes,
        own=st.booleans(),
        verifier=st.sampled_from([VERIFIER, VERIFIER, "w" * 43]),
        times=st.integers(1, 3),
    )
    def redeem(self, code: str, own: bool, verifier: str, times: int) -> None:
        form = TokenForm(
            grant_type=AUTHORIZATION_CODE,
            credentials=ClientCredentials(client_id=None),
            code=code,
            code_verifier=verifier,
            redirect_uri=CALLBACK,
        )
        for _ in range(times):
            exchange = self.world.exchange(form)
            client = self.program if own else self.other
            outcome = self.world.db.run(
                lambda db, client=client, exchange=exchange: redeem_code(db, client, exchange)
            )
            if isinstance(outcome, Issue):
                assert own, "a code belongs to the client that asked for it"
                assert verifier == VERIFIER
                self.issued[code].append(outcome)
            elif self.issued.get(code):
                self.expect_the_login_to_be_over(code)

    def expect_the_login_to_be_over(self, code: str) -> None:
        """After a replay; unless the code was swept, and then it is simply unknown."""
        db, grant_id = self.world.db, self.issued[code][0].grant_id
        known = db.fetch_one("SELECT id FROM authorization_codes WHERE grant_id = ?", grant_id)
        grant = db.fetch_one("SELECT revoked_at FROM grants WHERE id = ?", grant_id)
        assert known is None or grant is None or grant["revoked_at"] is not None

    @rule(seconds=st.sampled_from([1, 30, 59, 60, 89, 300, 600, 90_000]))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds * SECOND

    @rule(state=st.sampled_from(["enabled", "disabled"]))
    def change_the_user(self, state: str) -> None:
        self.world.db.execute("UPDATE users SET state = ?", state)

    @rule()
    def restart(self) -> None:
        """A new process finds the bytes of the old one's store, and nothing else."""
        self.world.db = self.world.db.reopened()

    @rule()
    def sweep(self) -> None:
        """As the store's maintenance does it."""
        now = self.world.now
        self.world.db.run(
            lambda db: (
                db.execute("DELETE FROM authorization_codes WHERE expires_at <= ?", now - 3_600 * SECOND),
                db.execute("DELETE FROM pushed_requests WHERE expires_at <= ?", now),
                db.execute("DELETE FROM consents WHERE expires_at <= ?", now),
            )
        )

    @invariant()
    def one_yes_is_one_login_at_most(self) -> None:
        assert all(len(issues) <= 1 for issues in self.issued.values())
        assert self.world.db.count("grants") == sum(len(issues) for issues in self.issued.values())

    def teardown(self) -> None:
        self.world.close()


CodeLogins.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_code_logins = CodeLogins.TestCase
