"""A browser and a server as values: what the tests of the pages, and the Chromium tests, stand on.

The store keeps its rows in memory and runs every writing job twice, the first time for nothing: whoever breaks the rule that
a job may run twice fails here.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

from auth.administration import store_preparation
from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import CodeRequest, DeviceAuthorization
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.context.identity_parts import Hashing, Parts
from auth.keys.signing_keys import Keys
from auth.people import browser_sessions, one_time_links, user_accounts
from auth.values.database import AuditEntry, Db, NotStored, Row
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import Client
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import DevicePolicy, Policy
from auth.values.requester import Requester
from server.store.audit_chain import AuditChain
from server.store.keyfile import MasterKey
from server.store.row_seals import Seal
from server.store.store_engine import EngineConnection
from tests.auth.routed_pages import AUDIT_KEY, RoutedPages
from tests.engine_under_test import fakes_database, fetched, fetched_one, foresee, put_in
from tests.sealing import seal_written

T = TypeVar("T")

START = 1_790_000_000_000
LOOPBACK = "http://localhost:8420"
PUBLIC = "https://agent.example"
HOME = "203.0.113.7"
ELSEWHERE = "198.51.100.9"
PASSPHRASE = "four calm herons wading"
SCOPES = "mcp mcp:tools"
CHAIN = AuditChain(AUDIT_KEY)
MOVEMENT = (
    "at", "kind", "source", "target", "amount", "currency", "principal", "client_id", "grant_id", "server",
    "tool", "call_id", "charge_id", "payment_id", "price", "refers", "note",
)  # fmt: skip


class MemoryDb:
    def __init__(self) -> None:
        self.database = fakes_database()
        self.full = (
            False  # the disk: then it takes what a job writes that said before that it takes a right away
        )
        self._room = False
        self.in_job = False
        self.seals = Seal(AUDIT_KEY)

    def begin(self) -> None:
        self.database.begin()
        self._room = not self.full

    def execute(self, sql: str, *params: object) -> int:
        touched = self.database.connection.execute(sql, params).rowcount
        if touched and self.full and not self._room:
            raise NotStored("the disk is full")
        if not self.in_job:
            self._seal_written(sql)
        return touched

    def _seal_written(self, sql: str) -> None:
        self.in_job = True
        seal_written(self, sql)
        self.in_job = False

    def seal(self, said: bytes) -> str:
        return self.seals.of(said)

    def altered(self, table: str, key: str) -> None:
        self.seals.note(table, key)

    def fetch_one(self, sql: str, *params: object) -> Row | None:
        return fetched_one(self.database, sql, params)

    def fetch_all(self, sql: str, *params: object) -> list[Row]:
        return fetched(self.database, sql, params)

    def changed(self, kind: str, *entity_ids: str) -> None:
        for entity_id in entity_ids:
            self.execute("INSERT INTO changes (at, kind, entity_id) VALUES (?, ?, ?)", 0, kind, entity_id)

    def put_in(self, sql: str, *params: object) -> None:
        put_in(self.database, sql, params)

    def foresee(self, sql: str, *params: object) -> None:
        foresee(self.database, sql, params)

    def takes_away(self) -> None:
        self._room = True

    def audit(self, entry: AuditEntry) -> None:
        CHAIN.append(cast("Any", self), entry)

    def post(self, values: Sequence[object], *, once: str | None = None) -> int:
        """A movement, in a chain of its own. What is booked once is so by its index."""
        columns = ", ".join(MOVEMENT)
        row = self.fetch_one("SELECT coalesce(max(seq), 0) + 1 AS seq FROM movements")
        assert row is not None
        marks = ", ".join("?" * (len(values) + 2))
        self.execute(f"INSERT INTO movements (seq, {columns}, mac) VALUES ({marks})", row["seq"], *values, "")
        return row["seq"]


def subkey(name: str) -> bytes:
    MasterKey("key", bytes(32)).subkey(f"{name}/1")  # refused as a served page's would be
    return hashlib.sha256(b"house " + name.encode()).digest()


class MemoryStore:
    def __init__(self) -> None:
        self.db = MemoryDb()
        self.writes = 0

    def now(self, job: Callable[[Db], T]) -> T:
        connection = self.db.database.connection
        self.db.in_job = True
        try:
            return self._committed(job, connection)
        finally:
            self.db.in_job = False

    def _committed(self, job: Callable[[Db], T], connection: EngineConnection) -> T:
        self.db.begin()
        try:
            rehearsed = job(self.db)
        finally:
            connection.execute("ROLLBACK")
        self.db.begin()
        try:
            result = job(self.db)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        assert repr(result) == repr(rehearsed), "this job does not do the same when it runs again"
        self.writes += 1
        return result

    async def write(self, job: Callable[[Db], T]) -> T:
        return self.now(job)

    def chain_audit(self, key: bytes) -> None:
        raise AssertionError("a house has its chain already")

    async def read(self, job: Callable[[Db], T]) -> T:
        with self.db.database.reading():
            return job(self.db)


class House:
    """A server with an owner's account, two clients, and a clock that stands still until told."""

    def __init__(
        self,
        origin: str = LOOPBACK,
        *,
        loopback: bool = True,
        servers: Mapping[str, str] | None = None,
        real_hashing: bool = False,
        policy: Policy | None = None,
    ) -> None:
        self.store = MemoryStore()
        self.origin = origin
        self.time = START
        self.drawn = 0
        self.hashed = 0
        self.verified = 0
        self.verified_against: list[str] = []
        self.real_hashing = real_hashing
        self.before_verifying: Callable[[], object] = lambda: None
        self.parts = Parts(
            store=self.store,
            clock=lambda: self.time,
            entropy=self.entropy,
            subkey=subkey,
            keys=Keys(((), ()), subkey=subkey),  # pages sign nothing
            hashing=Hashing(hash_passphrase=self.hash_passphrase, verify_passphrase=self.verify_passphrase),
            site=Site(issuer=origin, loopback=loopback, servers=servers or {"agent": "/mcp"}),
            policy=policy or Policy(),
        )
        preparation = store_preparation.prepare(
            self.parts.subkey, self.entropy, self.parts.policy.tokens, self.time
        )
        self.owner_id = self.store.now(
            partial(store_preparation.found, preparation=preparation, now=self.time)
        )
        builtin = clients.lookup(self.store.db, clients.CLI_CLIENT_ID)
        assert builtin is not None
        self.builtin: Client = builtin
        registration = ClientRegistration(name="Remote bridge", client_id="mcp-remote")
        added = self.store.now(
            partial(clients.add, registration=registration, seed=bytes(32), by="local:0", now=self.time)
        )
        assert added is not None
        self.registered: Client = added.client

    def entropy(self, count: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_256(self.drawn.to_bytes(8, "big")).digest(count)

    async def hash_passphrase(self, passphrase: str, salt: bytes) -> str:
        self.hashed += 1
        if self.real_hashing:
            return user_accounts.hash_passphrase(passphrase, salt)
        return "plain:" + passphrase

    async def verify_passphrase(self, passphrase: str, phc: str) -> bool:
        self.verified += 1
        self.verified_against.append(phc)
        self.before_verifying()
        if self.real_hashing:
            return user_accounts.verify_passphrase(passphrase, phc)
        return phc == "plain:" + passphrase

    # ------------------------------------------------------------ what happens beside the browser

    def claim_path(self) -> str:
        token = one_time_links.token_from(self.entropy(one_time_links.TOKEN_BYTES))
        self.store.now(
            partial(
                one_time_links.make,
                kind=one_time_links.CLAIM,
                user_id=self.owner_id,
                token=token,
                now=self.time,
                by="local:0",
            )
        )
        return one_time_links.path_of(token)

    def owned(self) -> House:
        """Claimed by `alice`, as her claim would leave it."""
        self.store.db.execute(
            "UPDATE users SET name = 'alice', state = 'enabled', passphrase_hash = ? WHERE role = 'owner'",
            user_accounts.hash_passphrase(PASSPHRASE, b"s" * 16)
            if self.real_hashing
            else "plain:" + PASSPHRASE,
        )
        return self

    def add_user(self, user_id: str, name: str, *, scope: str = SCOPES, state: str = "enabled") -> None:
        self.store.db.execute(
            "INSERT INTO users (id, name, role, state, passphrase_hash, scope, created_at) VALUES (?, ?, 'user', ?, ?, ?, ?)",
            user_id, name, state, "plain:" + PASSPHRASE, scope, self.time,
        )  # fmt: skip

    def ask(
        self,
        *,
        ip: str = HOME,
        client: Client | None = None,
        client_name: str = "Ostiary on rowan",
        hostname: str = "rowan.lan",
        user_agent: str = "ostiary/0.1 (linux)",
        scope: str = SCOPES,
    ) -> str:
        """A device asks; the user code as its terminal shows it."""
        request = WireRequest(
            method="POST",
            path="/device_authorization",
            origin=self.origin,
            ip=ip,
            headers={"user-agent": user_agent},
        )
        answer = self.store.now(
            partial(
                device.request_code,
                client=client or self.builtin,
                ask=CodeRequest(
                    scope=scope,
                    resources=(),
                    client_name=client_name,
                    hostname=hostname,
                    requester=Requester.of(request),
                ),
                seed=self.entropy(32),
                mac_key=self.parts.subkey(device.MAC_PURPOSE),
                site=self.parts.site,
                policy=DevicePolicy(),
                now=self.time,
            )
        )
        assert isinstance(answer, DeviceAuthorization)
        return answer.user_code.reveal()

    def device_row(self, row: int = -1) -> Row:
        return self.rows("device_codes")[row]

    def rows(self, table: str) -> list[Row]:
        order = self.store.db.database.made(table)
        return self.store.db.fetch_all(f"SELECT * FROM {table} ORDER BY {order}")

    def audited(self, event: str) -> list[str]:
        return [row["outcome"] for row in self.rows("audit") if row["event"] == event]


class Browser:
    """One browser: a cookie jar, the headers that Chromium sends, and eyes for forms."""

    def __init__(self, house: House, *, ip: str = HOME, user_agent: str = "Mozilla/5.0 (test)") -> None:
        self.house = house
        self.ip = ip
        self.user_agent = user_agent
        self.jar: dict[str, str] = {}
        self.known: dict[str, str] = {}  # the cookie that opens nothing (auth/people/known_browsers.py)
        self.page = WireReply()
        self.path = ""
        self.routed = RoutedPages()

    async def get(
        self, path: str, *, site: str | None = "none", follow: bool = True, **more: str
    ) -> WireReply:
        return await self._send("GET", path, (), {"sec-fetch-site": site, **more}, follow=follow)

    async def post(
        self,
        path: str,
        *fields: tuple[str, str],
        site: str | None = "same-origin",
        follow: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> WireReply:
        sent = {"sec-fetch-site": site, "origin": "null", **(headers or {})}
        return await self._send("POST", path, fields, sent, follow=follow)

    async def submit(
        self,
        action: str,
        typed: Mapping[str, str | tuple[str, ...]] | None = None,
        *,
        follow: bool = True,
        **more: str | tuple[str, ...],
    ) -> WireReply:
        """Fill in the form with this `action` (a path, or `path#id`) on the current page and send it."""
        typed = {**(typed or {}), **more}
        fields = [(name, value) for name, value in self.fields(action) if name not in typed]
        for name, value in typed.items():
            fields += [(name, one) for one in ((value,) if isinstance(value, str) else value)]
        return await self.post(action.partition("#")[0], *fields, follow=follow)

    async def sign_in(self, name: str = "alice", passphrase: str = PASSPHRASE) -> WireReply:
        await self.get("/signin")
        return await self.submit("/signin", name=name, passphrase=passphrase)

    async def look_at(self, user_code: str) -> WireReply:
        await self.get("/device")
        return await self.submit("/device", user_code=user_code)

    def fields(self, action: str) -> list[tuple[str, str]]:
        path, _, form_id = action.partition("#")
        for opening, inner in re.findall(r"(<form[^>]*>)(.*?)</form>", self.text, re.DOTALL):
            if f'action="{path}"' in opening and (not form_id or f'id="{form_id}"' in opening):
                return [
                    (attribute(tag, "name"), attribute(tag, "value"))
                    for tag in re.findall(r"<input[^>]*>", inner)
                    if attribute(tag, "name")
                    and (attribute(tag, "type") not in ("checkbox", "radio") or " checked" in tag)
                ]
        raise AssertionError(f"no form for {action} on this page:\n{self.words}")

    @property
    def text(self) -> str:
        return self.page.body.decode()

    @property
    def words(self) -> str:
        """What a reader sees: no tags, no style."""
        main = re.sub(r"<(style|script).*?</\1>|<wbr>", "", self.text, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())

    async def _send(
        self,
        method: str,
        path: str,
        form: tuple[tuple[str, str], ...],
        headers: Mapping[str, str | None],
        *,
        follow: bool,
    ) -> WireReply:
        bare, _, query = path.partition("?")
        sent = {name.lower(): value for name, value in headers.items() if value is not None}
        if self.jar or self.known:
            cookies = {**self.jar, **self.known}
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        request = WireRequest(
            method=method,
            path=bare,
            query=tuple(parse_qsl(query, keep_blank_values=True)),
            form=form,
            headers={"user-agent": self.user_agent, **sent},
            origin=self.house.origin,
            ip=self.ip,
        )
        reply = await self.routed.answer(request, self.house.parts)
        assert reply is not None, f"{bare} is not a page"
        self.page, self.path = reply, path
        for cookie in values(reply, "set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            jar = self.known if name.endswith("-known") else self.jar
            jar.pop(name, None)
            if value:
                jar[name] = value
        if follow and reply.status == 303:
            return await self._send(
                "GET", location(reply), (), {"sec-fetch-site": "same-origin"}, follow=True
            )
        return reply


def attribute(tag: str, name: str) -> str:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return html.unescape(found[1]) if found else ""


def values(reply: WireReply, name: str) -> list[str]:
    return [value for key, value in reply.headers if key == name]


def header(reply: WireReply, name: str) -> str | None:
    found = values(reply, name)
    assert len(found) <= 1, f"{name} is set {len(found)} times"
    return found[0] if found else None


def location(reply: WireReply) -> str:
    path = header(reply, "location")
    assert path is not None
    return path


def cookie_of(browser: Browser) -> str:
    (value,) = browser.jar.values()
    return value


def live_sessions(house: House) -> list[dict[str, Any]]:
    return [dict(row) for row in house.rows("browser_sessions")]


def session_row(house: House, browser: Browser) -> Row | None:
    return house.store.db.fetch_one(
        "SELECT * FROM browser_sessions WHERE id_hash = ?", browser_sessions.hash_of(cookie_of(browser))
    )
