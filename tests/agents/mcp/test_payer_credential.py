"""What an upstream is shown by somebody with a wallet: a login where there is one, else, once turned away, that they come to pay."""

from __future__ import annotations

from collections.abc import Mapping

from server.agents.base.backend import AgentRequest
from server.agents.mcp.upstream_credentials import AUTHORIZATION, PayerCredential
from server.payments.x402.payment_headers import NOTHING_YET, PAYMENT_SIGNATURE

ANNOUNCED = {PAYMENT_SIGNATURE: NOTHING_YET}


class Login:
    shared = True

    def __init__(self) -> None:
        self.shown: Mapping[str, str] = {}
        self.refusals = 0

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return self.shown

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        self.refusals += 1
        return False


async def test_who_is_turned_away_without_a_login_comes_to_pay() -> None:
    login = Login()
    payer = PayerCredential(login)
    assert await payer.headers(None) == {}
    assert await payer.refused(None, "") is True
    assert await payer.headers(None) == ANNOUNCED
    assert await payer.headers(None) is await payer.headers(None)
    assert login.refusals == 0


async def test_who_is_turned_away_all_the_same_needs_a_login() -> None:
    login = Login()
    payer = PayerCredential(login)
    assert await payer.refused(None, "") is True
    assert await payer.refused(None, "") is False
    assert login.refusals == 1


async def test_who_has_a_login_shows_it_alone() -> None:
    login = Login()
    payer = PayerCredential(login)
    assert await payer.refused(None, "") is True
    login.shown = {AUTHORIZATION: "Bearer mine"}
    assert await payer.headers(None) == login.shown
    assert await payer.refused(None, "") is False
    assert login.refusals == 1


async def test_a_login_that_is_refused_is_not_exchanged_for_money() -> None:
    login = Login()
    login.shown = {AUTHORIZATION: "Bearer mine"}
    payer = PayerCredential(login)
    assert await payer.refused(None, "") is False
    assert (await payer.headers(None), login.refusals) == (login.shown, 1)
