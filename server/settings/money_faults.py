"""What is wrong with the settings of money together, and where a price could be paid by nobody. That a single value is right is
settings_reader.py's. Nothing of payments is loaded where the settings have none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from server.lib.money.amounts import MOST, BadAmount, from_atomic, parse, parse_atomic, to_atomic
from server.lib.shortened import short_name
from server.settings.money_settings import (
    FREE,
    KINDS,
    PAYMENTS,
    PLAN_ONLY,
    PRICE,
    AssetConfig,
    FacilitatorConfig,
    PaymentsConfig,
    PlanConfig,
    PriceTable,
    PriceValue,
)
from server.settings.policy_settings import Fault
from server.settings.setting_shapes import ServerConfig

if TYPE_CHECKING:
    from server.lib.evm.payment_networks import Asset

_REFERENCE: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9-]{0,20} )?(?:env|file):.+")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
# A tool, all of one server, or all: as plans name them.
_TOOLS: Final = re.compile(r"(?:[a-z0-9-]{1,40}/)?(?:\*|[A-Za-z0-9_.-]{1,128})")
_OF_ASSETS: Final = frozenset({"networks", "asset"})  # fields of [payments]
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# Of each asset that is accepted, how many digits it may have; None: not known, as these have mistakes.
Units: TypeAlias = "Mapping[str, frozenset[int]] | None"


def money_faults(
    payments: PaymentsConfig | None,
    plans: Sequence[PlanConfig | None],
    servers: Sequence[ServerConfig],
    *,
    lost: Set[str] = frozenset(),
    are_all: bool = True,
) -> Iterable[Fault]:
    """Say what is wrong. `lost`: fields of `payments` that are left out of it for being wrong by themselves, of which nothing follows.
    None: a plan that is wrong by itself. `are_all`: `servers` are those that are written, each whole."""
    units: Units = {}
    if payments is not None:
        found = list(_payment_faults(payments, lost))
        yield from found
        wrong = lost | {key.split(".")[1].partition("[")[0] for key, *_ in found}
        # Else it is not clear to which assets prices refer.
        units = None if wrong & _OF_ASSETS else _accepted(payments)
    for place, server in enumerate(servers, 1):
        yield from _server_faults(server, f"server[{place}]", units)
        if server.anonymous_pay and payments is None:
            yield f"server[{place}].anonymous_pay", "needs [payments]", "it, or leave this out"
    yield from _plan_faults(plans, {server.name for server in servers} if are_all else None)


# ── prices ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _server_faults(server: ServerConfig, where: str, units: Units) -> Iterable[Fault]:
    if server.price is not None:
        yield from _price_faults(server.price, f"{where}.price", units)
    for name, tool in server.tools.items():
        own = f"{where}.tools.{name}"
        price = server.price if tool.price is None else tool.price
        if tool.price is not None:
            yield from _price_faults(tool.price, f"{own}.price", units)
        for kind, value in tool.price_for.items():
            key = f"{own}.price_for.{kind[:40]}"
            if kind not in KINDS:
                yield key, "is no kind of caller", "one of " + ", ".join(f'"{each}"' for each in KINDS)
            yield from _price_faults(value, key, units)
        if price == FREE and not tool.price_for:
            for key in ("free_calls", "trial"):
                if getattr(tool, key):
                    yield f"{own}.{key}", "says nothing of a tool that is free", "a price, or leave it out"
        if price == PLAN_ONLY and tool.flow == "upfront":
            yield f"{own}.flow", "says nothing of a tool that cannot be bought", "a price, or leave it out"


def _price_faults(value: PriceValue, key: str, units: Units) -> Iterable[Fault]:
    if isinstance(value, str):
        if value not in (FREE, PLAN_ONLY):
            yield from _amount_faults(value, key)
        return
    ways = [bool(value.asset or value.amount), bool(value.function), bool(value.expression)]
    if sum(ways) != 1:
        yield key, "says " + ("nothing" if not any(ways) else "several things at once"), PRICE
    elif ways[0]:
        yield from _atomic_faults(value, key, units)
    elif value.expression:
        from server.lib.money.expressions import BadExpression, Expression

        try:
            Expression(value.expression)
        except BadExpression as problem:
            yield f"{key}.expression", str(problem), 'e.g. "0.01 + 0.002 * len(text)"'
    if value.most:
        if ways[0]:
            yield f"{key}.most", "says nothing of a fixed amount", "leave it out"
        yield from _amount_faults(value.most, f"{key}.most")


def _atomic_faults(value: PriceTable, key: str, units: Units) -> Iterable[Fault]:
    if not value.asset or not value.amount:
        yield key, "has one of asset and amount", 'both, e.g. { asset = "USDC", amount = "10000" }'
        return
    decimals = frozenset[int]() if units is None else units.get(value.asset.lower(), frozenset())
    if units is None:
        pass
    elif not decimals:
        yield f"{key}.asset", f'"{value.asset}" is not accepted here', "an asset of a network in [payments]"
    elif len(decimals) > 1:
        yield f"{key}.asset", f'"{value.asset}" counts otherwise on another network', "its address"
    try:
        atomic = parse_atomic(value.amount)
        if atomic == 0:
            yield f"{key}.amount", "is nothing", 'price = "free"'
        for each in decimals:
            if from_atomic(atomic, each) > MOST:
                yield f"{key}.amount", "is more than can be counted here", "less"
    except BadAmount as problem:
        yield f"{key}.amount", str(problem), 'e.g. "10000"'


def _amount_faults(text: str, key: str) -> Iterable[Fault]:
    try:
        if parse(text) == 0:
            yield key, f'"{text}" is nothing', '"free", or leave it out'
    except BadAmount as problem:
        what, _, instead = str(problem).partition(": write it ")
        yield key, f'"{text}" {what}', instead or 'an amount like "$0.01"'


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _plan_faults(plans: Sequence[PlanConfig | None], servers: Set[str] | None) -> Iterable[Fault]:
    seen: set[str] = set()
    for place, plan in enumerate(plans, 1):
        if plan is None:
            continue
        where = f"plan[{place}]"
        if plan.name in seen:
            yield f"{where}.name", f'"{plan.name}" is used twice', "a name of its own for each"
        seen.add(plan.name)
        if plan.unlimited and (plan.calls or plan.tool_calls):
            yield f"{where}.unlimited", "leaves nothing to count", "one of unlimited, and calls or tool_calls"
        if not (plan.unlimited or plan.calls or plan.tool_calls or plan.prices):
            yield where, "offers nothing", "one of unlimited, calls, tool_calls, prices"
        for field in ("tool_calls", "prices"):
            yield from _tool_names(getattr(plan, field), f"{where}.{field}", servers)
        for name, price in plan.prices.items():
            if price != FREE:
                yield from _amount_faults(price, f"{where}.prices.{short_name(name)}")
        if plan.price:
            yield from _amount_faults(plan.price, f"{where}.price")


def _tool_names(named: Mapping[str, object], where: str, servers: Set[str] | None) -> Iterable[Fault]:
    for name in named:
        server, slash, _ = name.partition("/")
        if _TOOLS.fullmatch(name) is None:
            yield f"{where}.{short_name(name)}", "is no tool", '"search", "main/search", "main/*" or "*"'
        elif slash and servers is not None and server not in servers:
            yield f"{where}.{short_name(name)}", f'there is no server "{server}"', "one of this file"


# ── payments ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _payment_faults(payments: PaymentsConfig, lost: Set[str]) -> Iterable[Fault]:
    from server.lib.evm.payment_networks import usual_asset
    from server.settings.sale_settings import network_named

    yield from _payee_faults(payments.pay_to, "payments.pay_to")
    served = set[str]()
    for place, name in enumerate(payments.networks, 1):
        network, key = network_named(name), f"payments.networks[{place}]"
        if network is None:
            yield key, f'"{short_name(name)}" is no network that is known here', _known()
        elif usual_asset(network.caip2) is None:
            yield key, f'"{name}" has no usual asset', "[[payments.asset]] with that network"
        elif network.caip2 in served:
            yield key, f'"{name}" is there twice', "each network once"
        if network is not None:
            served.add(network.caip2)
    seen: set[tuple[str, str]] = set()
    for place, asset in enumerate(payments.asset, 1):
        yield from _asset_faults(asset, f"payments.asset[{place}]", seen)
        if (network := network_named(asset.network)) is not None:
            served.add(network.caip2)
    known = None if lost & _OF_ASSETS else served
    for place, facilitator in enumerate(payments.facilitator, 1):
        where = f"payments.facilitator[{place}]"
        yield from _url_faults(facilitator.url, f"{where}.url", query=False)
        yield from _served_faults(facilitator.networks, f"{where}.networks", known)
        for name, value in facilitator.headers.items():
            if _HEADER.fullmatch(name) is None:
                yield f"{where}.headers", f'"{short_name(name)}" is no header', 'e.g. "authorization"'
            elif _REFERENCE.fullmatch(value) is None:
                yield f"{where}.headers.{name}", "is no reference", '"env:NAME" or "Bearer file:/path"'
        yield from _key_faults(facilitator, where)
    yield from _served_faults(tuple(payments.rpc), "payments.rpc", known)
    for name, url in payments.rpc.items():
        yield from _url_faults(url, f"payments.rpc.{short_name(name)}", query=True, shown=False)
    bounds = list(_amount_faults(payments.deposit_least, "payments.deposit_least"))
    bounds += _amount_faults(payments.deposit_most, "payments.deposit_most")
    yield from bounds
    are_known = not (bounds or lost & {"deposit_least", "deposit_most"})
    if are_known and parse(payments.deposit_least) > parse(payments.deposit_most):
        yield "payments.deposit_least", "is more than deposit_most", "less than that"
    for name in payments.caps.__struct_fields__:
        if written := getattr(payments.caps, name):
            yield from _amount_faults(written, f"payments.caps.{name}")


def _asset_faults(asset: AssetConfig, where: str, seen: set[tuple[str, str]]) -> Iterable[Fault]:
    from server.lib.evm.payment_networks import usual_asset
    from server.settings.sale_settings import network_named

    yield from _payee_faults(asset.pay_to, f"{where}.pay_to")
    network = network_named(asset.network)
    if network is None:
        yield f"{where}.network", f'"{asset.network}" is no network that is known here', _known()
        return
    usual = usual_asset(network.caip2)
    address = asset.address.lower() or (usual.address.lower() if usual is not None else "")
    if not address:
        yield f"{where}.address", "is missing: this network has no usual asset", "the token's address"
    elif (network.caip2, address) in seen:
        yield where, "describes an asset that another table describes", "each asset once"
    seen.add((network.caip2, address))
    if usual is not None and address == usual.address.lower():
        written = (asset.name, asset.version, asset.symbol)
        if any(
            each not in ("", own)
            for each, own in zip(written, (usual.name, usual.version, usual.symbol), strict=True)
        ):
            yield (
                where,
                f"is the usual {usual.symbol} of its network, and says otherwise of it",
                "its network and pay_to alone",
            )
        return
    for field in ("name", "version"):
        if not getattr(asset, field):
            yield f"{where}.{field}", "is missing", f"what {field}() of the token says"
    yield from _address_faults(asset.address, f"{where}.address")


def _key_faults(facilitator: FacilitatorConfig, where: str) -> Iterable[Fault]:
    for name in ("key_id", "key_secret"):
        value = getattr(facilitator, name)
        if value and not value.startswith(("env:", "file:")):
            yield f"{where}.{name}", "is no reference", '"env:NAME" or "file:/path"'
    if bool(facilitator.key_id) != bool(facilitator.key_secret):
        yield where, "has one of key_id and key_secret", "both, or neither"
    if facilitator.key_secret and any(name.lower() == "authorization" for name in facilitator.headers):
        yield f"{where}.headers.authorization", "is there besides key_secret", "one of them"


def _served_faults(named: Sequence[str], where: str, served: Set[str] | None) -> Iterable[Fault]:
    from server.settings.sale_settings import network_named

    for name in named:
        network = network_named(name)
        if network is None:
            yield where, f'"{short_name(name)}" is no network that is known here', _known()
        elif served is not None and network.caip2 not in served:
            yield where, f'"{name}" is not accepted', "a network of payments.networks or [[payments.asset]]"


def _known() -> str:
    from server.lib.evm.payment_networks import NETWORKS

    return "its CAIP-2 id, or one of " + ", ".join(f'"{network.v1_name}"' for network in NETWORKS)


def _payee_faults(address: str, key: str) -> Iterable[Fault]:
    if address and not address[2:].strip("0"):
        yield key, "is nobody's address: what is paid there is gone", "your address"
    else:
        yield from _address_faults(address, key)


def _address_faults(address: str, key: str) -> Iterable[Fault]:
    if address:
        from server.lib.evm.evm_addresses import BadChainAddress, parse_address

        try:
            parse_address(address)
        except BadChainAddress as problem:
            yield key, str(problem), "it as your wallet shows it"


def _url_faults(url: str, key: str, *, query: bool, shown: bool = True) -> Iterable[Fault]:
    """`shown`: an address may be a secret, as those of nodes often are."""
    told = f'"{url[:80]}"' if shown else "what is written"
    try:
        parts = urlsplit(url)
        sound = (
            parts.hostname and parts.port != 0 and not (parts.username or parts.password or parts.fragment)
        )
    except ValueError:
        sound = False
        parts = urlsplit("")
    if not sound or not url.isascii() or not url.isprintable() or " " in url or (parts.query and not query):
        yield key, f"{told} is no address", 'e.g. "https://x402.org/facilitator"'
    elif parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        yield key, f"{told} would send payments over the network unencrypted", "an https address"


def _accepted(payments: PaymentsConfig) -> Mapping[str, frozenset[int]]:
    """What an atomic price may name, symbols and addresses in lower case, and how many decimals each has."""
    from server.settings.sale_settings import accepted_assets

    found: dict[str, frozenset[int]] = {}
    for each in accepted_assets(payments):
        for name in (each.asset.symbol.lower(), each.asset.address.lower()):
            found[name] = found.get(name, frozenset()) | {each.asset.decimals}
    return found


# ── who could pay ────────────────────────────────────────────────────────────────────────────────────────────────────


def unpayable(
    payments: PaymentsConfig | None,
    plans: Sequence[PlanConfig],
    servers: Sequence[ServerConfig],
    authors: Iterable[PriceValue] = (),
) -> list[str]:
    """Sentences on prices that nobody could pay, for `serve` and `doctor`. `authors`: prices that agents say themselves."""
    from server.settings.sale_settings import accepted_assets

    found: list[str] = []
    prices = [*(price for server in servers for price in _prices(server)), *authors]
    if not plans and PLAN_ONLY in prices:
        found.append('a price is "plan", and there is no [[plan]]')
    if all(price in (FREE, PLAN_ONLY) for price in prices):
        return found
    where = "prices are set"
    if payments is None:
        return [
            f"{where}, and without [payments] nobody can pay them: every call of a priced tool is refused. Write"
            f" {PAYMENTS}",
            *found,
        ]
    assets = accepted_assets(payments)
    if not assets and not payments.wallets:
        found.append(f"{where}, and [payments] names no network: every call of a priced tool is refused")
    elif not assets:
        found.append(f"{where}, and [payments] names no network: they can be paid from what you grant alone")
    for each in assets:
        if not each.pay_to:
            found.append(f"{each.asset.symbol} on {each.network.title} has no pay_to: it is not accepted")
        elif not any(_serves(one.networks, each.network.caip2) for one in payments.facilitator):
            found.append(
                f"no [[payments.facilitator]] serves {each.network.title}: payments there are refused"
            )
        found += _uneven(each.asset, prices)
    return list(dict.fromkeys(found))


def _uneven(asset: Asset, prices: Iterable[PriceValue]) -> Iterable[str]:
    """Prices that a token with few decimals cannot pay to the unit."""
    for written in dict.fromkeys(price for price in prices if isinstance(price, str)):
        if written in (FREE, PLAN_ONLY):
            continue
        try:
            to_atomic(parse(written), asset.decimals)
        except BadAmount as problem:
            yield f"the price {written} {problem} ({asset.symbol})"


def _serves(named: Sequence[str], caip2: str) -> bool:
    from server.settings.sale_settings import network_named

    return not named or any(
        (network := network_named(name)) is not None and network.caip2 == caip2 for name in named
    )


def _prices(server: ServerConfig) -> Iterable[PriceValue]:
    if server.price is not None:
        yield server.price
    for tool in server.tools.values():
        if tool.price is not None:
            yield tool.price
        yield from tool.price_for.values()
