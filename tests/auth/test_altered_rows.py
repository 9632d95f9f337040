"""Whoever writes to the database without the key file lets nobody in, on either engine: each way to give oneself a right, row by row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auth.administration import guest_accounts
from auth.audit import audit_rights
from auth.audit.audit_rights import TrailOfRights
from auth.authorization import device_authorization as device
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientCredentials
from auth.grants import login_records
from auth.grants.token_request import account
from auth.keys import signing_keys
from auth.people import browser_sessions, one_time_links, passkeys, user_accounts
from auth.tokens import api_keys, live_logins
from auth.values import sealed_rows as sealed
from auth.values.database import Db, Row
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester
from server.admin import rights_check
from server.admin.rights_check import RightsAdmin
from server.cli.manage import rightscheck
from server.store import sealed_rows
from server.store.migrate import packaged_migrations
from server.store.sealed_rows import SealPlace
from tests.auth.identity_fakes import DAY, START, World, refresh_token

WHO = Requester(origin="http://localhost:8420", ip="127.0.0.1", network="127.0.0.1", user_agent="")
COOKIE = "c" * 43
TOKEN = "t" * 44
SECRET, KEY_ID = api_keys.draw(bytes(32))


@pytest.fixture
def world() -> Iterator[World]:
    """Its owner, who is let in by every way there is, and bob, a guest of few rights."""
    world = World()
    world.db.run(sealed_rows.begin)  # pyright: ignore[reportArgumentType]
    world.db.execute("UPDATE users SET name = 'alice', state = 'enabled', passphrase_hash = 'plain:alice'")
    world.db.execute(
        "INSERT INTO users (id, name, role, state, passphrase_hash, scope, tools, created_at)"
        " VALUES ('usr_bob', 'bob', 'user', 'enabled', 'plain:bob', 'mcp', 'readonly', 0)"
    )
    yield world
    world.close()


def by_thief(world: World, sql: str, *params: object) -> None:
    """Write to the database past the program."""
    assert world.db.database.connection.execute(sql, params).rowcount > 0


def altered(world: World) -> list[str]:
    """Return the rows that somebody is told of."""
    return [" ".join(row) for row in world.db.seals.take()]


def signed_in(world: World, user_id: str, cookie: str = COOKIE) -> None:
    world.db.run(
        lambda db: browser_sessions.begin(
            db, cookie=cookie, replaces=None, user_id=user_id, who=WHO, now=world.now
        )
    )


def key_of(world: World, user_id: str, name: str = "k", seed: bytes = bytes(32)) -> api_keys.NewApiKey:
    order = api_keys.ApiKeyOrder(name=name, user_id=user_id, scope="mcp")
    made = world.db.run(lambda db: api_keys.create(db, order, seed=seed, by="local:0", now=world.now))
    assert isinstance(made, api_keys.NewApiKey)
    return made


def use_of(world: World) -> Any:
    """Return why the key may not be used; None if it may."""
    key = api_keys.shown(world.db, api_keys.hash_of(SECRET))
    return "no such key" if key is None else api_keys.decide(key, server="agent", now=world.now)


# ── accounts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "alteration",
    [
        "role = 'owner'",
        "scope = '*'",
        "tools = ''",
        "state = 'enabled', passphrase_hash = (SELECT passphrase_hash FROM users WHERE name = 'alice')",
        "name = 'bob2'",
        "expires_at = 9999999999999",
        "role = 'owner', seal = (SELECT seal FROM users WHERE name = 'alice')",
        "role = 'owner', seal = ''",
        "role = 'owner', seal = 'none'",
    ],
)
def test_an_altered_account_may_nothing_and_somebody_is_told_once(world: World, alteration: str) -> None:
    signed_in(world, "usr_bob")
    assert browser_sessions.find(world.db, COOKIE, world.now) is not None
    by_thief(world, f"UPDATE users SET {alteration} WHERE id = 'usr_bob'")
    assert browser_sessions.find(world.db, COOKIE, world.now) is None
    user, seen = user_accounts.find(world.db, "usr_bob"), account(world.db, "usr_bob")
    assert user is not None
    assert (user.role, user.state, user.scope, user.passphrase_hash) == ("user", "altered", "", None)
    assert seen is not None
    assert not seen.may(world.now)
    assert altered(world) == ["users usr_bob"]


@pytest.mark.parametrize("state", ["disabled", "locked", "invited"])
def test_an_account_that_was_shut_is_not_opened_by_a_writer_of_the_database(world: World, state: str) -> None:
    world.db.execute("UPDATE users SET state = ? WHERE id = 'usr_bob'", state)
    by_thief(world, "UPDATE users SET state = 'enabled' WHERE id = 'usr_bob'")
    user = user_accounts.find(world.db, "usr_bob")
    assert user is not None
    assert not user.may(world.now)


def test_an_altered_account_is_not_sealed_anew_by_what_the_program_writes(world: World) -> None:
    by_thief(world, "UPDATE users SET role = 'owner' WHERE id = 'usr_bob'")
    changed = world.db.run(
        lambda db: sealed.update(db, sealed.USERS, "usr_bob", {"passphrase_hash": "plain:new"})
    )
    user = user_accounts.find(world.db, "usr_bob")
    assert not changed
    assert user is not None
    assert user.state == "altered"


def test_an_account_that_was_put_in_is_no_owner_and_does_not_stand_for_the_real_one(world: World) -> None:
    by_thief(
        world,
        "INSERT INTO users (id, name, role, state, scope, created_at) VALUES ('usr_0', 'eve', 'owner', 'enabled', '*', -1)",
    )
    owner = user_accounts.owner(world.db)
    assert owner is not None
    assert owner.name == "alice"


def test_a_row_of_another_kind_of_value_or_without_a_seal_is_altered(world: World) -> None:
    row = world.db.fetch_one("SELECT * FROM users WHERE id = 'usr_bob'")
    assert row is not None
    assert sealed.checked(world.db, sealed.USERS, row) == row
    for change in ({"seal": None}, {"id": None}, {"name": b"bob"}, {"created_at": 0.5, "seal": "none"}):
        seen = sealed.checked(world.db, sealed.USERS, {**row, **change})
        assert seen["state"] == "altered", change
    with pytest.raises(TypeError):
        sealed.reseal(world.db, sealed.USERS, {**row, "name": b"bob"})


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_was_put_in_opens_nothing(world: World) -> None:
    by_thief(
        world,
        "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
        " VALUES (?, 'k', ?, ?, 'abcd', '*', 'local:0', ?)",
        KEY_ID, world.owner, hashlib.sha256(SECRET.encode()).hexdigest(), START,
    )  # fmt: skip
    assert use_of(world) is not None
    assert altered(world) == [f"api_keys {KEY_ID}"]


@pytest.mark.parametrize(
    "alteration",
    [
        "scope = '*'",
        "tools = 'everything'",
        "user_id = (SELECT id FROM users WHERE role = 'owner')",
        "server = 'agent'",
        "expires_at = 9999999999999",
    ],
)
def test_a_key_is_not_widened(world: World, alteration: str) -> None:
    key_of(world, "usr_bob")
    assert use_of(world) is None
    by_thief(world, f"UPDATE api_keys SET {alteration}")
    assert use_of(world) is not None


def test_a_key_that_was_ended_does_not_come_back_to_life(world: World) -> None:
    made = key_of(world, "usr_bob")
    world.db.run(lambda db: api_keys.revoke(db, made.key.id, by="local:0", now=world.now))
    by_thief(world, "UPDATE api_keys SET revoked_at = NULL")
    assert use_of(world) is not None


def test_a_key_of_an_altered_account_opens_nothing(world: World) -> None:
    key_of(world, "usr_bob")
    by_thief(world, "UPDATE users SET scope = '*' WHERE id = 'usr_bob'")
    assert use_of(world) == "user_not_enabled"


# ── browsers, links, passkeys ────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_that_was_put_in_signs_nobody_in(world: World) -> None:
    by_thief(
        world,
        "INSERT INTO browser_sessions (id_hash, user_id, created_at, auth_time, last_used_at, expires_at, ip, user_agent)"
        " VALUES (?, ?, ?, ?, ?, ?, '', '')",
        browser_sessions.hash_of(COOKIE), world.owner, world.now, world.now, world.now, world.now + DAY,
    )  # fmt: skip
    assert browser_sessions.find(world.db, COOKIE, world.now) is None


@pytest.mark.parametrize("alteration", ["user_id = ?", "auth_time = auth_time + 1 WHERE user_id <> ?"])
def test_a_session_is_not_made_another_persons_or_proven_lately(world: World, alteration: str) -> None:
    signed_in(world, "usr_bob")
    by_thief(world, f"UPDATE browser_sessions SET {alteration}", world.owner)
    assert browser_sessions.find(world.db, COOKIE, world.now) is None


@pytest.mark.parametrize("way", ["put in", "another's", "used"])
def test_a_link_is_neither_put_in_nor_given_to_another_nor_used_again(world: World, way: str) -> None:
    if way == "put in":
        by_thief(
            world,
            "INSERT INTO one_time_links (token_hash, kind, user_id, created_at, expires_at) VALUES (?, 'reset', ?, ?, ?)",
            hashlib.sha256(TOKEN.encode()).hexdigest(), world.owner, world.now, world.now + DAY,
        )  # fmt: skip
    else:
        world.db.run(
            lambda db: one_time_links.make(
                db, kind=one_time_links.RESET, user_id="usr_bob", token=TOKEN, now=world.now
            )
        )
        if way == "used":
            world.db.run(
                lambda db: one_time_links.use(db, kind=one_time_links.RESET, token=TOKEN, now=world.now)
            )
            by_thief(world, "UPDATE one_time_links SET used_at = NULL")
        else:
            by_thief(world, "UPDATE one_time_links SET user_id = ?", world.owner)
    assert one_time_links.find(world.db, kind=one_time_links.RESET, token=TOKEN, now=world.now) is None


def test_a_passkey_that_was_put_in_is_none(world: World) -> None:
    by_thief(
        world,
        "INSERT INTO passkeys (credential_id, user_id, rp_id, public_key, sign_count, name, created_at)"
        " VALUES ('x', ?, 'localhost', 'k', 0, 'x', 0)",
        world.owner,
    )
    assert passkeys.find(world.db, "x") is None
    assert passkeys.of_user(world.db, world.owner) == ()


# ── logins and programs ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "alteration",
    ["scope = 'mcp financial'", "subject = 'usr_bob'", "server = 'other'", "expires_at = 9999999999999"],
)
def test_an_altered_login_is_refused_at_a_refresh_and_at_a_call(world: World, alteration: str) -> None:
    issue = world.login()
    by_thief(world, f"UPDATE grants SET {alteration}")
    found = live_logins.read_live(world.db, issue.grant_id)
    assert found is not None
    assert not found.usable
    assert isinstance(world.refresh(refresh_token(issue)), OAuthRefusal)


def test_a_login_that_was_ended_does_not_come_back_to_life(world: World) -> None:
    issue = world.login()
    assert world.db.run(
        lambda db: login_records.revoke(db, issue.grant_id, reason="lost", by="local:0", now=world.now)
    )
    by_thief(world, "UPDATE grants SET revoked_at = NULL, revoked_reason = NULL")
    found = live_logins.read_live(world.db, issue.grant_id)
    assert found is not None
    assert not found.usable
    assert isinstance(world.refresh(refresh_token(issue)), OAuthRefusal)


def test_a_login_of_an_altered_account_or_program_is_refused(world: World) -> None:
    issue = world.login()
    for table in ("users", "clients"):
        by_thief(world, f"UPDATE {table} SET scope = scope || ' x'")
        found = live_logins.read_live(world.db, issue.grant_id)
        assert found is not None
        assert not found.usable


@pytest.mark.parametrize(
    "alteration",
    [
        "state = 'approved', subject = ?, granted_scope = 'mcp', decided_by = 'local:0', decided_at = 1",
        "client_name = ?",
    ],
)
def test_a_device_is_not_let_in_by_a_writer_of_the_database(world: World, alteration: str) -> None:
    codes = world.asked()
    by_thief(world, f"UPDATE device_codes SET {alteration}", world.owner)
    if "client_name" in alteration:
        assert not isinstance(world.approve(codes), device.DeviceApproved)
    assert isinstance(world.poll(codes), OAuthRefusal)


def test_a_programs_secret_is_not_exchanged(world: World) -> None:
    client = world.add_client(auth_method="client_secret_basic").client
    by_thief(world, "UPDATE clients SET secret_hash = ? WHERE id = ?", clients.secret_hash("mine"), client.id)
    found = clients.lookup(world.db, client.id)
    assert found is not None
    assert clients.proves(found, ClientCredentials(client_id=client.id, secret="mine"))
    assert not found.enabled


def test_a_signing_key_that_was_put_in_signs_nothing(world: World) -> None:
    by_thief(
        world,
        "INSERT INTO signing_keys (kid, algorithm, public_jwk, sealed_private, created_at, signs_from)"
        " SELECT 'mine', algorithm, public_jwk, sealed_private, created_at, signs_from FROM signing_keys",
    )
    assert [row["kid"] for row in signing_keys.rows(world.db)] != []
    assert "mine" not in {row["kid"] for row in signing_keys.rows(world.db)}


# ── what the check names ─────────────────────────────────────────────────────────────────────────────────────────────


def look(check: rights_check.RightsCheck, world: World) -> rights_check.RightsLook:
    return check.look()(world.db)  # pyright: ignore[reportArgumentType]


def found_by_check(world: World) -> list[tuple[str, str]]:
    check, found = rights_check.RightsCheck(SealPlace(), TrailOfRights()), list[tuple[str, str]]()
    while check.at is not None:
        piece = check.judge(look(check, world))
        found += [(row["table"], row["key"]) for row in piece["found"]]
    return found


def test_the_check_names_what_was_altered_and_put_in_and_nothing_else(world: World) -> None:
    world.login()
    signed_in(world, world.owner)
    key_of(world, "usr_bob")
    assert found_by_check(world) == []
    by_thief(world, "UPDATE users SET role = 'owner' WHERE id = 'usr_bob'")
    by_thief(world, "UPDATE browser_sessions SET user_id = 'usr_bob'")
    assert found_by_check(world) == [
        ("users", "usr_bob"),
        ("browser_sessions", browser_sessions.hash_of(COOKIE)),
    ]


def put_back(table: str, change: Callable[[World], object], world: World) -> None:
    """Put the rows of a table back as they were before this change, with the seals that they had."""
    before = world.db.fetch_all(f"SELECT * FROM {table}")
    change(world)
    for row in before:
        names = [name for name in row if name != "id"]
        settings = ", ".join(f"{name} = ?" for name in names)
        by_thief(
            world, f"UPDATE {table} SET {settings} WHERE id = ?", *(row[name] for name in names), row["id"]
        )


def test_a_key_that_was_put_back_as_it_was_sealed_before_its_end_is_named_by_the_check(world: World) -> None:
    key_id = key_of(world, "usr_bob").key.id
    put_back(
        "api_keys",
        lambda world: world.db.run(lambda db: api_keys.revoke(db, key_id, by="local:0", now=world.now)),
        world,
    )
    assert found_by_check(world) == [("api_keys", key_id)]


@pytest.mark.parametrize("verb", ["disable", "lock"])
def test_an_account_that_was_put_back_as_it_was_before_it_was_shut_is_named_by_the_check(
    world: World, verb: str
) -> None:
    put_back(
        "users",
        lambda world: world.db.run(
            lambda db: guest_accounts.switch(db, verb, name="bob", by="local:0", now=world.now)
        ),
        world,
    )
    assert found_by_check(world) == [("users", "usr_bob")]


def test_a_key_that_was_sealed_and_never_made_is_named_by_the_check(world: World) -> None:
    world.now += 1
    world.db.execute(
        "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
        " VALUES ('key_x', 'k', 'usr_bob', 'h', 'abcd', 'mcp', 'local:0', ?)",
        world.now,
    )
    assert found_by_check(world) == [("api_keys", "key_x")]


class ReadTrail:
    """The numbers of the trail's rows as a check reads them, in small pieces."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = list[int]()
        self._fetch_all = world.db.fetch_all
        monkeypatch.setattr(world.db, "fetch_all", self.fetch_all)
        monkeypatch.setattr(audit_rights, "PAGE", 3)
        monkeypatch.setattr(sealed_rows, "PIECE", 2)
        monkeypatch.setattr(rights_check, "LOOKS", 2)

    def fetch_all(self, sql: str, *params: object) -> list[Row]:
        found = self._fetch_all(sql, *params)
        if "FROM audit" in sql and params:
            self.rows += [row["seq"] for row in found]
        return found


