"""Keys of people for an upstream: pasted in a browser, sent with their calls and no others', refused, ended, and kept over a restart."""

from __future__ import annotations

import pytest

from auth.values.identity_model import PrincipalKind
from server.agents.mcp.trust.call_credentials import WithHeaders
from server.agents.mcp.trust.person_key import KeyNeeded
from server.agents.mcp.upstream_credentials import StaticCredential
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from tests.agents.mcp.trust.connection_fakes import PATH, Keys
from tests.agents.mcp.trust.trust_fakes import call_of
from tests.agents.mcp.upstreams import Double, gate, over_http
from tests.auth.browser_fakes import LOOPBACK


@pytest.mark.parametrize(
    ("header", "sent"), [("Authorization", "Bearer sk-alice-1"), ("X-Api-Key", "sk-alice-1")]
)
async def test_a_person_pastes_a_key_and_their_calls_and_no_others_go_out_with_it(
    header: str, sent: str
) -> None:
    there = Keys(header)
    with pytest.raises(KeyNeeded, match=f"Open {LOOPBACK}{PATH} in a browser") as needed:
        await there.credential.headers(call_of(there.owner))
    assert "did not accept" not in str(needed.value)
    browser = await there.paste(" sk-alice-1\n")
    assert "Your key is kept" in browser.words
    assert "sk-alice" not in browser.text
    assert await there.credential.headers(call_of(there.owner)) == {header: sent}
    with pytest.raises(KeyNeeded):
        await there.credential.headers(call_of("usr_bob"))
    await there.paste("sk-bob-1", "bob")
    assert await there.credential.headers(call_of("usr_bob")) == {header: sent.replace("alice", "bob")}
    assert await there.credential.headers(call_of(there.owner)) == {header: sent}
    assert await there.credential.headers(None) == {}


async def test_a_key_is_sealed_and_nowhere_else() -> None:
    there = Keys()
    await there.paste("sk-alice-1")
    await there.credential.headers(call_of(there.owner))
    (row,) = there.house.rows("upstream_tokens")
    assert (row["person"], row["user_id"]) == (there.owner, there.owner)
    said = str([dict(row), there.house.rows("audit"), there.log.__dict__])
    assert "sk-alice" not in said
    assert there.house.audited("upstream.logged_in") == ["ok"]


@pytest.mark.parametrize("key", ["", "two words", "späth", "x" * 4097, "a\tb"])
async def test_what_can_be_no_key_is_not_kept_and_not_shown_again(key: str) -> None:
    there = Keys()
    browser = await there.browser()
    await browser.get(PATH)
    page = await browser.submit(PATH, key=key)
    assert page.status == 400
    assert not key or key not in browser.text
    assert there.house.rows("upstream_tokens") == []


async def test_nothing_is_kept_by_a_form_that_is_not_ours() -> None:
    there = Keys()
    browser = await there.browser()
    await browser.get(PATH)
    fields = [*(each for each in browser.fields(PATH) if each[0] != "key"), ("key", "sk-mallory")]
    assert (await browser.post(PATH, *fields, site="cross-site")).status == 403
    assert (await browser.post(PATH, ("key", "sk-mallory"))).status == 403
    bob = await there.browser("bob")
    await bob.get(PATH)
    assert (await bob.post(PATH, *fields)).status == 403
    assert (await browser.get(f"{PATH}/callback?code=x&state=y")).status == 400
    assert there.house.rows("upstream_tokens") == []


async def test_a_key_that_is_refused_is_ended_and_another_asked_for_in_words() -> None:
    there = Keys()
    await there.paste("sk-old")
    call = call_of(there.owner)
    await there.credential.headers(call)
    with pytest.raises(KeyNeeded, match="did not accept your API key") as needed:
        await there.credential.refused(call, "")
    assert "sk-old" not in f"{needed.value}{needed.value.message}"
    assert there.house.rows("upstream_tokens") == []
    with pytest.raises(KeyNeeded, match="did not accept your API key"):
        await there.credential.headers(call)
    await there.paste("sk-new")
    assert await needed.value.connected()
    assert await there.credential.headers(call) == {"Authorization": "Bearer sk-new"}


