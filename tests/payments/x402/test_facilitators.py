from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing

from server.payments.x402.facilitator_client import FacilitatorAccess, SupportedKind
from server.payments.x402.facilitators import AVOIDED_SECONDS, FacilitatorDown, Facilitators
from server.payments.x402.payment_payload import Payment, read_payment
from server.payments.x402.requirements import PaidResource
from server.payments.x402.settlements import AlreadyUsed, Rejected, Settled, Unknown, Verified
from tests.agents.python.fake_agent import (
    PATIENCE,
    Exchange,
    FakeAgent,
    Handler,
    Silent,
    fake_agent,
    pass_when,
)
from tests.free_ports import free_port
from tests.payments.x402.builders import PAYER, RESOURCE, TRANSACTION, offer, payment

PAYMENT = read_payment(payment())
KINDS = {
    "kinds": [{"x402Version": 2, "scheme": "exact", "network": "eip155:84532"}],
    "extensions": [],
    "signers": {},
}
YES = {"isValid": True, "payer": PAYER}
DONE = {"success": True, "payer": PAYER, "transaction": TRANSACTION, "network": "eip155:84532"}
NETWORK = "eip155:84532"


def serves(*, verify: Any = YES, settle: Any = DONE, supported: Any = KINDS, status: int = 200) -> Handler:
    """Answers by the last part of the path: with a document, or as a function does."""

    async def answer(exchange: Exchange) -> None:
        name = exchange.request.target.partition("?")[0].rpartition("/")[2]
        documents: dict[str, Any] = {"verify": verify, "settle": settle, "supported": supported}
        found = documents[name]
        if callable(found):
            await cast("Handler", found)(exchange)
        else:
            await exchange.reply(json.dumps(found).encode(), status=status)

    return answer


def root(agent: FakeAgent) -> str:
    return f"http://localhost:{agent.port}/pay"


class Trouble:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, url: str, problem: str) -> None:
        self.told.append((url, problem))


@asynccontextmanager
async def asking(
    *handlers: Handler | FacilitatorAccess, **changes: Any
) -> AsyncGenerator[tuple[Facilitators, list[FakeAgent], Trouble]]:
    """Facilitators with a server for each handler; `changes` are of the access to each."""
    async with AsyncExitStack() as stack:
        agents: list[FakeAgent] = []
        accesses: list[FacilitatorAccess] = []
        for each in handlers:
            if isinstance(each, FacilitatorAccess):
                accesses.append(each)
                continue
            agent = await stack.enter_async_context(fake_agent(each))
            agents.append(agent)
            accesses.append(access(root(agent), **changes))
        trouble = Trouble()
        under_test = Facilitators(accesses, warn=trouble)
        try:
            with trio.fail_after(PATIENCE):
                yield under_test, agents, trouble
        finally:
            await under_test.aclose()


def nobody(**changes: Any) -> FacilitatorAccess:
    """One at whose address nobody listens."""
    return access(f"http://localhost:{free_port()}/gone", **changes)


def access(url: str, **changes: Any) -> FacilitatorAccess:
    fields: dict[str, Any] = {"url": url, "networks": (NETWORK,), **changes}
    return FacilitatorAccess(**fields)


def targets(agent: FakeAgent) -> list[str]:
    return [request.target for request in agent.requests]


async def hang_up(exchange: Exchange) -> None:
    await exchange.stream.aclose()


async def half(exchange: Exchange) -> None:
    await exchange.send(b'HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{"success": true')
    await exchange.stream.aclose()


