"""Money of several people at one server: balance, movements, answers, tasks and the account page of each are nobody else's.

Two people, a key of each, and a stranger who pays by the call: each asks for what the others have, by what they can know or guess of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paid_shop import CENT, SETTINGS, Customer, Shop, answer_of, open_shop, reason_of
from person import PASSPHRASE, Person
from task_clients import CORE, MODERN, Core, Extension, Wire

pytestmark = pytest.mark.slow

ANN, BEN = 71_230_000, 84_560_000  # what they are given


@dataclass(kw_only=True)
class People:
    """At one server, where whoever has no login pays by the call."""

    shop: Shop
    browser: Person  # ben's, who is signed in there
    keys: Mapping[str, str]

    def come(self, who: str, **how: Any) -> Customer:
        """`ann`: with a login; `ann's key`, `ben's key`; anybody else is a stranger."""
        token = self.shop.house.token("club", "one") if who == "ann" else self.keys.get(who)
        wire = Wire(url=self.shop.house.endpoint("club"), token=token, pays=token is None, **how)
        return self.shop.customer(wire)

    def wallet(self, who: str) -> str:
        return me(self.come(who))["wallet"]["id"]


def me(customer: Customer) -> dict[str, Any]:
    return read(customer, "ostiary://me")


def read(customer: Customer, uri: str) -> dict[str, Any]:
    (found,) = customer.wire.ask("resources/read", uri=uri).result["contents"]
    return json.loads(found["text"])


@pytest.fixture(scope="module")
def people(shared_home: Path) -> Iterator[People]:
    with (
        open_shop(shared_home) as shop,
        closing(Person()) as owner,
        closing(Person()) as ben,
    ):
        written = SETTINGS.replace('auth = "oauth"', 'auth = "oauth"\nanonymous_pay = true')
        settings = written.format(facilitator=shop.facilitator, rpc="")
        (shop.program.home / "ostiary.toml").write_text(settings, "utf-8")
        server = shop.open()
        owner.claim(shop.program, server)
        link = shop.program.at_machine("invite", "ben", "--scope", "mcp")["url"]
        ben.press(
            ben.browser.get(link), "Come in", {"passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE}
        )
        keys = {
            "ann's key": shop.program.at_machine("api-keys", "create", "ann")["key"],
            "ben's key": shop.program.at_machine("api-keys", "create", "ben", "--user", "ben")["key"],
        }
        made = People(shop=shop, browser=ben, keys=keys)
        for who, given in (("ann", ANN), ("ben's key", BEN)):
            shop.program.at_machine("ledger", "grant", made.wallet(who), f"{given / 1_000_000:.2f}")
        yield made


def test_each_is_told_of_their_own_wallet_and_of_no_movement_of_another(people: People) -> None:
    known = ("ann", "ann's key", "ben's key")
    before = {who: me(people.come(who))["wallet"]["balance"] for who in known}
    for who in known:
        answer_of(people.come(who).call("sold", f"for-{who}"))
    stranger = people.come("stranger")
    answer_of(stranger.call("sold", "for-me", payment=stranger.sign("sold", "for-me")))
    ann, key, ben = (me(people.come(who)) for who in known)
    assert (ann["wallet"], ann["movements"]) == (key["wallet"], key["movements"])  # it is hers
    assert ann["wallet"]["balance"] == before["ann"] - 2 * CENT
    assert ben["wallet"]["balance"] == before["ben's key"] - CENT
    assert ann["wallet"]["id"] != ben["wallet"]["id"]
    booked = {
        each["seq"]: {each["source"], each["target"]}
        for each in people.shop.ask_store("SELECT seq, source, target FROM movements")
    }
    for who in (ann, ben):
        assert {f"wallet:{who['wallet']['id']}" in booked[each["seq"]] for each in who["movements"]} == {True}
    assert "result" not in stranger.wire.ask("resources/read", uri="ostiary://me").message


def test_the_same_key_of_another_finds_no_answer_of_theirs(people: People) -> None:
    """Each of them makes the call that the first has made, with its key."""
    name, key = "private", "a-key-that-was-guessed"
    stranger = people.come("stranger")
    payment = stranger.sign("sold", name)
    heard = [people.come(who).call("sold", name, key=key) for who in ("ann", "ann's key", "ben's key")]
    heard.append(stranger.call("sold", name, payment=payment, key=key))
    other = people.come("another stranger")
    heard.append(other.call("sold", name, payment=other.sign("sold", name), key=key))
    assert [answer_of(each) for each in heard] == [f"{name} was run {number}" for number in range(1, 6)]
    # And each finds its own again.
    assert answer_of(people.come("ben's key").call("sold", name, key=key)) == f"{name} was run 3"
    assert answer_of(stranger.call("sold", name, payment=payment, key=key)) == f"{name} was run 4"
    assert people.shop.runs(name) == 5


def test_whoever_shows_the_payment_of_another_has_neither_answer_nor_credit(people: People) -> None:
    payer, name, key = people.come("stranger"), "bought-on-the-chain", "a-key-of-mine"
    payment = payer.sign("other", name)
    assert answer_of(payer.call("other", name, payment=payment, key=key)) == f"{name} was run 1"
    for who in ("ann", "ann's key", "ben's key", "another stranger"):
        for guess in (None, "a-guess"):
            heard = people.come(who).call("other", name, payment=payment, key=guess)
            assert reason_of(heard) in ("payment_used", "invalid_resource", "idempotency_key_differs"), who
    assert answer_of(payer.call("other", name, payment=payment, key=key)) == f"{name} was run 1"
    assert (people.shop.runs(name), people.shop.settled(payer)) == (1, 1)


@pytest.mark.parametrize("version", [MODERN, CORE])
@pytest.mark.parametrize("whose", ["ann", "ben's key", "stranger"])
def test_a_task_that_was_paid_for_is_unknown_to_all_others(people: People, whose: str, version: str) -> None:
    name = f"task-of-{whose}-{version}".replace(" ", "-")
    buyer = people.come(whose, version=version)
    more: dict[str, Any] = {} if version == MODERN else {"task": {}}
    paid = {"payment": buyer.sign("waited_for", name)} if whose == "stranger" else {}
    made = buyer.call("waited_for", name, **paid, **more).result
    task = made["taskId"] if "taskId" in made else made["task"]["taskId"]
    people.shop.await_note(f"{name} runs")

    def guessed() -> None:
        for who in ("ann", "ann's key", "ben's key"):
            if who == whose:
                continue
            for at in (MODERN, CORE):
                face = face_of(people.come(who, version=at))
                asked = ["tasks/get", "tasks/cancel"] + ["tasks/result"] * (at == CORE)
                for method in asked:
                    assert face.wire.ask(method, taskId=task).code == face.unknown, (who, method)
            listed = people.come(who, version=CORE).wire.ask("tasks/list").result["tasks"]
            assert task not in [each["taskId"] for each in listed]

    guessed()
    people.shop.let_go(name)
    assert face_of(buyer).end(task).text == f"{name} was run 1"
    guessed()


def test_the_page_of_somebody_shows_what_is_theirs_and_nothing_of_others(people: People) -> None:
    shown = people.browser.browser.get(people.shop.house.url + "/account/you").text
    ben, ann = me(people.come("ben's key")), me(people.come("ann"))
    assert ben["wallet"]["words"] in shown
    assert ann["wallet"]["words"] not in shown
    assert "+$71.23" not in shown and "+$84.56" in shown
    assert "earned" not in shown
    for path in ("/account/people", "/account/audit"):
        assert people.browser.browser.get(people.shop.house.url + path).status_code in (403, 404), path


def face_of(customer: Customer) -> Extension | Core:
    return Extension(customer.wire) if customer.wire.version == MODERN else Core(customer.wire)