async def test_the_refusal_of_an_old_key_does_not_end_the_one_in_its_place() -> None:
    there = Keys()
    await there.paste("sk-old")
    call = call_of(there.owner)
    await there.credential.headers(call)
    await there.paste("sk-new")
    assert await there.credential.refused(call, "")
    assert await there.credential.headers(call) == {"Authorization": "Bearer sk-new"}


async def test_a_person_sees_that_there_is_a_key_since_when_and_when_it_was_used_and_ends_it() -> None:
    there = Keys()
    browser = await there.paste("sk-alice-1")
    await browser.get("/account/you")
    assert "your key for mail" in browser.words
    assert "last used" not in browser.words
    await there.credential.headers(call_of(there.owner))
    await browser.get("/account/you")
    assert "last used" in browser.words
    assert "sk-alice" not in browser.text
    await browser.submit("/account/connections/end")
    with pytest.raises(KeyNeeded) as needed:
        await there.credential.headers(call_of(there.owner))
    assert "did not accept" not in str(needed.value)
    assert there.house.rows("upstream_tokens") == []


async def test_a_key_is_there_after_a_restart_and_for_no_other_address() -> None:
    there = Keys()
    await there.paste("sk-alice-1")
    _, again = there.node()
    assert await again.headers(call_of(there.owner)) == {"Authorization": "Bearer sk-alice-1"}
    _, elsewhere = there.node("https://other.example/mcp")
    with pytest.raises(KeyNeeded):
        await elsewhere.headers(call_of(there.owner))


async def test_a_caller_who_is_no_person_is_told_to_log_in() -> None:
    there = Keys()
    with pytest.raises(BackendError, match="log in with yours"):
        await there.credential.headers(call_of("machine", kind=PrincipalKind.CLIENT))


async def test_a_call_whose_key_the_upstream_refuses_asks_for_another_and_goes_out_with_that() -> None:
    there, double = Keys(), Double(era="stateless", let_in="Bearer ours")
    own = StaticCredential({}, Secret("ours"))
    async with over_http(double) as url, gate(url=url, credential=WithHeaders(there.credential, own)) as door:
        double.let_in = "Bearer sk-good"
        with pytest.raises(KeyNeeded):
            await door.say("hello", subject=there.owner)
        await there.paste("sk-bad")
        with pytest.raises(KeyNeeded, match="did not accept your API key"):
            await door.say("hello", subject=there.owner)
        await there.paste("sk-good")
        assert await door.say("hello", subject=there.owner) == "hello"
        assert "sk-" not in str(door.log.__dict__)


@pytest.mark.parametrize(
    ("header", "static", "ours"),
    [
        ("X-Api-Key", StaticCredential({}, Secret("of-owner")), {"Authorization": "Bearer of-owner"}),
        (
            "Authorization",
            StaticCredential({"authorization": Secret("Bearer of-owner")}),
            {"authorization": "Bearer of-owner"},
        ),
        ("authorization", StaticCredential({}, Secret("of-owner")), {"Authorization": "Bearer of-owner"}),
        ("X-Api-Key", StaticCredential({"x-api-key": Secret("of-owner")}), {"x-api-key": "of-owner"}),
    ],
)
async def test_the_owners_own_goes_out_with_nobodys_call(
    header: str, static: StaticCredential, ours: dict[str, str]
) -> None:
    there = Keys(header)
    await there.paste("sk-alice-1")
    shown = WithHeaders(there.credential, static, ours=("authorization", header.lower()))
    assert await shown.headers(None) == ours
    theirs = await shown.headers(call_of(there.owner))
    assert "of-owner" not in str(theirs)
    assert "sk-alice-1" in str(theirs)
    assert await shown.headers(None) == ours