async def endless(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n{")
    await exchange.wait_gone()


async def elsewhere(exchange: Exchange) -> None:
    await exchange.reply(
        DONE, status=307, headers=[("Location", f"http://{exchange.request.headers['host']}/other/settle")]
    )


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_facilitator_is_sent_the_payment_and_our_own_requirements() -> None:
    came = payment()
    came["accepted"]["extra"]["note"] = "the client's"
    found = read_payment(came)
    async with asking(serves()) as (under_test, [agent], _):
        good = await under_test.verify(found, offer())
        assert good == Verified(payer=PAYER, facilitator=root(agent))
        assert isinstance(good, Verified)
        assert await under_test.settle(found, offer(), at=good.facilitator) == Settled(
            transaction=TRANSACTION, payer=PAYER, network=NETWORK, amount="10000"
        )
        assert [(request.method, request.target) for request in agent.requests] == [
            ("POST", "/pay/verify"),
            ("POST", "/pay/settle"),
        ]
        for request in agent.requests:
            assert request.headers["content-type"] == "application/json"
            assert request.json == {
                "x402Version": 2,
                "paymentPayload": {**found.forward, "accepted": offer().as_json()},
                "paymentRequirements": offer().as_json(),
            }
            assert b"the client's" not in request.body


async def test_a_payment_of_version_1_goes_with_requirements_of_version_1() -> None:
    found = read_payment(payment(1))
    async with asking(serves()) as (under_test, [agent], _):
        await under_test.verify(found, offer(), RESOURCE)
        await under_test.settle(found, offer(), at=root(agent))
        assert agent.requests[0].json == {
            "x402Version": 1,
            "paymentPayload": payment(1) | {"payload": dict(found.forward["payload"])},
            "paymentRequirements": offer().as_v1_json(RESOURCE),
        }
        assert agent.requests[1].json["paymentRequirements"] == offer().as_v1_json(
            PaidResource(url="mcp://tool")
        )


async def test_what_the_settings_say_of_a_facilitator_goes_with_every_request_and_is_not_shown() -> None:
    headers = (("Authorization", "Bearer s3cret"), ("X-Team", "a"))
    async with asking(serves(), headers=headers) as (under_test, [agent], _):
        await under_test.supported()
        await under_test.verify(PAYMENT, offer())
        await under_test.settle(PAYMENT, offer(), at=root(agent))
        assert targets(agent) == ["/pay/supported", "/pay/verify", "/pay/settle"]
        assert {request.headers["authorization"] for request in agent.requests} == {"Bearer s3cret"}
    shown = repr(FacilitatorAccess(url="http://x.example", headers=headers)) + repr(under_test)
    assert "s3cret" not in shown and "Authorization" in shown


async def test_the_address_may_end_in_a_slash_and_have_a_query() -> None:
    async with fake_agent(serves()) as agent:
        under_test = Facilitators(
            [FacilitatorAccess(url=f"http://localhost:{agent.port}/a/b/?key=1", networks=(NETWORK,))]
        )
        await under_test.verify(PAYMENT, offer())
        await under_test.aclose()
        assert targets(agent) == ["/a/b/verify?key=1"]


async def test_no_request_asks_for_its_connection_to_be_kept() -> None:
    async with asking(serves()) as (under_test, [agent], _):
        for _ in range(2):
            await under_test.verify(PAYMENT, offer())
            await under_test.settle(PAYMENT, offer(), at=root(agent))
        assert {request.headers["connection"] for request in agent.requests} == {"close"}


@pytest.mark.parametrize(
    "change",
    [
        {"url": "ftp://x"},
        {"url": "http://a:b@x"},
        {"headers": (("X", "a\r\nb"),)},
        {"headers": (("a b", "c"),)},
    ],
)
def test_an_address_or_a_header_that_cannot_be_used_is_refused_at_once(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Facilitators([access(**{"url": "http://x.example", **change})])


async def test_a_key_in_an_address_is_shown_to_nobody() -> None:
    trouble = Trouble()
    gone = nobody()
    under_test = Facilitators([access(f"{gone.url}?key=s3cret")], warn=trouble)
    with pytest.raises(FacilitatorDown) as raised:
        await under_test.verify(PAYMENT, offer())
    with pytest.raises(FacilitatorDown) as again:
        await under_test.settle(PAYMENT, offer(), at=f"{gone.url}?key=s3cret")
    shown = [
        raised.value.for_log,
        again.value.for_log,
        repr(await under_test.supported()),
        repr(trouble.told),
    ]
    assert all(gone.url in text and "s3cret" not in text for text in shown)
    assert "s3cret" not in repr(access(f"{gone.url}?key=s3cret"))
    await under_test.aclose()


# ── verifying ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "broken",
    [
        serves(verify=hang_up),
        serves(verify=half),
        serves(verify=endless),
        serves(verify=b"x"[:0].decode()),
        serves(verify={"error": "busy"}, status=503),
        serves(verify=YES, status=500),
        serves(verify=elsewhere),
        serves(verify={"isValid": False, "invalidReason": "unexpected_verify_error"}),
        nobody(),
    ],
    ids=["hangs up", "half", "endless", "garbage", "503", "500", "redirect", "error", "nobody"],
)
async def test_where_one_does_not_say_the_next_is_asked_and_the_operator_told(
    broken: Handler | FacilitatorAccess,
) -> None:
    async with asking(broken, serves()) as (under_test, agents, trouble):
        good = await under_test.verify(PAYMENT, offer())
        assert isinstance(good, Verified) and good.facilitator == root(agents[-1])
        assert len(trouble.told) == 1
        assert targets(agents[-1]) == ["/pay/verify"]
        if len(agents) == 2:
            assert targets(agents[0]) == ["/pay/verify"], "asked once, and not led elsewhere"


async def test_one_that_takes_too_long_is_given_up_and_the_next_is_asked(
    mock_clock: trio.testing.MockClock,
) -> None:
    silent = Silent()
    async with fake_agent(serves(verify=silent)) as slow, fake_agent(serves()) as healthy:
        trouble = Trouble()
        both = [access(root(slow), verify_seconds=0.05), access(root(healthy))]
        under_test = Facilitators(both, warn=trouble)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_when, mock_clock, 0.05, silent.came)
            good = await under_test.verify(PAYMENT, offer())
        assert isinstance(good, Verified) and good.facilitator == root(healthy)
        assert trouble.told == [(root(slow), "does not answer in time")]
        await under_test.aclose()


async def test_a_no_is_final_and_nobody_else_is_asked() -> None:
    bad = {"isValid": False, "invalidReason": "insufficient_funds"}
    async with asking(serves(verify=bad), serves()) as (under_test, agents, _):
        answer = await under_test.verify(PAYMENT, offer())
        assert isinstance(answer, Rejected) and answer.code == "insufficient_funds"
        assert agents[1].requests == []


async def test_where_nobody_answers_nothing_is_served_and_the_payer_is_told_no_address() -> None:
    async with asking(nobody(), serves(verify="x")) as (under_test, [agent], _):
        with pytest.raises(FacilitatorDown) as raised:
            await under_test.verify(PAYMENT, offer())
        assert "localhost" not in str(raised.value) and "nothing was paid" in str(raised.value)
        assert f"{root(agent)} did not answer in JSON" in raised.value.for_log
        assert "/gone cannot be reached: connection refused" in raised.value.for_log


async def test_one_that_failed_is_asked_last_for_a_while() -> None:
    async with fake_agent(serves()) as healthy:
        answers = [503, 200, 200]

        async def recovers(exchange: Exchange) -> None:
            await exchange.reply(YES, status=answers.pop(0))

        async with fake_agent(serves(verify=recovers)) as shaky:
            both = [FacilitatorAccess(url=root(agent), networks=(NETWORK,)) for agent in (shaky, healthy)]
            under_test = Facilitators(both)
            for _ in range(2):
                good = await under_test.verify(PAYMENT, offer())
                assert isinstance(good, Verified) and good.facilitator == root(healthy)
            assert len(shaky.requests) == 1, "only the first call waited for it"
            avoided = under_test._avoided
            assert 0 < avoided[root(shaky)] - trio.current_time() <= AVOIDED_SECONDS
            avoided[root(shaky)] = trio.current_time()  # as if that time had passed
            good = await under_test.verify(PAYMENT, offer())
            assert isinstance(good, Verified) and good.facilitator == root(shaky)
            await under_test.aclose()


async def test_one_for_another_network_is_not_asked() -> None:
    async with asking(nobody(networks=("eip155:8453",)), serves()) as (under_test, [agent], trouble):
        good = await under_test.verify(PAYMENT, offer())
        assert isinstance(good, Verified) and good.facilitator == root(agent)
        assert trouble.told == []


async def test_without_anybody_for_a_network_the_operator_reads_which() -> None:
    async with asking(serves(), networks=("eip155:8453",)) as (under_test, [agent], _):
        for call in (under_test.verify(PAYMENT, offer()), under_test.settle(PAYMENT, offer(), at="")):
            with pytest.raises(FacilitatorDown) as raised:
                await call
            assert (
                raised.value.for_log
                == 'no facilitator takes payments in scheme "exact" of version 2 on eip155:84532'
            )
        assert agent.requests == []


# ── settling ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("play", "problem"),
    [
        (hang_up, "closed the connection"),
        (half, "closed the connection"),
        (endless, "answered with more than 64 KiB"),
        (elsewhere, "answered with status 307"),
        ("x", "did not answer in JSON"),
        ({"success": "yes"}, "neither yes nor no"),
        (
            {"success": False, "errorReason": "settlement_pending", "transaction": TRANSACTION},
            "says: settlement_pending",
        ),
    ],
    ids=["hangs up", "half", "endless", "redirect", "garbage", "maybe", "pending"],
)
async def test_an_answer_that_does_not_come_leaves_it_unknown_and_nobody_else_is_asked(
    play: object, problem: str
) -> None:
    async with asking(serves(settle=play), serves()) as (under_test, agents, _):
        found = await under_test.settle(PAYMENT, offer(), at=root(agents[0]))
        assert isinstance(found, Unknown) and problem in found.problem
        assert targets(agents[0]) == ["/pay/settle"], "sent once, and not led elsewhere"
        assert agents[1].requests == []


