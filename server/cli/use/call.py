"""`ostiary call URL TOOL …`: call a tool. Its text goes to stdout as it is, its progress to stderr, its questions to the
person at the terminal (asking.py)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from server.cli import spans, terminal
from server.cli.terminal import Misuse, StatusLine, clean, json_option, say
from server.cli.use import paying

if TYPE_CHECKING:
    from server.client.server_questions import Mode

# The server's own limit for a request body; more would only be refused after the upload.
MAX_ARGUMENTS = 2 * 1024 * 1024
BAR_CELLS = 20
# Of what a server says about its price.
MAX_SAID = 500
# A tool may think for a long time; its server's own deadline is nearly always shorter.
CALL_SECONDS = 300.0


@click.command("call")
@click.argument("words", nargs=-1, required=True, metavar="[URL] TOOL [ARGUMENTS]…")
@click.option(
    "--timeout",
    type=spans.Seconds(shortest=0.1, longest=86_400),
    default=CALL_SECONDS,
    metavar="TIME",
    help=f"how long to wait for the result, like 90 (seconds) or 5m; {CALL_SECONDS:g} unless told",
)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="FIELD=VALUE",
    help="answer a question of the tool, also as KEY.FIELD=VALUE; repeatable",
)
@paying.pay_option
@json_option
def command(
    words: tuple[str, ...],
    timeout: float,
    answers: tuple[str, ...],
    pay: bool,
    as_json: bool,
) -> int:
    """Call TOOL of the MCP server at URL; without a URL, of the one that you are logged in to, or were last.

    \b
    ostiary call [URL] TOOL key=value other='[1, 2]'   each read by its schema
    ostiary call [URL] TOOL '{"key": "value"}'         all arguments as JSON
    ostiary call [URL] TOOL @file.json                 … from a file
    ostiary call [URL] TOOL -                          … from stdin

    A tool may ask back. On a terminal, its questions are put to you; in a script, or with --json, only --answer answers.

    A tool may have a price. With --pay it is paid by the wallet (ostiary wallet), which asks you where it was told to; in a
    script, or with --json, it pays what it may without asking. A call whose answer was lost is made again with the same payment.

    With --json the whole result is printed as JSON. Exit code 1 when the tool failed.
    """
    from server.cli.spinner import Spinner
    from server.cli.use import target, which_server
    from server.cli.use.asking import GivenAnswers, QuestionScreen
    from server.cli.use.tools import pick
    from server.client.client_errors import NotLoggedIn
    from server.client.typed_arguments import UnusableArguments, from_words

    given = GivenAnswers(answers)
    typed, (tool, *left) = which_server.split(words, least=1)
    arguments = tuple(left)
    address = which_server.of(typed, tcp=True)
    whole = whole_arguments(arguments)
    status = StatusLine()
    by_hand = not as_json and terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)
    answerer = (
        QuestionScreen(address.url, given, by_hand=by_hand, status=status) if by_hand or answers else None
    )

    payer = paying.make_payer(status=status if by_hand else None) if pay else None

    def progress(done: float, total: float | None, message: str) -> None:
        status.show(_progress(done, total, message))

    async def called() -> dict[str, Any]:
        modes: frozenset[Mode] = frozenset() if answerer is None else answerer.modes
        async with target.connected(address.url, pays=pay, modes=modes) as mcp:
            chosen = pick(await mcp.tools(), tool, address.url, typed=typed, nameless=mcp.nameless)
            try:
                filled = from_words(chosen, arguments) if whole is None else whole
            except UnusableArguments as error:
                raise Misuse(str(error), hint=error.hint) from None
            paid = None
            if payer is not None:
                paid = payer.call(address.url, f"the tool `{chosen['name']}`", [chosen["name"], filled])
            return await mcp.call(
                chosen, filled, progress=progress, seconds=timeout, answerer=answerer, paid=paid
            )

    async def main() -> dict[str, Any]:
        return await Spinner(status, clean(tool)).during(called)

    try:
        with paying.said_why() if pay else nullcontext():
            result = terminal.run_async(main)
    except NotLoggedIn as error:
        if not pay and terminal.run_async(lambda: target.sells_to_all(address.url)):
            raise NotLoggedIn(str(error), hint=f"{error.hint}, or pay for each call: --pay") from None
        raise
    finally:
        status.clear()
    for path in given.unused:
        say(f"--answer {clean(path)} was not asked for")
    failed = result.get("isError") is True
    if as_json:
        terminal.out_json(result)
    else:
        _show(result, tool, failed=failed)
        if (cost := _cost(result, told=payer is not None)) is not None:
            say(clean(cost))
    return terminal.EXIT_FAILED if failed else 0


def _progress(done: float, total: float | None, message: str) -> str:
    """Draw a bar where the end is known; else return what is known."""
    if not total or not 0 <= done <= total:
        return message or f"{done:g}"
    filled = int(done / total * BAR_CELLS)
    line, rest = ("━", "─") if terminal.can_draw(sys.stderr) else ("#", ".")
    return f"{line * filled}{rest * (BAR_CELLS - filled)} {done / total:4.0%}  {message}"


def whole_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """Return all arguments, if they were given at once: `{…}`, `@file`, `-`."""
    if len(words) != 1 or not (words[0] == "-" or words[0][:1] in ("{", "@")):
        if any(word == "-" or word[:1] in ("{", "@") for word in words):
            raise Misuse(
                "arguments are either key=value words or one JSON object", hint="ostiary call --help"
            )
        return None
    word = words[0]
    if word == "-":
        data = sys.stdin.buffer.read(MAX_ARGUMENTS + 1)
    elif word.startswith("@"):
        try:
            with Path(word[1:]).open("rb") as file:
                data = file.read(MAX_ARGUMENTS + 1)
        except OSError as error:
            raise Misuse(f"cannot read {word[1:]}: {(error.strerror or 'unknown error').lower()}") from None
    else:
        data = word.encode("utf-8", "surrogateescape")
    if len(data) > MAX_ARGUMENTS:
        raise Misuse(f"the arguments are larger than {MAX_ARGUMENTS // 1024 // 1024} MiB")
    from server.lib.json_objects import decode_object

    found = decode_object(data)
    if found is None:
        raise Misuse("the arguments are not one JSON object", hint="""such as '{"text": "hello"}'""")
    return found


def _cost(result: Mapping[str, Any], *, told: bool) -> str | None:
    """Return what the receipt says that came with the answer, as far as it can be read; None without one. Nothing in the receipt is checked.
    `told`: whoever pays has said so of payments."""
    meta = result.get("_meta")
    written = cast("Mapping[str, Any]", meta).get("io.ostiary/receipt") if isinstance(meta, dict) else None
    if not isinstance(written, str):
        return None
    from server.client.token_claims import read_payload
    from server.lib.money.amounts import shown

    claims = read_payload(written)
    amount, how = claims.get("amount"), claims.get("how")
    if not (isinstance(amount, str) and amount.isascii() and amount.isdigit() and len(amount) < 20):
        return None
    if how in ("trial", "quota", "pass"):
        return {
            "trial": "it cost nothing: one of the first calls, which are free",
            "quota": "it cost nothing: one of the month's free calls",
            "pass": "it cost nothing: your plan covers it",
        }[how]
    settled = claims.get("settlement")
    price = shown(int(amount), str(claims.get("currency", "USD"))[:8])
    if cast("Mapping[str, Any]", meta).get("io.ostiary/replayed") is True:
        return f"it was paid for before ({price}), and not again"
    cost = f"it cost {price}"
    if not isinstance(settled, dict):
        return f"{cost}, from your balance"
    if told:
        return None
    transaction = cast("Mapping[str, Any]", settled).get("transaction")
    return cost + (
        f", transaction {transaction[:80]}" if isinstance(transaction, str) and transaction else ""
    )


def _show(result: Mapping[str, Any], tool: str, *, failed: bool) -> None:
    content = result.get("content")
    blocks = [
        cast("Mapping[str, Any]", block)
        for block in (cast("list[Any]", content) if isinstance(content, list) else [])
        if isinstance(block, dict)
    ]
    if failed:
        from server.payments.x402.in_band import find_challenge

        if (challenge := find_challenge(result)) is not None:
            terminal.error(
                _price(result, challenge, tool), hint="call it with --pay; ostiary wallet new makes a wallet"
            )
            return
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        terminal.error(text.strip() or f"{tool} failed and does not say why")
        return
    shown = False
    for block in blocks:
        text = _text_of(block)
        if text is None:
            size = len(str(block.get("data", ""))) * 3 // 4
            kind = clean(str(block.get("mimeType", block.get("type", "unknown"))))
            say(f"({kind}, {max(1, size // 1024)} KiB, not shown; --json prints it)")
        else:
            _print(text)
        shown = True
    if not shown and "structuredContent" in result:
        terminal.out_json(result["structuredContent"])


def _price(result: Mapping[str, Any], challenge: Mapping[str, Any], tool: str) -> str:
    """Return the price in a word, as our own servers say it; else what others say, which is for programs, and better than nothing."""
    facts: Any = result.get("_meta")
    for key in ("io.ostiary/payment", "price"):
        facts = cast("Mapping[str, Any]", facts).get(key) if isinstance(facts, Mapping) else None
    if isinstance(facts, str):
        return f"{tool} costs {facts} a call"
    said = str(challenge.get("error", ""))[:MAX_SAID].strip()
    return f"{tool} costs money" + (f": {said}" if said else "")


def _text_of(block: Mapping[str, Any]) -> str | None:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return str(block.get("uri", ""))
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        text = cast("Mapping[str, Any]", resource).get("text")
        return text if isinstance(text, str) else None
    return None


def _print(text: str) -> None:
    # Into a pipe the bytes are the tool's own; a terminal is not handed escape sequences from elsewhere.
    if terminal.is_terminal(sys.stdout):
        text = clean(text, keep_lines=True)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
