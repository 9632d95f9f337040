"""Words of the pages on which somebody logs in, lets a program in and looks after an account: whole, in tests/snapshots."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from auth.values.scopes import FINANCIAL, Vocabulary
from tests.auth.browser_fakes import ELSEWHERE, PASSPHRASE, Browser, House
from tests.auth.code_fakes import open_porch, press
from tests.auth.identity_fakes import SITE
from tests.auth.offering_fakes import a_support_desk
from tests.auth.page_text import PageBook
from tests.auth.pages.account.test_account_keys import key_of
from tests.auth.pages.account.test_account_money import CAP, REDEEM, UNCAP, a_voucher, given, house_that_sells
from tests.auth.people.test_passkeys import at_account, elsewhere, key_for
from tests.auth.people_fakes import household, invited, let_in, reset_path
from tests.auth.providers.test_upstream_sign_in import at
from tests.auth.providers.test_upstream_sign_in import sign_in as sign_in_there
from tests.snapshots import Snapshot

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DECIDE = "/device/decide#approve"
WRONG = "not the right one"


async def test_what_somebody_reads_who_logs_in(snapshot: Snapshot) -> None:
    book = PageBook()
    await _arriving(book)
    await _with_links(book)
    await _with_passkeys(book)
    await _from_a_provider(book)
    snapshot("login_pages", book.text)


async def _arriving(book: PageBook) -> None:
    house = House()
    house.parts = replace(house.parts, offerings=a_support_desk())
    browser = Browser(house)
    await browser.get("/")
    book.note("the front page of a server without an owner", browser)
    await browser.get("/signin")
    book.note("to sign in before there is an owner", browser)
    path = house.claim_path()
    await browser.get(path)
    book.note("a claim link", browser)
    await browser.submit(path, name="no spaces", passphrase="short", passphrase_again="other")
    book.note("claimed with a bad name", browser)
    await browser.submit(path, name="alice", passphrase="short", passphrase_again="short")
    book.note("claimed with a short passphrase", browser)
    await browser.submit(path, name="alice", passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    book.note("claimed", browser)
    await browser.get("/claim/none")
    book.note("a claim link that is no more", browser)
    stranger = Browser(house)
    await stranger.get("/")
    book.note("the front page", stranger)
    await browser.get("/connect")
    book.note("how to connect", browser)
    await stranger.get("/device/decide")
    book.note("a page that is only sent to", stranger)
    await stranger.post("/signin", site="cross-site")
    book.note("a form from another site", stranger)
    await stranger.post("/signin")
    book.note("a form without its token", stranger)
    await stranger.sign_in("alice", WRONG)
    book.note("signed in with a wrong passphrase", stranger)
    for _ in range(10):
        await stranger.sign_in("alice", WRONG)
    book.note("signed in wrongly too often", stranger)


async def _with_links(book: PageBook) -> None:
    house = House().owned()
    path = invited(house, "bob", scope="mcp:tools", expires_at=house.time + DAY)
    browser = Browser(house)
    await browser.get(path)
    book.note("an invitation", browser)
    await browser.submit(path, passphrase=PASSPHRASE, passphrase_again=WRONG)
    book.note("an invitation taken with two passphrases", browser)
    await browser.submit(path, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    book.note("an invitation taken", browser)
    await browser.get(path)
    book.note("an invitation taken before", browser)
    await browser.get(reset_path(house, "bob"))
    book.note("a reset link", browser)
    house.store.db.execute("UPDATE users SET state = 'disabled' WHERE name = 'bob'")
    await browser.get("/account")
    book.note("an account that is disabled", browser)


async def _with_passkeys(book: PageBook) -> None:
    house = House("https://203.0.113.5", loopback=False)
    browser = Browser(house)
    await browser.get(house.claim_path())
    book.note("a claim link of a server without a name", browser)
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await browser.get("/account/you")
    await browser.submit("/account/passkeys/new")
    book.note("a passkey to be made", browser)
    await at_account(house, browser, key_for(house))
    book.note("a passkey added", browser)
    house.time += HOUR
    await browser.submit("/account/passkeys/new")
    book.note("once more who it is, with either", browser)
    house = House("http://127.0.0.1:8420").owned()
    browser = Browser(house)
    await browser.sign_in()
    house.store.db.execute("UPDATE users SET passphrase_hash = NULL")
    await elsewhere(house, browser)
    book.note("a device from elsewhere, and no way to show who it is", browser)


async def _from_a_provider(book: PageBook) -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        await browser.get("/signin")
        book.note("to sign in here or at a provider", browser)
        await browser.get("/signin/with/there/callback?code=x&state=y")
        book.note("back from a provider too late", browser)
        fake.subject = "somebody"
        await sign_in_there(browser, fake)
        book.note("back from a provider as a stranger", browser)
        fake.claims = {"aud": "somebody else"}
        await sign_in_there(browser, fake)
        book.note("back from a provider that does not convince", browser)
    house.add_user("usr_bob", "bob")
    with at(house, github=True) as fake:
        for number in (99, 100):
            fake.user = {"id": number, "login": "bob-there"}
            browser = Browser(house)
            await sign_in_there(browser, fake)
    book.note("back from a provider under a name that somebody else had", browser)


async def test_what_somebody_reads_who_lets_a_program_in(snapshot: Snapshot) -> None:
    book = PageBook()
    await _devices(book)
    await _consenting(book)
    snapshot("approval_pages", book.text)


async def _devices(book: PageBook) -> None:
    house = House().owned()
    offered = a_support_desk("pay_refund")
    house.parts = replace(house.parts, offerings=offered)
    browser = Browser(house)
    await browser.get(f"/device?user_code={house.ask()}")
    book.note("a device's link, before signing in", browser)
    await browser.sign_in()
    book.note("a code to be entered", browser)
    await browser.look_at("BBBB-BBBB")
    book.note("a wrong code", browser)
    await browser.look_at(house.ask(scope="mcp financial"))
    book.note("a device that asks for money too", browser)
    await browser.submit(DECIDE, scope=())
    book.note("nothing ticked", browser)
    await browser.submit(DECIDE, scope="mcp")
    book.note("approved", browser)
    await browser.look_at(house.ask(client=house.registered))
    await browser.submit("/device/decide#deny")
    book.note("denied", browser)
    offered.some_missing = True
    house.time += HOUR
    await browser.look_at(house.ask(ip=ELSEWHERE, hostname="", user_agent="", client_name=""))
    book.note("a device from another network, and an agent that is out of order", browser)
    await browser.submit(DECIDE, scope="mcp", passphrase=WRONG)
    book.note("approved with a wrong passphrase", browser)
    house.time += 11 * MINUTE
    await browser.submit(DECIDE, scope="mcp", passphrase=PASSPHRASE)
    book.note("approved too late", browser)
    house.store.db.execute("UPDATE users SET scope = 'vault'")
    await browser.look_at(house.ask())
    book.note("a device that can be given nothing", browser)
    for _ in range(8):
        await browser.look_at("BBBB-BBBB")
    book.note("wrong codes, too many", browser)
    sells = house_that_sells(per_day="$5", per_tool="$2")
    given(sells, 1_500_000)
    browser = Browser(sells)
    await browser.sign_in("bob")
    await browser.look_at(sells.ask())
    book.note("a device that may spend", browser)


async def _consenting(book: PageBook) -> None:
    money = replace(SITE, scopes=Vocabulary((replace(FINANCIAL, listed=True),)))
    async with open_porch(site=money) as porch:
        local = await porch.program()
        web = await porch.program(redirect_uris=("https://client.example:8443/cb",))
        browser = await porch.browser(signed_in=False)
        await browser.get(local.path(), site="cross-site")
        book.note("a program's link, before signing in", browser)
        await browser.sign_in()
        await browser.get(local.path(redirect_uri="https://evil.example/"))
        book.note("a program that leads elsewhere", browser)
        await browser.get(local.path(client_id="nobody"))
        book.note("a program that nobody knows", browser)
        await browser.get(local.path())
        book.note("a program on this machine", browser)
        await press(browser, "allow", scope=())
        book.note("nothing ticked", browser)
        await press(browser, "copy", scope="mcp")
        code = browser.text.partition("?code=")[2].partition("&amp;")[0]
        book.note("an address to be carried by hand", browser, CODE=code)
        await browser.get(web.path(scope="mcp financial"))
        book.note("a program elsewhere that asks for money too", browser)
        porch.clock.now += 16 * MINUTE
        await press(browser, "allow", scope=("mcp", "financial"))
        book.note("money, after a while", browser)
        await porch.run("UPDATE users SET scope = 'vault'")
        await browser.get(local.path(scope="mcp"))
        book.note("a program that can be given nothing", browser)
        await browser.post("/authorize/decide", ("decision", "allow"))
        book.note("a form without its token", browser)


async def test_what_somebody_reads_of_an_account(snapshot: Snapshot) -> None:
    book = PageBook()
    await _access(book)
    await _money(book)
    await _yourself(book)
    snapshot("account_pages", book.text)


async def _access(book: PageBook) -> None:
    house = household()
    browser, owner = Browser(house), Browser(house)
    await browser.sign_in("bob")
    await browser.get("/account/access")
    book.note("nothing has access", browser)
    house.time += DAY
    let_in(house, "usr_bob", scope="mcp:tools")
    key_of(house, "usr_bob", tools="readonly", server="agent", expires_at=house.time + DAY)
    house.time += MINUTE
    await browser.sign_in("bob")
    await browser.get("/account/access")
    book.note("a login and a key have access", browser)
    await browser.submit("/account/logins/end")
    book.note("a login ended", browser)
    await browser.get("/account/access?did=gone")
    book.note("what was no more", browser)
    house.ask()
    await owner.sign_in()
    await owner.get("/account/access")
    book.note("the owner's, while a device waits", owner)
    await owner.submit("/account/logins/deny")
    book.note("the device denied", owner)


async def _money(book: PageBook) -> None:
    house = house_that_sells(per_day="$5")
    code = a_voucher(house)
    login = let_in(house, "usr_bob")
    browser = Browser(house)
    await browser.sign_in("bob")
    await browser.get("/account/you")
    book.note("without any money", browser)
    await browser.submit(REDEEM, voucher=code)
    book.note("a voucher redeemed", browser)
    await browser.submit(REDEEM, voucher=code)
    book.note("a voucher redeemed again", browser)
    await browser.submit(REDEEM, voucher="nonsense")
    book.note("no voucher", browser)
    await browser.submit(CAP, login=login, amount="much", period="day")
    book.note("a cap that is no amount", browser)
    await browser.submit(CAP, login=login, amount="$2", period="day")
    book.note("a cap set", browser)
    await browser.submit(UNCAP)
    book.note("a cap removed", browser)


async def _yourself(book: PageBook) -> None:
    house = household()
    browser = Browser(house)
    await browser.sign_in("bob")
    await browser.get("/account/passphrase")
    chosen: dict[str, Any] = {"new_passphrase": WRONG, "new_passphrase_again": WRONG}
    book.note("another passphrase", browser)
    await browser.submit("/account/passphrase", passphrase=WRONG, **chosen)
    book.note("another passphrase, with the wrong old one", browser)
    await browser.submit("/account/passphrase", passphrase=PASSPHRASE, **chosen)
    book.note("the passphrase changed", browser)
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    for number in range(20):
        await at_account(house, browser, key_for(house, credential_id=b"%d" % number))
    book.note("as many passkeys as one can have", browser)