class StoreOf(msgspec.Struct):
    """The reading side of a store, in the database of a world."""

    db: Db
    has_seals: bool = True

    def reading(self, job: Callable[[Db], Any]) -> Any:
        return job(self.db)

    async def read(self, job: Callable[[Db], Any]) -> Any:
        return job(self.db)


def of_rights(world: World) -> list[int]:
    return [row["seq"] for row in world.db.fetch_all(f"SELECT seq FROM audit WHERE {audit_rights.EVENTS}")]


def many_keys(world: World) -> list[str]:
    """Make ten, of which the first is ended and put back."""
    ids = [key_of(world, "usr_bob", str(n), world.draw(32)).key.id for n in range(10)]
    end = partial(api_keys.revoke, key_id=ids[0], by="local:0", now=world.now)
    put_back("api_keys", lambda world: world.db.run(end), world)
    return ids


def test_a_check_of_a_database_reads_the_trail_once_however_many_keys_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, there = many_keys(world), of_rights(world)
    trail = ReadTrail(world, monkeypatch)
    found = rightscheck.of_database(StoreOf(world.db))  # pyright: ignore[reportArgumentType]
    assert found is not None
    assert [row["key"] for row in found["rows"]] == [ids[0]]
    assert trail.rows == there


async def test_a_check_of_a_server_reads_the_trail_once_and_what_is_written_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, there = many_keys(world), of_rights(world)
    trail = ReadTrail(world, monkeypatch)
    verify = RightsAdmin(store=StoreOf(world.db)).commands()["rights.verify"]  # pyright: ignore[reportArgumentType]
    found, answer = list[str](), await verify({}, "local:0")
    while not answer["checked"]:
        answer = await verify({"at": answer["at"]}, "local:0")
    assert trail.rows == there
    world.now += 1
    key_of(world, "usr_bob")
    while answer["at"] is not None:
        answer = await verify({"at": answer["at"]}, "local:0")
        found += [row["key"] for row in answer["found"]]
    assert found == [ids[0]]
    assert trail.rows == of_rights(world)


