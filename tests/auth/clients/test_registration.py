"""Programs that register themselves: what real ones send, what strangers try, and how many (RFC 7591)."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey
from msgspec.structs import replace

from auth.authorization.device_authorization import pending
from auth.clients import client_registry as clients
from auth.clients.client_identifier_urls import FetchedDocument
from auth.clients.client_registry import secret_hash
from auth.identity import Identity
from auth.values.http_messages import WireReply
from auth.values.identity_model import DEVICE_CODE
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import RegistrationPolicy
from tests.auth.identity_fakes import MINUTE, ORIGIN, POLICY, START, Clock, get, header, open_identity, post
from tests.auth.registration_fakes import SCOPE, SEEN, ask, enrolled, sent

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
FAR = "203.0.113.7"
PUBLIC_KEY = {**ECKey.generate_key("P-256", {"kid": "one"}).as_dict(private=False)}


def told(reply: WireReply) -> dict[str, Any]:
    assert header(reply, "content-type") == "application/json"
    assert header(reply, "cache-control") == "no-store"
    assert header(reply, "access-control-allow-origin") == "*"
    return json.loads(reply.body)


async def rows(identity: Identity) -> list[clients.Client]:
    return [one for one in await identity.parts.store.read(clients.listing) if one.kind == "dynamic"]


async def audited(identity: Identity, event: str) -> list[tuple[str, str]]:
    found = await identity.parts.store.read(
        lambda db: db.fetch_all("SELECT outcome, reason FROM audit WHERE event = ? ORDER BY seq", event)
    )
    return [(row["outcome"], row["reason"]) for row in found]


@pytest.mark.parametrize("program", SEEN)
async def test_what_real_programs_send_is_registered_and_repeated_to_them(program: str) -> None:
    body = SEEN[program]
    async with open_identity() as identity:
        reply = await sent(identity, ask("/register", body))
        assert reply.status == 201, reply.body
        answer = told(reply)
        # Everything that was said and understood comes back as it was said, but for an empty scope.
        for name in ("redirect_uris", "grant_types", "token_endpoint_auth_method", "client_uri"):
            if body.get(name):
                assert answer[name] == body[name], name
        for name in ("software_id", "software_version", "application_type"):
            assert answer.get(name) == body.get(name)
        assert answer["scope"] == (body.get("scope") or SCOPE)
        assert answer.get("client_name") == (body.get("client_name") or "a program without a name")
        assert "contacts" not in answer and "logo_uri" not in answer and "x_future" not in answer
        assert isinstance(answer["client_id_issued_at"], int)
        assert answer["registration_client_uri"] == f"{ORIGIN}/register/{answer['client_id']}"
        (client,) = await rows(identity)
        assert (client.id, client.network, client.authorized_at) == (answer["client_id"], "127.0.0.1", None)
        assert list(client.grant_types) == answer["grant_types"]


@pytest.mark.parametrize("program", SEEN)
async def test_a_public_program_gets_no_word_of_a_secret_and_others_get_one_that_works(program: str) -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, program)
        (client,) = await rows(identity)
        if SEEN[program].get("token_endpoint_auth_method") == "none":
            assert not {"client_secret", "client_secret_expires_at"} & set(answer)
            assert client.secret_hash is None
            return
        # RFC 7591 §2: not said is client_secret_basic.
        method = SEEN[program].get("token_endpoint_auth_method", "client_secret_basic")
        assert answer["token_endpoint_auth_method"] == method
        assert (len(answer["client_secret"]), answer["client_secret_expires_at"]) == (43, 0)
        assert client.secret_hash == secret_hash(answer["client_secret"])
        for secret, status in (("wrong", 401), (answer["client_secret"], 200)):
            form = {"client_id": answer["client_id"], "client_secret": secret, "token": "x"}
            assert (await sent(identity, post("/revoke", **form))).status == status


async def test_a_secret_is_taken_in_either_place_whichever_was_registered() -> None:
    """authlib revokes with Basic what it registered for the form, and the Python SDK sends its id in both places."""
    async with open_identity() as identity:
        for program in ("Python SDK", "TypeScript SDK"):
            answer = await enrolled(identity, program)
            client_id, secret = answer["client_id"], answer["client_secret"]
            form = post("/revoke", client_id=client_id, client_secret=secret, token="x")
            plain = post("/revoke", client_id=client_id, token="x", token_type_hint="refresh_token")
            coded = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
            basic = dataclasses.replace(plain, headers={**plain.headers, "authorization": f"Basic {coded}"})
            assert [(await sent(identity, one)).status for one in (form, basic, plain)] == [200, 200, 401]


async def test_what_is_sent_in_despair_is_told_what_it_lacks() -> None:
    async with open_identity() as identity:
        junk = {"client_name": "Gemini CLI (Stored OAuth)", "redirect_uris": [], "grant_types": []}
        reply = await sent(identity, ask("/register", junk))
        assert (reply.status, told(reply)["error"]) == (400, "invalid_client_metadata")


async def test_neither_secret_nor_registration_token_is_in_the_database() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "Python SDK")
        everything = await identity.parts.store.read(
            lambda db: [
                str(dict(row))
                for table in ("clients", "audit")
                for row in db.fetch_all(f"SELECT * FROM {table}")
            ]
        )
        for secret in (answer["client_secret"], answer["registration_access_token"]):
            assert secret not in "\n".join(everything)
        assert answer["client_id"] in "\n".join(everything)


async def test_a_program_that_says_nothing_of_grants_is_given_those_that_all_others_ask_for() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "openid-client")
        assert answer["grant_types"] == ["authorization_code", "refresh_token"]
        assert answer["response_types"] == ["code"]


async def test_a_device_program_logs_in_with_what_it_registered() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "a device without a browser")
        assert answer["redirect_uris"] == []
        reply = await sent(
            identity, post("/device_authorization", client_id=answer["client_id"], scope="mcp")
        )
        assert reply.status == 200
        browser = await enrolled(identity, "Codex")
        reply = await sent(identity, post("/device_authorization", client_id=browser["client_id"]))
        assert json.loads(reply.body)["error"] == "unauthorized_client"


@pytest.mark.parametrize(
    ("scope", "said", "ceiling"),
    [
        ("mcp:tools", "mcp:tools", "mcp:tools financial"),
        ("mcp nothing:such offline_access", "mcp", "mcp financial"),
        ("financial", "financial", "financial"),
        ("nothing:such", SCOPE, "*"),
        ("", SCOPE, "*"),
        (None, SCOPE, "*"),
    ],
)
async def test_known_scopes_are_kept_and_what_moves_money_stays_to_be_asked_for_by_name(
    scope: str | None, said: str, ceiling: str
) -> None:
    async with open_identity() as identity:
        assert (await enrolled(identity, scope=scope))["scope"] == said
        (client,) = await rows(identity)
        assert client.scope == ceiling


async def test_texts_are_made_plain_and_cut_before_anybody_reads_them() -> None:
    async with open_identity() as identity:
        name = "Pay\u202epal\x00\n  Support\ufeff " + "x" * 200
        answer = await enrolled(identity, "mcp-remote", client_name=name, client_uri="javascript:alert(1)")
        assert answer["client_name"].startswith("Paypal Support x")
        assert len(answer["client_name"]) == 100
        assert "client_uri" not in answer


URIS = "invalid_redirect_uri"
DATA = "invalid_client_metadata"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"redirect_uris": ["javascript:alert(1)"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["javascript://x/%0aalert(1)"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["data:text/html,x"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["data://x/y"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["vbscript:x"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["file:///etc/passwd"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["http://evil.example/cb"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["http://127.0.0.1.evil.example/cb"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["https://user@evil.example/cb"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["https://a.example/cb#fragment"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["https://a.example/x y"]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["https://a.example/" + "x" * 2_048]}, URIS, "redirect_uris"),
    ({"redirect_uris": ["http://127.0.0.1/cb", ""]}, URIS, "redirect_uris"),
    ({"redirect_uris": [f"http://127.0.0.1/{n}" for n in range(11)]}, URIS, "redirect_uris"),
    ({"redirect_uris": "http://127.0.0.1/cb"}, URIS, "redirect_uris"),
    ({"redirect_uris": [7]}, URIS, "redirect_uris"),
    ({"redirect_uris": []}, URIS, "redirect_uris"),
    ({"redirect_uris": None}, URIS, "redirect_uris"),
    ({"client_name": ["Claude", "Code"]}, DATA, "client_name"),
    ({"client_name": {"en": "x"}}, DATA, "client_name"),
    ({"client_name": 7}, DATA, "client_name"),
    ({"client_uri": ["https://a.example"]}, DATA, "client_uri"),
    ({"client_uri": "https://a.example/" + "x" * 2_048}, DATA, "client_uri"),
    ({"scope": ["mcp"]}, DATA, "scope"),
    ({"scope": "x" * 1_025}, DATA, "scope"),
    ({"software_id": 7}, DATA, "software_id"),
    ({"application_type": ["native"]}, DATA, "application_type"),
    ({"grant_types": "authorization_code"}, DATA, "grant_types"),
    ({"grant_types": []}, DATA, "grant_types"),
    ({"grant_types": ["refresh_token"]}, DATA, "grant_types"),
    ({"grant_types": ["authorization_code", "client_credentials"]}, DATA, "grant_types"),
    ({"grant_types": ["authorization_code", "implicit"]}, DATA, "grant_types"),
    ({"grant_types": ["password"]}, DATA, "grant_types"),
    ({"grant_types": ["authorization_code", None]}, DATA, "grant_types"),
    ({"grant_types": ["authorization_code"] * 17}, DATA, "grant_types"),
    ({"response_types": ["token"]}, DATA, "response_types"),
    ({"response_types": ["code", "id_token"]}, DATA, "response_types"),
    ({"response_types": "code"}, DATA, "response_types"),
    ({"token_endpoint_auth_method": "client_secret_jwt"}, DATA, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": ["none"]}, DATA, "token_endpoint_auth_method"),
    ({"client_secret": "of my own"}, DATA, "client_secret"),
    ({"jwks": {"keys": [PUBLIC_KEY]}}, DATA, "jwks"),
    ({"jwks_uri": "https://a.example/jwks"}, DATA, "jwks"),
]


@pytest.mark.parametrize(("changed", "error", "member"), REFUSED)
async def test_what_cannot_be_registered_is_refused_by_the_name_of_the_member(
    changed: dict[str, Any], error: str, member: str
) -> None:
    async with open_identity() as identity:
        reply = await sent(identity, ask("/register", {**SEEN["Claude Code"], **changed}))
        answer = told(reply)
        assert (reply.status, answer["error"]) == (400, error)
        assert answer["error_description"].startswith(member + ":")
        assert await rows(identity) == []


def signing(**more: Any) -> dict[str, Any]:
    return {**SEEN["Claude Code"], "token_endpoint_auth_method": "private_key_jwt", **more}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"jwks": {"keys": [PUBLIC_KEY]}, "jwks_uri": "https://a.example/jwks"},
        {"jwks": {"keys": []}},
        {"jwks": {"keys": {}}},
        {"jwks": [PUBLIC_KEY]},
        {"jwks": "x"},
        {"jwks": {"keys": ["x"]}},
        {"jwks": {"keys": [PUBLIC_KEY] * 11}},
        {"jwks": {"keys": [ECKey.generate_key("P-256").as_dict(private=True)]}},
        {"jwks": {"keys": [PUBLIC_KEY, ECKey.generate_key("P-256").as_dict(private=True)]}},
        {"jwks": {"keys": [OctKey.generate_key(256).as_dict(private=True)]}},
        {"jwks": {"keys": [{"kty": "oct"}]}},
        {"jwks": {"keys": [ECKey.generate_key("P-521").as_dict(private=False)]}},
        {"jwks": {"keys": [{**PUBLIC_KEY, "y": PUBLIC_KEY["x"]}]}},
        {"jwks": {"keys": [{**PUBLIC_KEY, "kid": 7}]}},
        {"jwks": {"keys": [{**PUBLIC_KEY, "kid": "x" * 257}]}},
        {"jwks": {"keys": [{**PUBLIC_KEY, "use": "enc"}]}},
        {"jwks": {"keys": [{**PUBLIC_KEY, "alg": "HS256"}]}},
        {"jwks": {"keys": [{"kty": "RSA", "e": "AQAB", "n": "AQAB"}]}},
        {"jwks": {"keys": [{"kty": ["RSA"], "e": 1, "n": 2}]}},
        {"jwks": {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}},
        {"jwks": {"keys": [PUBLIC_KEY], "note": "\ud800"}},
        {"jwks_uri": "https://a.example/jwks"},  # nobody fetches here
    ],
)
async def test_only_one_set_of_public_keys_makes_a_program_that_signs(more: dict[str, Any]) -> None:
    async with open_identity() as identity:
        reply = await sent(identity, ask("/register", signing(**more)))
        assert (reply.status, told(reply)["error"]) == (400, DATA)
        assert told(reply)["error_description"].startswith("jwks")


async def test_a_program_that_signs_gets_its_keys_repeated_and_no_secret() -> None:
    async with open_identity() as identity:
        reply = await sent(identity, ask("/register", signing(jwks={"keys": [PUBLIC_KEY]})))
        assert reply.status == 201
        assert told(reply)["jwks"] == {"keys": [PUBLIC_KEY]}
        assert "client_secret" not in told(reply)


async def nowhere(url: str) -> FetchedDocument:
    raise AssertionError("nothing is fetched to register")


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("https://a.example/jwks", 201),
        ("http://a.example/jwks", 400),
        ("https://a b/", 400),
        # What would be refused whenever it is fetched is refused at once.
        ("https://a.example:8443/jwks", 400),
        ("https://10.0.0.7/jwks", 400),
        ("https://localhost/jwks", 400),
    ],
)
async def test_keys_may_be_at_an_https_address_where_this_server_can_fetch_them(
    uri: str, status: int
) -> None:
    async with open_identity(fetch=nowhere) as identity:
        reply = await sent(identity, ask("/register", signing(jwks_uri=uri)))
        assert reply.status == status
        assert told(reply).get("jwks_uri") == (uri if status == 201 else None)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'"x"',
        b"null",
        b"{",
        b"client_name=x&redirect_uris=y",
        b"\xff\xfe{}",
        b'{"redirect_uris": ["http://127.0.0.1/cb"], "redirect_uris": ["https://evil.example/cb"]}',
        b'{"redirect_uris": ["http://127.0.0.1/cb"], "jwks": {"keys": [], "keys": []}}',
        b'{"redirect_uris": ["http://127.0.0.1/cb"], "x": NaN}',
        b'{"redirect_uris": ["http://127.0.0.1/cb"], "x": ' + b"[" * 8_000 + b"]" * 8_000 + b"}",
        b'{"x": ' * 2_000 + b"1" + b"}" * 2_000,
        b'{"redirect_uris": ["http://127.0.0.1/cb"], "x": "' + b"x" * 17 * 1_024 + b'"}',
        b'{"redirect_uris": ["http://127.0.0.1/cb"], "x": ' + b"9" * 5_000 + b"}",
    ],
    ids=lambda raw: raw[:24].decode("latin-1"),
)
async def test_what_is_no_registration_is_refused_in_words_and_leaves_nothing(raw: bytes) -> None:
    async with open_identity() as identity:
        reply = await sent(identity, ask("/register", raw=raw))
        assert (reply.status, told(reply)["error"]) == (400, DATA)
        assert await rows(identity) == []


async def test_a_form_is_no_registration() -> None:
    async with open_identity() as identity:
        reply = await sent(identity, post("/register", client_name="x"))
        assert reply.status == 400
        assert "application/json" in told(reply)["error_description"]


async def test_pages_of_any_origin_may_ask_and_other_methods_are_told_which() -> None:
    async with open_identity() as identity:
        preflight = await sent(identity, get("/register", method="OPTIONS"))
        assert (preflight.status, header(preflight, "access-control-allow-origin")) == (204, "*")
        assert header(preflight, "access-control-allow-methods") == "POST, OPTIONS"
        refused = await sent(identity, get("/register"))
        assert (refused.status, header(refused, "allow")) == (405, "POST, OPTIONS")


# ---------------------------------------------------------------- whether and how many


def policy(**fields: Any):  # noqa: ANN201
    return replace(POLICY, registration=RegistrationPolicy(**fields))


async def published(identity: Identity) -> dict[str, Any]:
    return json.loads((await sent(identity, get("/.well-known/oauth-authorization-server"))).body)


async def test_where_it_is_off_nothing_is_announced_and_whoever_asks_is_told() -> None:
    async with open_identity(policy=policy(mode="off")) as identity:
        assert "registration_endpoint" not in await published(identity)
        reply = await sent(identity, ask("/register", SEEN["Codex"]))
        assert (reply.status, told(reply)["error"]) == (403, "access_denied")
        assert "operator" in told(reply)["error_description"]
        assert await rows(identity) == []


async def test_with_a_token_only_whoever_has_it_registers() -> None:
    async with open_identity(policy=policy(mode="token", token_hash=secret_hash("let me in"))) as identity:
        assert (await published(identity))["registration_endpoint"] == ORIGIN + "/register"
        for token in (None, "", "let me", "let me in "[:-2]):
            reply = await sent(identity, ask("/register", SEEN["Codex"], token=token))
            assert (reply.status, told(reply)["error"]) == (401, "invalid_token")
            assert (header(reply, "www-authenticate") or "").startswith("Bearer ")
        assert await rows(identity) == []
        # Who has no token learns nothing about what could be registered.
        assert (await sent(identity, ask("/register", {"redirect_uris": 7}))).status == 401
        assert (await sent(identity, ask("/register", SEEN["Codex"], token="let me in"))).status == 201
        assert await audited(identity, "client.registered") == [
            *[("refused", "wrong initial access token")] * 5,
            ("ok", ""),
        ]


async def test_a_policy_without_a_token_lets_nobody_in() -> None:
    async with open_identity(policy=policy(mode="token", token_hash="")) as identity:
        for token in (None, "", "x"):
            assert (await sent(identity, ask("/register", SEEN["Codex"], token=token))).status == 401


async def test_a_network_registers_so_many_in_a_quarter_of_an_hour_and_that_survives_a_restart() -> None:
    clock = Clock()
    async with open_identity(site=PUBLIC, clock=clock) as identity:
        statuses = []
        for _ in range(21):
            statuses.append((await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).status)
            clock.now += 1_000
        assert statuses == [201] * 20 + [429]
        reply = await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))
        assert told(reply)["error"] == "temporarily_unavailable"
        assert header(reply, "retry-after") == str(15 * 60 - 21)
        assert (await sent(identity, ask("/register", SEEN["Codex"], ip="198.51.100.1"))).status == 201

        # Counted in the store, so a new process knows; nothing of it is in this one's memory.
        again = dataclasses.replace(
            identity, parts=replace(identity.parts, throttle=type(identity.parts.throttle)())
        )
        assert (await sent(again, ask("/register", SEEN["Codex"], ip=FAR))).status == 429
        clock.now += 15 * MINUTE
        assert (await sent(again, ask("/register", SEEN["Codex"], ip=FAR))).status == 201
        assert len(await rows(identity)) == 22


async def test_programs_on_the_machine_itself_are_not_counted_unless_the_server_has_a_public_name() -> None:
    async with open_identity() as identity:
        for _ in range(25):
            await enrolled(identity)
    async with open_identity(site=PUBLIC) as identity:
        statuses = [(await sent(identity, ask("/register", SEEN["Codex"]))).status for _ in range(21)]
        assert statuses[-1] == 429


async def test_refusals_that_are_written_down_are_few_per_network_and_nonsense_is_not_written_down() -> None:
    async with open_identity(
        site=PUBLIC, policy=policy(mode="token", token_hash=secret_hash("right"))
    ) as identity:
        for _ in range(40):
            await sent(identity, ask("/register", SEEN["Codex"], token="wrong", ip=FAR))
        assert len(await audited(identity, "client.registered")) == 30
    async with open_identity(site=PUBLIC) as identity:
        for _ in range(40):
            assert (await sent(identity, ask("/register", raw=b"{", ip=FAR))).status == 400
        assert await audited(identity, "client.registered") == []
        # A program that keeps sending nonsense locks none of its neighbours out.
        assert (await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).status == 201


async def test_off_loopback_the_registration_is_managed_under_the_configured_name() -> None:
    async with open_identity(site=PUBLIC) as identity:
        reply = await sent(identity, ask("/register", SEEN["Codex"], origin="https://10.0.0.1"))
        assert told(reply)["registration_client_uri"].startswith("https://agent.example/register/cli_")


async def test_the_grants_of_a_registration_are_those_and_no_more() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, grant_types=[DEVICE_CODE])
        assert answer["grant_types"] == [DEVICE_CODE]
        reply = await sent(
            identity,
            post("/token", client_id=answer["client_id"], grant_type="refresh_token", refresh_token="x"),
        )
        assert json.loads(reply.body)["error"] == "unauthorized_client"
        for grant in ("client_credentials", "authorization_code"):
            reply = await sent(identity, post("/token", client_id=answer["client_id"], grant_type=grant))
            assert json.loads(reply.body)["error"] == "unauthorized_client"


async def test_a_secret_that_a_program_got_by_itself_makes_it_no_better_known_to_a_person() -> None:
    async with open_identity() as identity:
        device = {**SEEN["a device without a browser"], "token_endpoint_auth_method": "client_secret_post"}
        answer = told(await sent(identity, ask("/register", device)))
        form = {name: answer[name] for name in ("client_id", "client_secret")}
        assert (await sent(identity, post("/device_authorization", **form))).status == 200
        (waiting,) = await identity.parts.store.read(lambda db: pending(db, START))
        assert waiting.verified is False