async def test_an_answer_that_is_not_there_in_time_leaves_it_unknown(
    mock_clock: trio.testing.MockClock,
) -> None:
    silent = Silent()
    async with asking(serves(settle=silent), settle_seconds=0.05) as (under_test, [agent], _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_when, mock_clock, 0.05, silent.came)
            found = await under_test.settle(PAYMENT, offer(), at=root(agent))
        assert found == Unknown(problem="did not answer within 0.05 s")


@pytest.mark.parametrize("status", [400, 401, 402, 404, 429, 500, 502, 503, 504])
async def test_with_any_status_but_200_it_is_unknown(status: int) -> None:
    async with asking(serves(settle=DONE, status=status)) as (under_test, [agent], _):
        assert isinstance(await under_test.settle(PAYMENT, offer(), at=root(agent)), Unknown)


async def test_the_one_that_verified_settles_and_no_other() -> None:
    async with asking(serves(), serves()) as (under_test, agents, _):
        assert isinstance(await under_test.settle(PAYMENT, offer(), at=root(agents[1])), Settled)
        assert agents[0].requests == []


async def test_where_the_one_that_verified_cannot_be_reached_nothing_is_sent_to_another() -> None:
    gone = nobody()
    async with asking(gone, serves()) as (under_test, [agent], trouble):
        with pytest.raises(FacilitatorDown) as raised:
            await under_test.settle(PAYMENT, offer(), at=gone.url)
        assert raised.value.for_log == f"{gone.url} cannot be reached: connection refused"
        assert trouble.told == [(gone.url, "cannot be reached: connection refused")]
        assert agent.requests == []