def test_a_check_whose_trail_another_has_read_on_meanwhile_looks_again(world: World) -> None:
    key_of(world, "usr_bob")
    trail, at = TrailOfRights(), SealPlace(table=sealed.TABLES.index(sealed.API_KEYS))
    one, other = rights_check.RightsCheck(at, trail), rights_check.RightsCheck(at, trail)
    earlier = look(other, world)
    world.now += 1
    key_of(world, "usr_bob", "later", world.draw(32))
    later = look(one, world)
    assert other.judge(earlier) == {"checked": 1, "found": []}
    assert one.judge(later) == {"checked": 0, "found": []}
    assert one.judge(look(one, world)) == {"checked": 2, "found": []}


def test_the_index_of_the_trail_has_the_events_that_are_read() -> None:
    (script,) = [each.sql for each in packaged_migrations() if each.name == "seals"]
    assert " ".join(audit_rights.EVENTS.split()) in " ".join(script.split())


def test_all_that_a_database_of_before_says_of_rights_can_be_sealed(world: World) -> None:
    world.login()
    signed_in(world, world.owner)
    key_of(world, "usr_bob")
    for table in sealed.TABLES:
        world.db.database.connection.execute(f"UPDATE {table.name} SET seal = ''")
    assert not world.db.run(lambda db: browser_sessions.find(db, COOKIE, world.now) is not None)
    at = SealPlace()
    while at is not None:
        place = at
        at = world.db.run(lambda db, place=place: sealed_rows.seal_piece(db, place).next)
    assert found_by_check(world) == []
    assert browser_sessions.find(world.db, COOKIE, world.now) is not None


