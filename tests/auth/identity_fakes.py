"""A database, a clock and a world in which logins can be tried out, for the tests of identity."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from auth.administration import store_preparation
from auth.audit import audit_trail
from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import CodeRequest, DeviceAuthorization
from auth.clients import client_registry as clients
from auth.clients.client_identifier_urls import NO_DOCUMENTS, Documents, FetchDocument
from auth.clients.client_registry import CLI_CLIENT_ID, ClientRegistration
from auth.grant_types.device_code_grant import redeem
from auth.grant_types.refresh_token_grant import refresh
from auth.grants import refresh_tokens
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import GrantRequest, Issue
from auth.identity import Identity, found
from auth.keys import signing_keys as keys
from auth.keys.refresh_token_keys import RefreshKey, RefreshRing
from auth.providers.provider_requests import Upstreams
from auth.tokens.accepted_credentials import AcceptedCredentials
from auth.values.database import AuditEntry, Db, JobStore, Row
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import DEVICE_CODE, REFRESH_TOKEN, Client, Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester
from server.store.audit_chain import AuditChain
from server.store.inline_store import InlineStore, open_inline_store
from server.store.row_seals import Seal
from tests.engine_under_test import FakesDatabase, fakes_database, fetched, fetched_one, foresee, put_in
from tests.sealing import seal_written

T = TypeVar("T")

START: Millis = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
ORIGIN = "http://127.0.0.1:8420"
FAR = "203.0.113.7"  # from which somebody comes who is not of this network
SITE = Site(issuer=ORIGIN, loopback=True, servers={"agent": "/mcp", "other": "/other/mcp"})
POLICY = Policy()


def subkey(purpose: str) -> bytes:
    return hashlib.sha256(b"test key " + purpose.encode()).digest()


# What every `World` proves its first refresh tokens with.
REFRESH = RefreshRing([RefreshKey(version=1, secret=subkey("the first refresh key"))])
CHAIN = AuditChain(subkey(audit_trail.KEY_PURPOSE))


def seeds(start: int = 0) -> Callable[[int], bytes]:
    """Bytes that differ on each call and never between runs."""
    count = start

    def draw(length: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_128(f"seed {count}".encode()).digest(length)

    return draw


class PlainDb:
    """The `Db` facade over the database of a test, committed at the end of each `run`."""

    def __init__(self, database: FakesDatabase | None = None) -> None:
        self.database = database or fakes_database()
        self.changes: list[tuple[str, str]] = []
        self.in_job = False
        self.seals = Seal(subkey(audit_trail.KEY_PURPOSE))

    def execute(self, sql: str, *params: object) -> int:
        touched = self.database.connection.execute(sql, params).rowcount
        if not self.in_job:
            self.in_job = True
            seal_written(self, sql)
            self.in_job = False
        return touched

    def seal(self, said: bytes) -> str:
        return self.seals.of(said)

    def altered(self, table: str, key: str) -> None:
        self.seals.note(table, key)

    def fetch_one(self, sql: str, *params: object) -> Row | None:
        return fetched_one(self.database, sql, params)

    def fetch_all(self, sql: str, *params: object) -> list[Row]:
        return fetched(self.database, sql, params)

    def changed(self, kind: str, *entity_ids: str) -> None:
        self.changes += [(kind, entity_id) for entity_id in entity_ids]

    def put_in(self, sql: str, *params: object) -> None:
        put_in(self.database, sql, params)

    def foresee(self, sql: str, *params: object) -> None:
        foresee(self.database, sql, params)

    def takes_away(self) -> None:
        """A disk in memory is not full."""

    def audit(self, entry: AuditEntry) -> None:
        CHAIN.append(cast("Any", self), entry)

    def run(self, job: Callable[[Db], T]) -> T:
        """One transaction. As the store may, it runs the job a second time after undoing the first, and both must agree."""
        noted = len(self.changes)
        self.in_job = True
        try:
            self.database.begin()
            first = job(self)
            self.database.connection.execute("ROLLBACK")
            del self.changes[noted:]
            self.database.begin()
            second = job(self)
            self.database.connection.execute("COMMIT")
        finally:
            self.in_job = False
        assert first == second
        return second

    def count(self, table: str, where: str = "1 = 1", *values: object) -> int:
        row = self.fetch_one(f"SELECT COUNT(*) AS n FROM {table} WHERE {where}", *values)
        assert row is not None
        return row["n"]

    def one(self, table: str) -> Row:
        rows = self.fetch_all(f"SELECT * FROM {table}")
        assert len(rows) == 1
        return rows[0]

    def audited(self, event: str) -> list[tuple[str, str]]:
        """(outcome, reason) of every row of this event, oldest first."""
        rows = self.fetch_all("SELECT outcome, reason FROM audit WHERE event = ? ORDER BY seq", event)
        return [(row["outcome"], row["reason"]) for row in rows]

    def reopened(self) -> PlainDb:
        """What a new process finds after this one ended."""
        return PlainDb(self.database.reopened())

    def close(self) -> None:
        self.database.close()


@dataclass
class World:
    """A set-up store and the moves of a login, each one a job."""

    db: PlainDb = field(default_factory=PlainDb)
    now: Millis = START
    policy: Policy = POLICY
    site: Site = SITE
    draw: Callable[[int], bytes] = field(default_factory=seeds)
    owner: str = ""

    def __post_init__(self) -> None:
        preparation = store_preparation.prepare(subkey, self.draw, self.policy.tokens, self.now)
        first = replace(preparation.refresh, secret=REFRESH.newest().secret)
        preparation = replace(preparation, refresh=first)
        self.owner = self.db.run(lambda db: store_preparation.found(db, preparation, self.now))

    def client(self, client_id: str = CLI_CLIENT_ID) -> Client:
        client = clients.lookup(self.db, client_id)
        assert client is not None
        return client

    def add_client(self, name: str = "Other", **fields: Any) -> clients.NewClient:
        seed = self.draw(32)
        registration = ClientRegistration(name=name, **fields)
        added = self.db.run(lambda db: clients.add(db, registration, seed=seed, by="local:0", now=self.now))
        assert added is not None
        return added

    def who(self, ip: str = "127.0.0.1", origin: str = ORIGIN) -> Requester:
        return Requester(origin=origin, ip=ip, network=ip, user_agent="test/1")

    def ask(
        self, *, client: Client | None = None, ip: str = "127.0.0.1", **fields: Any
    ) -> DeviceAuthorization | OAuthRefusal:
        values: dict[str, Any] = {"scope": "", "resources": (), "client_name": "", "hostname": ""}
        ask = CodeRequest(**{**values, **fields}, requester=self.who(ip))
        seed = self.draw(32)
        return self.db.run(
            lambda db: device.request_code(
                db,
                client=client or self.client(),
                ask=ask,
                seed=seed,
                mac_key=subkey(device.MAC_PURPOSE),
                site=self.site,
                policy=self.policy.device,
                now=self.now,
            )
        )

    def asked(self, **fields: Any) -> DeviceAuthorization:
        codes = self.ask(**fields)
        assert isinstance(codes, DeviceAuthorization)
        return codes

    def find(self, codes: DeviceAuthorization) -> device.DeviceRequest | None:
        code = device.normalise(codes.user_code.reveal())
        assert code is not None
        return device.find(self.db, device.user_code_mac(subkey(device.MAC_PURPOSE), code), self.now)

    def approve(
        self, codes: DeviceAuthorization, scope: str | None = None
    ) -> device.DeviceApproved | device.NotPending:
        request = self.find(codes)
        return self.approve_id("" if request is None else request.id, scope)

    def approve_id(
        self, request_id: str, scope: str | None = None, subject: str = ""
    ) -> device.DeviceApproved | device.NotPending:
        return self.db.run(
            lambda db: device.approve(
                db, request_id, subject=subject or self.owner, by="local:0", scope=scope, now=self.now
            )
        )

    def deny(self, codes: DeviceAuthorization) -> device.DeviceDenied | device.NotPending:
        request_id = self.id_of(codes)
        return self.db.run(lambda db: device.deny(db, request_id, by="local:0", now=self.now))

    def id_of(self, codes: DeviceAuthorization) -> str:
        row = self.db.fetch_one(
            "SELECT id FROM device_codes WHERE device_code_hash = ?",
            device.device_code_hash(codes.device_code.reveal()),
        )
        return "swept" if row is None else row["id"]

    def refresh_keys(self) -> RefreshRing:
        """As a process has them that has just read them."""
        return keys.Keys(keys.every(self.db), subkey=subkey).refresh

    def exchange(self, form: TokenForm, origin: str = ORIGIN) -> GrantRequest:
        return GrantRequest(
            form=form,
            requester=self.who(origin=origin),
            site=self.site,
            policy=self.policy,
            refresh_keys=self.refresh_keys(),
            seed=self.draw(32),
            now=self.now,
        )

    def poll(
        self,
        codes: DeviceAuthorization | str,
        *,
        client: Client | None = None,
        resources: tuple[str, ...] = (),
    ) -> Issue | OAuthRefusal:
        code = codes if isinstance(codes, str) else codes.device_code.reveal()
        form = TokenForm(
            grant_type=DEVICE_CODE,
            credentials=clients.ClientCredentials(client_id=None),
            device_code=code,
            resources=resources,
        )
        exchange, asker = self.exchange(form), client or self.client()
        return self.db.run(lambda db: redeem(db, asker, exchange))

    def login(self, **fields: Any) -> Issue:
        codes = self.asked(**fields)
        self.approve(codes)
        issue = self.poll(codes, client=fields.get("client"))
        assert isinstance(issue, Issue)
        return issue

    def refresh(
        self,
        token: str,
        *,
        client: Client | None = None,
        scope: str = "",
        resources: tuple[str, ...] = (),
        origin: str = ORIGIN,
    ) -> Issue | OAuthRefusal:
        form = TokenForm(
            grant_type=REFRESH_TOKEN,
            credentials=clients.ClientCredentials(client_id=None),
            refresh_token=token,
            scope=scope,
            resources=resources,
        )
        exchange, asker = self.exchange(form, origin), client or self.client()
        return self.db.run(lambda db: refresh(db, asker, exchange))

    def close(self) -> None:
        self.db.close()


def refresh_token(issue: Issue, counter: int | None = None, *, key: RefreshKey | None = None) -> str:
    """The issue's refresh token, or its grant's with another counter. Of the first key, unless told otherwise."""
    number = issue.counter if counter is None else counter
    assert number is not None
    return refresh_tokens.write(
        key or REFRESH.newest(), refresh_tokens.ChainLink(grant_id=issue.grant_id, counter=number)
    )


def error_of(outcome: object) -> str:
    assert isinstance(outcome, OAuthRefusal), outcome
    return outcome.error


class Clock:
    def __init__(self, now: Millis = START) -> None:
        self.now = now

    def __call__(self) -> Millis:
        return self.now


def post(
    path: str, *pairs: tuple[str, str], ip: str = "127.0.0.1", origin: str = ORIGIN, **form: str
) -> WireRequest:
    headers = {"content-type": "application/x-www-form-urlencoded", "user-agent": "test/1"}
    return WireRequest(
        method="POST", path=path, form=(*form.items(), *pairs), headers=headers, origin=origin, ip=ip
    )


def get(path: str, *, origin: str = ORIGIN, method: str = "GET", **headers: str) -> WireRequest:
    return WireRequest(method=method, path=path, headers=headers, origin=origin, ip="127.0.0.1")


def header(reply: WireReply, name: str) -> str | None:
    values = [value for key, value in reply.headers if key.lower() == name.lower()]
    assert len(values) <= 1, f"{name} is sent twice"
    return values[0] if values else None


@asynccontextmanager
async def open_identity(
    *,
    site: Site = SITE,
    policy: Policy = POLICY,
    clock: Clock | None = None,
    documents: Callable[[JobStore], Documents] = lambda store: NO_DOCUMENTS,
    access: Mapping[str, AcceptedCredentials] | None = None,
    fetch: FetchDocument | None = None,
    upstreams: Upstreams | None = None,
    opened: Callable[..., AbstractAsyncContextManager[InlineStore]] | None = None,
    age: int = 2 * MINUTE,
) -> AsyncGenerator[Identity]:
    """The whole thing over the store without threads: in memory, or as `opened` opens it. `age`: for how long it has run."""
    clock = clock or Clock()
    async with (opened or open_inline_store)(clock=clock) as store:
        identity = await found(
            store,
            clock=clock,
            entropy=seeds(),
            subkey=subkey,
            site=site,
            policy=policy,
            documents=documents(store),
            access=access or {},
            fetch=fetch,
            upstreams=upstreams,
            began=clock() - age,
        )
        store.on_changes(identity.apply_changes)
        yield identity


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


async def logged_in(identity: Identity, **form: str) -> dict[str, Any]:
    """Through the endpoints, as a client does it, with the owner's approval in between."""
    asked = await identity.handle(post("/device_authorization", client_id=CLI_CLIENT_ID, **form))
    assert asked is not None
    codes = json.loads(asked.body)
    code = device.normalise(codes["user_code"])
    assert code is not None
    mac, now = device.user_code_mac(identity.parts.subkey(device.MAC_PURPOSE), code), identity.parts.clock()

    def approve(db: Db) -> device.DeviceApproved | device.NotPending:
        request, owner = device.find(db, mac, now), db.fetch_one("SELECT id FROM users")
        assert request is not None
        assert owner is not None
        return device.approve(db, request.id, subject=owner["id"], by="local:0", scope=None, now=now)

    assert isinstance(await identity.parts.store.write(approve), device.DeviceApproved)
    reply = await identity.handle(
        post("/token", client_id=CLI_CLIENT_ID, grant_type=DEVICE_CODE, device_code=codes["device_code"])
    )
    assert reply is not None
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def told(reply: WireReply) -> tuple[int, str, str]:
    """Return a refusal's status, its error and what is said of it."""
    answer = json.loads(reply.body or b"{}")
    return reply.status, answer.get("error", ""), answer.get("error_description", "")


async def rows(identity: Identity, table: str) -> list[Any]:
    return list(await identity.parts.store.read(lambda db: db.fetch_all(f"SELECT * FROM {table}")))


def refreshed(world: World, text: str) -> Issue:
    issue = world.refresh(text)
    assert isinstance(issue, Issue), issue
    return issue


def basic(text: str) -> str:
    """Return what is sent as Authorization by HTTP's own way."""
    return "Basic " + base64.b64encode(text.encode()).decode()
