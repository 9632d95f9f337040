"""`ostiary facilitator --test`: something to pay through while payments are tried out, with coins that are worth nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from server.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.lib.evm.payment_networks import Asset, Network
    from server.run.test_facilitator import FacilitatorSettings, StartedFacilitator

PORT: Final = 8402
NETWORK: Final = "base-sepolia"


@click.command(
    help="Run a facilitator for trying payments out. It checks signatures as real ones do, but its coins are worthless,"
    " and no real facilitator or chain is ever contacted. MODE makes it misbehave: fail, hang, lost, slow:SECONDS, 500,"
    " garbage; and for --settle 504-after-settle, pending, late:SECONDS."
)
@click.option("--test", is_flag=True, help="say that this is meant: there is no other facilitator here")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="listen here (127.0.0.1)")
@click.option(
    "--port",
    default=PORT,
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"listen on this port; 0 picks a free one ({PORT})",
)
@click.option(
    "--network",
    "networks",
    multiple=True,
    metavar="NAME",
    help=f"a test network ({NETWORK}); may be repeated",
)
@click.option("--coins", default="$1000", metavar="AMOUNT", help="what every address begins with ($1000)")
@click.option("--state", metavar="FILE", help="keep the coins in this file; else they end with the program")
@click.option("--verify", default="ok", metavar="MODE", help="how it answers /verify (ok)")
@click.option("--settle", default="ok", metavar="MODE", help="how it answers /settle (ok)")
@click.option("--times", type=int, metavar="N", help="misbehave so many times, and then no more")
@terminal.json_option
def command(
    test: bool,
    host: str,
    port: int,
    networks: tuple[str, ...],
    coins: str,
    state: str | None,
    verify: str,
    settle: str,
    times: int | None,
    as_json: bool,
) -> None:
    if not test:
        raise terminal.Misuse(
            "this facilitator is for tests alone: its coins are worthless", hint="ostiary facilitator --test"
        )
    if times is not None and verify == settle == "ok":
        raise terminal.Misuse("--times goes with --verify or --settle", hint="ostiary facilitator --help")
    from pathlib import Path

    from server.lib.log.log_lines import Lines
    from server.lib.log.structured_log import make_logger
    from server.lib.money.amounts import BadAmount, parse
    from server.payments.test_facilitator.switches import BadSwitch, parse_switch
    from server.run.test_facilitator import CannotFacilitate, FacilitatorSettings, run_facilitator

    try:
        settings = FacilitatorSettings(
            host=host,
            port=port,
            networks=[_testable(name) for name in dict.fromkeys(networks or (NETWORK,))],
            each=parse(coins),
            state=Path(state) if state else None,
            verify=parse_switch("verify", verify, times if verify != "ok" else None),
            settle=parse_switch("settle", settle, times if settle != "ok" else None),
        )
    except BadAmount as error:
        raise terminal.Misuse(f"--coins {error}") from None
    except BadSwitch as error:
        raise terminal.Misuse(str(error), hint="ostiary facilitator --help") from None
    lines = Lines(sys.stderr)
    log = make_logger(level="info", style="auto", lines=lines)
    try:
        with lines.held():
            run_facilitator(settings, log, announce=_announcing(settings, as_json=as_json))
    except CannotFacilitate as error:
        raise terminal.CliError(str(error), hint=error.hint or None) from error


def _testable(name: str) -> tuple[Network, Asset]:
    """A network that is known to be one for tests. Raises `Misuse`."""
    from server.lib.evm.payment_networks import NETWORKS, find_network, usual_asset

    tests = ", ".join(each.v1_name for each in NETWORKS if each.testnet and usual_asset(each.caip2))
    network = find_network(name)
    if network is None:
        raise terminal.Misuse(f"{name} is no network that is known to be one for tests", hint=f"take {tests}")
    asset = usual_asset(network.caip2)
    if not network.testnet or asset is None:
        raise terminal.Misuse(
            f"{network.title} is a real network, with real money: nothing here is", hint=f"take {tests}"
        )
    return network, asset


def _announcing(settings: FacilitatorSettings, *, as_json: bool) -> Callable[[StartedFacilitator], None]:
    def announce(started: StartedFacilitator) -> None:
        """The one line that programs read, or all as JSON; and for everybody what this is."""
        if as_json:
            terminal.out_json(
                {
                    "origin": started.origin,
                    "networks": [network.caip2 for network, _ in settings.networks],
                    "rpc": f"{started.origin}/rpc",
                    "state": str(settings.state) if settings.state else None,
                }
            )
        else:
            terminal.out(f"Listening on {started.origin}")
        sys.stdout.flush()
        _say_what_it_is(settings, started)

    return announce


def _say_what_it_is(settings: FacilitatorSettings, started: StartedFacilitator) -> None:
    from server.lib.money.amounts import shown
    from server.payments.test_facilitator.routes import WARNING

    _say_loudly(f"THIS IS A TEST FACILITATOR: {WARNING}")
    if not settings.on_loopback:
        _say_loudly("IT LISTENS TO THE NETWORK: anybody can spend its coins")
    if not terminal.is_terminal(sys.stderr):
        return
    pairs = [("network", _named(network, asset)) for network, asset in settings.networks]
    pairs += [
        ("test coins", f"every address has {shown(settings.each)} until it spends them"),
        ("kept", str(settings.state) if settings.state else "nowhere: they end with this program"),
        *(("chain look-ups", f"{started.origin}/rpc/{network.chain_id}") for network, _ in settings.networks),
    ]
    pairs += [
        (step, switch.written if switch.times is None else f"{switch.written} ({_times(switch.times)})")
        for step, switch in (("verify", settings.verify), ("settle", settings.settle))
        if switch.written != "ok"
    ]
    terminal.say()
    for line in terminal.record(pairs, sys.stderr):
        terminal.say(f"  {line}")
    terminal.say()
    terminal.say(terminal.paint("  try next, in another terminal:", "dim", sys.stderr))
    terminal.say(f"    curl {started.origin}/test/ledger")
    terminal.say(f'    curl {started.origin}/test/switch -d \'{{"settle": "lost", "times": 1}}\'')
    terminal.say()


def _say_loudly(text: str) -> None:
    for line in terminal.wrapped(text, sys.stderr):
        terminal.say(terminal.paint(line, "yellow", sys.stderr))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _named(network: Network, asset: Asset) -> str:
    return f"{network.title} ({network.caip2}), {asset.symbol} {asset.address}"