# ── the program itself ───────────────────────────────────────────────────────────────────────────────────────────────

ROOT = Path(__file__).parents[2]
NAMES = "|".join(table.name for table in sealed.TABLES)
STATEMENT = re.compile(rf"\b(INSERT INTO|UPDATE) ({NAMES})\b( SET .*?(?: WHERE|$))?")
SETTING = re.compile(r"(\w+) = ")


def unsealed_writes(source: str) -> list[str]:
    """Return the statements that write what is sealed, and no seal with it."""
    joined = re.sub(r'"\s*\n\s*f?"', "", source)  # a statement that was written in several pieces
    columns = {table.name: set(table.columns) for table in sealed.TABLES}
    return [
        match[0]
        for line in joined.split("\n")
        for match in STATEMENT.finditer(line)
        if match[1] == "INSERT INTO"
        or ("sealed_rows.WIPED" not in line and columns[match[2]] & set(SETTING.findall(match[3] or "")))
    ]


def test_the_program_writes_no_right_without_its_seal() -> None:
    found = {
        str(path.relative_to(ROOT)): statements
        for folder in ("auth", "server")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (statements := unsealed_writes(path.read_text("utf-8")))
    }
    assert found == {}


def test_a_write_without_its_seal_is_seen_however_it_is_broken() -> None:
    assert unsealed_writes('db.execute("UPDATE users SET last_seen_at = ? WHERE id = ?")') == []
    assert len(unsealed_writes('db.execute("UPDATE users SET role = ? WHERE id = ?")')) == 1
    assert len(unsealed_writes('db.execute(\n    "UPDATE users"\n    " SET seen = ?, role = ?"\n)')) == 1
    assert len(unsealed_writes('db.execute("INSERT INTO grants (id) VALUES (?)")')) == 1
