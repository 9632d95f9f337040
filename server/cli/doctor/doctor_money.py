"""The steps of `ostiary doctor` about money: whether prices can be paid, by whom payments are taken, where they go, and what a buyer would see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from server.client.server_checkup import CheckStep
from server.settings.money_settings import TIMEOUT_SECONDS

# Of the tools that cost something, those that are shown.
TOOLS: Final = 3
SETTINGS: Final = "see [payments] in the settings"


def money_steps(found: Mapping[str, Any]) -> list[CheckStep]:
    return [
        _prices(found["warnings"], found["tools"]),
        *(_facilitator(each) for each in found["facilitators"]),
        *(_asset(each, alone=not found["facilitators"]) for each in found["assets"]),
        *([_payees()] if any(each["pay_to"] for each in found["assets"]) else []),
        *(_buyer(each, found["assets"]) for each in found["tools"][:TOOLS]),
    ]


def unheard_step(tools: Mapping[str, Sequence[str]]) -> CheckStep:
    """Name tools by server whose authors say what they cost, where the settings have no [payments]."""
    named = [f"{server}/{tool}" for server, each in tools.items() for tool in each]
    more = f" and {len(named) - TOOLS} more" if len(named) > TOOLS else ""
    count = "a price that its agent sets is" if len(named) == 1 else "prices that agents set are"
    return CheckStep.failed(
        "prices",
        f"{count} not asked for without [payments]: {', '.join(named[:TOOLS])}{more}"
        f" cost{'s' if len(named) == 1 else ''} nothing",
        "[payments] in the settings, or leave the price out of the agent's file",
    )


def _prices(warnings: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> CheckStep:
    if warnings:
        return CheckStep.failed("prices", "; ".join(warnings), SETTINGS)
    if not tools:
        return CheckStep.skipped("prices", "no tool costs anything")
    count = len(tools)
    return CheckStep.ok(
        "prices", f"{count} tool{' costs' if count == 1 else 's cost'} something, and can be paid for"
    )


def _facilitator(each: Mapping[str, Any]) -> CheckStep:
    if each["problem"]:
        return CheckStep.failed(
            "facilitator",
            f"{each['url']} {each['problem']}",
            "until it answers, payments through it are refused; nothing is taken",
        )
    networks = ", ".join(each["networks"][:6]) or "no network"
    return CheckStep.ok("facilitator", f"{each['url']} takes payments on {networks}")


def _asset(each: Mapping[str, Any], *, alone: bool) -> CheckStep:
    what = f"{each['symbol']} on {each['title']} ({each['network']})"
    if not each["pay_to"]:
        return CheckStep.failed("payee", f"{what} is paid to nobody", "set pay_to")
    if not each["taken_by"]:
        return CheckStep.failed(
            "payee",
            f"{what}: {'there is no facilitator' if alone else 'no facilitator says that it takes it'}",
            "[[payments.facilitator]] with one that serves this network",
        )
    worthless = ", a test network: worth nothing" if each["testnet"] else ""
    return CheckStep.ok("payee", f"{what} is paid to {each['pay_to']}{worthless}")


def _payees() -> CheckStep:
    """Warn of other servers: no program can see which there are."""
    return CheckStep.skipped(
        "payee",
        "only servers on this database may take money at that address: another would sell for the same payment",
        "a pay_to of its own for each database",
    )


def _buyer(each: Mapping[str, Any], assets: Sequence[Mapping[str, Any]]) -> CheckStep:
    known = {(one["network"], one["address"].lower()): f"{one['symbol']} on {one['title']}" for one in assets}
    name = f"{each['server']}/{each['tool']}"
    said = f"{name}: {each['words']}"
    if not each["fixed"]:
        return CheckStep.ok("buyer sees", f"{said} (asked for with each call)")
    challenge = each["challenge"]
    if challenge is None:
        return CheckStep.ok("buyer sees", f"{said}; it cannot be paid for directly, from a balance alone")
    offers = [
        f"{one['amount']} units of {known.get((one['network'], one['asset'].lower()), one['asset'])}"
        for one in challenge["accepts"]
    ]
    who = "anybody" if each["strangers"] else "whoever is logged in and has no balance"
    seconds = challenge["accepts"][0].get("maxTimeoutSeconds", TIMEOUT_SECONDS)
    return CheckStep.ok(
        "buyer sees", f"{said}; {who} is asked for {' or '.join(offers)}, signed for up to {seconds} s"
    )