async def test_one_that_the_settings_no_longer_name_is_replaced() -> None:
    async with asking(serves()) as (under_test, [agent], _):
        found = await under_test.settle(PAYMENT, offer(), at="https://gone.example", repeated=True)
        assert isinstance(found, Settled)
        assert targets(agent) == ["/pay/settle"]


@pytest.mark.parametrize(("repeated", "certain"), [(False, True), (True, False)])
async def test_only_a_first_no_is_certain(repeated: bool, certain: bool) -> None:
    answer = {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
    async with asking(serves(settle=answer)) as (under_test, [agent], _):
        found = await under_test.settle(PAYMENT, offer(), at=root(agent), repeated=repeated)
        assert isinstance(found, Rejected) and found.certain is certain


async def test_a_second_settlement_of_what_the_first_one_did_is_known_by_its_nonce() -> None:
    answer = {"success": False, "errorReason": "invalid_exact_evm_nonce_already_used", "transaction": ""}
    async with asking(serves(settle=answer)) as (under_test, [agent], _):
        found = await under_test.settle(PAYMENT, offer(), at=root(agent), repeated=True)
        assert isinstance(found, AlreadyUsed)


async def test_a_cancelled_settlement_closes_its_connection() -> None:
    came, gone = trio.Event(), trio.Event()

    async def wait(exchange: Exchange) -> None:
        came.set()
        await exchange.wait_gone()
        gone.set()

    async with asking(serves(settle=wait)) as (under_test, [agent], _):
        async with trio.open_nursery() as nursery:

            async def settle() -> None:
                await under_test.settle(PAYMENT, offer(), at=root(agent))

            nursery.start_soon(settle)
            await came.wait()
            nursery.cancel_scope.cancel()
        await gone.wait()


# ── what is supported ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_from_where_they_send_is_known_once_they_said_it_and_junk_is_none() -> None:
    said = {
        **KINDS,
        "signers": {"eip155:*": ["0x" + "Fa" * 20, "0x12", 7, None], "solana:*": "no list", "": []},
    }
    signer, network = "0x" + "fa" * 20, "eip155:84532"
    async with asking(serves(supported=said), serves(), networks=()) as (under_test, [first, second], _):
        found = await under_test.all_signers(network, "0x" + "0b" * 20)  # not known: all are asked
        assert (found.addresses, found.complete) == ({signer}, False)  # the second does not say
        asked = len(first.requests) + len(second.requests)
        assert (await under_test.all_signers(network, signer)).addresses == {signer}
        assert len(first.requests) + len(second.requests) == asked
    async with asking(serves(supported=said), networks=()) as (under_test, _, _):
        assert (await under_test.all_signers(network, "0x" + "0b" * 20)).complete
        # Nobody else serves that one, and whoever does has said all.
        assert (await under_test.all_signers("eip155:1", "0x" + "0b" * 20)).addresses == frozenset()


async def test_what_they_support_is_asked_of_all_and_kept() -> None:
    async with asking(serves(), nobody(networks=()), networks=()) as (under_test, [agent], trouble):
        assert all(each.kinds is None for each in under_test.support)
        found = await under_test.supported()
        assert found == under_test.support
        assert (
            found[0].kinds == (SupportedKind(version=2, scheme="exact", network=NETWORK),)
            and found[0].problem == ""
        )
        assert found[1].kinds is None and found[1].problem == "cannot be reached: connection refused"
        await under_test.supported()
        assert len(trouble.told) == 1, "the same trouble is told once"
        assert targets(agent) == ["/pay/supported"] * 2
        assert agent.requests[0].method == "GET"


@pytest.mark.parametrize(
    "answer",
    [
        "x",
        [],
        {},
        {"kinds": []},
        {"kinds": "x"},
        {"kinds": [1, {}, {"x402Version": True, "scheme": "exact", "network": "x"}, {"x402Version": 3}]},
    ],
    ids=str,
)
async def test_one_that_supports_nothing_is_in_trouble_and_what_it_said_before_still_counts(
    answer: object,
) -> None:
    answers: list[object] = [KINDS, answer, KINDS]

    async def changes(exchange: Exchange) -> None:
        await exchange.reply(json.dumps(answers.pop(0)).encode())

    async with asking(serves(supported=changes), networks=()) as (under_test, _, trouble):
        before = await under_test.supported()
        during = await under_test.supported()
        assert during[0].kinds == before[0].kinds
        assert "no kind of payment" in during[0].problem
        assert during[0].problem == trouble.told[0][1]
        assert isinstance(await under_test.verify(PAYMENT, offer()), Verified)
        assert await under_test.supported() == before


@pytest.mark.parametrize(
    ("kind", "covers"),
    [
        ({"x402Version": 2, "scheme": "exact", "network": "eip155:84532"}, True),
        ({"x402Version": 2, "scheme": "exact", "network": "eip155:*"}, True),
        ({"x402Version": 2, "scheme": "exact", "network": "eip155:8453"}, False),
        ({"x402Version": 2, "scheme": "exact", "network": "solana:*"}, False),
        ({"x402Version": 2, "scheme": "upto", "network": "eip155:84532"}, False),
        ({"x402Version": 1, "scheme": "exact", "network": "base-sepolia"}, False),
    ],
    ids=str,
)
async def test_where_the_settings_name_no_network_what_it_supports_counts(
    kind: dict[str, Any], covers: bool
) -> None:
    async with asking(serves(supported={"kinds": [kind]}), networks=()) as (under_test, [agent], _):
        await under_test.supported()
        if covers:
            assert isinstance(await under_test.verify(PAYMENT, offer()), Verified)
        else:
            with pytest.raises(FacilitatorDown):
                await under_test.verify(PAYMENT, offer())
            assert targets(agent) == ["/pay/supported"]


async def test_a_kind_of_version_1_is_known_by_its_networks_name() -> None:
    kind = {"x402Version": 1, "scheme": "exact", "network": "base-sepolia"}
    async with asking(serves(supported={"kinds": [kind]}), networks=()) as (under_test, _, _):
        await under_test.supported()
        assert isinstance(await under_test.verify(read_payment(payment(1)), offer()), Verified)


async def test_one_that_was_never_reached_is_asked_all_the_same() -> None:
    async with asking(serves(), networks=()) as (under_test, _, _):
        assert isinstance(await under_test.verify(PAYMENT, offer()), Verified)


async def test_what_they_support_is_looked_after_in_the_background_until_it_is_known() -> None:
    answers: list[object] = ["x", {"kinds": []}, KINDS]
    last = trio.Event()

    async def starts(exchange: Exchange) -> None:
        await exchange.reply(json.dumps(answers.pop(0)).encode())
        if not answers:
            last.set()

    async with fake_agent(serves(supported=starts)) as agent:
        under_test = Facilitators([FacilitatorAccess(url=root(agent))], retry_seconds=(0.0, 0.0))
        async with trio.open_nursery() as nursery:
            await nursery.start(under_test.run)
            await last.wait()
            while under_test.support[0].problem:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert under_test.support[0].kinds is not None
        assert targets(agent) == ["/pay/supported"] * 3, "and then not for a while"
        await under_test.aclose()


async def test_many_at_once_are_kept_apart() -> None:
    """Each payment gets the answer to itself."""

    async def by_nonce(exchange: Exchange) -> None:
        nonce = exchange.request.json["paymentPayload"]["payload"]["authorization"]["nonce"]
        await exchange.reply({**DONE, "transaction": nonce})

    found: dict[str, str] = {}
    async with asking(serves(settle=by_nonce)) as (under_test, [agent], _):

        async def settle(one: Payment) -> None:
            outcome = await under_test.settle(one, offer(), at=root(agent))
            assert isinstance(outcome, Settled)
            found[one.authorization.nonce] = outcome.transaction

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(settle, read_payment(payment(2, nonce=f"0x{number:064x}")))
    assert len(found) == 100 and all(nonce == transaction for nonce, transaction in found.items())
