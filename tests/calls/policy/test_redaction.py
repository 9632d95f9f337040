"""What is blotted out, what stays, and that texts which are made to take long hold up nobody."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from server.agents.base.backend import ProtocolFailure
from server.calls.policy import patterns
from server.calls.policy.patterns import MOST_STEPS, BadPattern, read_pattern
from server.calls.policy.redaction import WINDOW, RedactingOutlet, Redactor, Unredactable
from server.calls.policy.redaction_sets import SETS, card_lengths
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import (
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.settings.rule_settings import RedactConfig

ALL = RedactConfig(sets=("emails", "cards", "secrets"))
MAIL, CARD, SECRET = "[email redacted]", "[card number redacted]", "[secret redacted]"
KEY = "sk-" + "a1B2" * 8
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
CARD_16 = "4111111111111111"
CARD_OF_19 = "6304000000000000018"


def redactor(*patterns: str, sets: Any = ()) -> Redactor:
    return Redactor([RedactConfig(sets=sets, patterns=patterns)])


# ── which patterns are taken ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "is no regular expression"),
        ("a+", "without an upper bound"),
        ("(?:x{1,3}){2,}", "without an upper bound"),
        (r"(a)\1", "refers back"),
        (r"(a)?(?(1)b|c)", "refers back"),
        ("(?:a{1,30}){1,30}", "may take more than 500 steps"),
        ("a{1,99}b{1,99}c", "may take more than 500 steps"),
        ("(?:a|b|ab){1,40}", "may take more than 500 steps"),
        ("(?:(?:a{0,9}){0,9}){0,9}", "may take more than 500 steps"),
        ("(?:){0,9999999}", "may take more than 500 steps"),
        ("a{0,9}", "also matches nothing at all"),
        ("x" * 10 + "{99999}", "may take more than"),
    ],
)  # fmt: skip
def test_a_pattern_that_may_take_long_is_not_taken(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern, match=why):
        read_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"EMP-[0-9]{4,8}", "of EMP-12345.", "of [redacted]."),
        (r"(?i)\bsecret\b: \S{1,64}", "Secret: x1 y", "[redacted] y"),
        (r"(?:[a-z]{1,20}+\.){1,4}+internal", "at db.eu.internal", "at [redacted]"),
        (r"(?<=pin )\d{4}(?!\d)", "pin 1234 and pin 12345", "pin [redacted] and pin 12345"),
        (r"a{1,64}+b", "aaab", "[redacted]"),
    ],
)
async def test_a_pattern_that_is_taken_is_blotted_out(pattern: str, text: str, expected: str) -> None:
    assert await redactor(pattern).text(text) == expected


# Twenty pieces, and several times what the widest pattern reaches: what holds for these holds for a hundred.
LONG = 20 * WINDOW
HOSTILE = [
    unit * (LONG // len(unit))
    for unit in (
        "a",
        "1 ",
        "a@",
        "a.",
        "a@a.",
        "eyJ",
        "eyJaaaaaaaa.",
        "sk-",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "bearer ",
        "4111 1111 1111 111",
        "4111\u00a0",
        "4\n",
        "4. -",
        "://",
        "://a:",
        "basic ",
        "secret_access_key=",
        "hooks.slack.com/",
        "\u202e\U0001f600é",
    )
]


class Looking:
    """Stands in for a compiled pattern: how much of a text was looked through since somebody else had a turn."""

    def __init__(self, compiled: re.Pattern[str], looks: list[int]) -> None:
        self._compiled = compiled
        self._looks = looks

    def finditer(self, text: str, start: int, end: int) -> Iterator[re.Match[str]]:
        self._looks[-1] += end - start
        return self._compiled.finditer(text, start, end)

    def sub(self, put: Callable[[re.Match[str]], str], text: str) -> str:
        self._looks[-1] += len(text)
        return self._compiled.sub(put, text)


async def breathe(looks: list[int], done: trio.Event) -> None:
    while not done.is_set():
        looks.append(0)
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
async def test_texts_that_are_made_to_take_long_hold_up_nobody(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that runs away takes hours: then pytest says in which of them."""
    found = redactor(r"(?:[a-z]{1,15}){2}x", r"\d{1,50}-\d{1,4}x", sets=ALL.sets)
    looks, done = [0], trio.Event()
    looking: Any = [
        replace(blot, pattern=replace(blot.pattern, compiled=Looking(blot.pattern.compiled, looks)))
        for blot in found._blots
    ]
    monkeypatch.setattr(found, "_blots", looking)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(breathe, looks, done)
        await found.text(text)
        done.set()
    reach = max(blot.pattern.reach for blot in looking)
    assert max(looks) <= 2 * (WINDOW + reach)  # the order in which tasks have their turns is anybody's
    assert sum(looks) >= len(text) >= LONG - 30 > 4 * reach


NUMBERS = [
    "4 1\n",
    "4 5 ",
    "4 1 ",
    "1 ",
    "12 ",
    "1      ",
    "4111.1111.1111.1111.",
    "4\n",
    "4111 1111 1111 1112 ",
    "４ ５ ",
]


@pytest.mark.parametrize("text", NUMBERS, ids=repr)
async def test_numbers_that_follow_each_other_are_read_in_steps_that_grow_with_the_text_alone(
    text: str,
) -> None:
    """A step is a line of this program that runs."""

    def traced(frame: Any, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += event == "line" and frame.f_code.co_filename.endswith(("sets.py", "redaction.py"))
        return traced

    found, steps, counted = redactor(sets=ALL.sets), 0, list[int]()
    before = sys.gettrace()
    for size in (WINDOW, 4 * WINDOW):
        sys.settrace(traced)
        try:
            await found.text((text * size)[:size])
        finally:
            sys.settrace(before)
        counted.append(steps)
        steps = 0
    few, many = counted
    assert few <= 50 * WINDOW and many <= 4 * few + 1_000


def test_what_the_sets_know_is_looked_at_twice_at_most_from_wherever_it_might_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for the one of private keys, whose two ways begin with different characters: that cannot be told from its parts."""
    monkeypatch.setattr(patterns, "LONGEST", 40_000)
    for blot in (blot for blots in SETS.values() for blot in blots):
        if "PRIVATE KEY" not in blot.pattern.compiled.pattern:
            monkeypatch.setattr(patterns, "MOST_STEPS", 2 * blot.pattern.reach)
            read_pattern(blot.pattern.compiled.pattern)


def test_of_each_pattern_of_the_sets_it_is_known_how_far_it_may_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LONGEST", 40_000)
    monkeypatch.setattr(patterns, "MOST_STEPS", 80_000)
    for blot in (blot for blots in SETS.values() for blot in blots):
        text = blot.pattern.compiled.pattern
        # Of one its two ways count as if they came behind each other.
        reach = read_pattern(text).reach if "PRIVATE KEY" not in text else 16_000 + 137
        assert blot.pattern.reach == reach, text


# ── the sets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to ann.b+c@mail.example.org, please", f"Write to {MAIL}, please"),
        ("<ann@exämple.de>", f"<{MAIL}>"),
        ("not@mail, @nobody, a@b", None),
        ("4111111111111111", CARD),
        ("card 4111 1111 1111 1111 2025", f"card {CARD} 2025"),
        ("378282246310005 and 5555-5555-5555-4444", f"{CARD} and {CARD}"),
        *((f"card {mark.join(('4111', '1111', '1111', '1111'))} 2025", f"card {CARD} 2025")
          for mark in ("\u00a0", ".", "\u2013", "  ", "\t", " - ", "\u202f", "\u2011", "\u200b")),
        ("card 4111 1111\n1111 1111", f"card {CARD}"),
        ("card 4111 1111 1111\r\n  1111.", f"card {CARD}."),
        ("3782\u00a0822463\u00a010005", CARD),
        ("".join(chr(0xFF10 + int(digit)) for digit in "4111111111111111"), CARD),
        ("\uff14111 1111 1111 1111", CARD),
        (CARD_OF_19, CARD),
        (f"{CARD_OF_19[:4]} {CARD_OF_19[4:8]} {CARD_OF_19[8:12]} {CARD_OF_19[12:16]} {CARD_OF_19[16:]}", CARD),
        (f"1{CARD_OF_19}", None),
        ("2223003122003222 and 2019202020212022", f"{CARD} and 2019202020212022"),
        ("4111111111111112 is mistyped", None),
        ("0000000000000000", None),
        ("4111 1111 1111 00000091 x", None),  # 19 digits would be a card
        ("call 12345678901234567890123", None),
        (f"the key is {KEY}!", f"the key is {SECRET}!"),
        ("disk-encryption-is-configured-here", None),
        ("ghp_" + "a" * 36, SECRET),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", f"Authorization: {SECRET}"),
        ("{'authorization': 'basic dXNlcjpwYXNzd29yZA'}", f"{{'authorization': '{SECRET}'}}"),
        ("Basic information, basic authentication, basic 12345678", None),
        ("Basic bm8gcGFzc3dvcmQgaGVyZQ==", None),  # no password here
        ("Basic dXNlcjoBAgMEBQY=", None),  # user:\x01…\x06
        ("postgres://app:s3cr3t!@db.internal:5432/shop", f"postgres://{SECRET}@db.internal:5432/shop"),
        ("redis://:p%40ss@cache and amqp://u:p@ss@mq/", f"redis://{SECRET}@cache and amqp://{SECRET}@mq/"),
        ("postgres://app:s3/cr3t@db:5432/shop", f"postgres://{SECRET}@db:5432/shop"),
        ("redis://:a?b#c/d@e@cache/0 x@y", f"redis://{SECRET}@cache/0 x@y"),
        ("https://u:pw@host/@ann, mysql://u:123/45x@db", f"https://{SECRET}@host/@ann, mysql://u:123/45x@db"),
        ("https://example.org:8080/@ann?x=a:b@c http://localhost:3000 ssh://git@host/x", None),
        ("http://[::1]:8080/@ann http://[::1]/a:b@c git://example.org/a:b@c", None),
        (f"aws_secret_access_key = {AWS}", f"aws_{SECRET}"),
        (f'"SecretAccessKey": "{AWS}"', f'"{SECRET}"'),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", None),  # a SHA-1
        ("https://hooks.slack.com/services/T0000/B0000/XXXXXXXXXXXX", f"https://{SECRET}"),
        ("AKIAIOSFODNN7EXAMPLE", SECRET),
        ("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl", SECRET),
        ("Authorization: Bearer abcdefgh12345678", f"Authorization: {SECRET}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nMIIE+/=\n-----END RSA PRIVATE KEY-----\nx", f"{SECRET}\nx"),
    ],
)  # fmt: skip
async def test_what_the_sets_know(text: str, expected: str | None) -> None:
    assert await Redactor([ALL]).text(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-27 18:34:45, 2026-11-28 07:00:00",
        "2026-11-27\n2026-11-28\n2026-11-29\n",
        "20260405060708 20261127183445123",
        "+49 30 901820 and (0)171.555.2368 and 1-800-555-0199",
        "550e8400-e29b-41d4-a716-446655440000",
        "1764268485123",
        "4111.5 1111.25 1111.75 1111.0",
        "4111\n1111\n1111\n1111\n",  # a column
        "4 111 111 111 111 111".replace(" ", "\u202f"),
        "192.168.100.200\n10.20.30.40 2.16.840.1.113883.3.4",
        "4111,1111,1111,1111",
        "378282246310006 4222222222223 5105105105105101",  # mistyped
    ],
)
async def test_ordinary_numbers_stay(text: str) -> None:
    assert await Redactor([ALL]).text(text) == text


def is_card(digits: str) -> bool:
    return len(digits) in card_lengths(digits)


@pytest.mark.parametrize("groups", ["4443", "4444", "44441", "44442", "44443", "465", "464", "445", "4333"])
async def test_a_card_is_found_in_the_groups_that_are_printed_on_cards(groups: str) -> None:
    lengths = [int(each) for each in groups]
    digits = iter(next(filter(is_card, _numbers("4", sum(lengths)))))
    text = ".".join("".join(islice(digits, length)) for length in lengths)
    assert await Redactor([ALL]).text(text) == (text if groups == "4443" else CARD)


async def test_a_card_is_found_behind_any_number_of_other_numbers() -> None:
    for mark in (" ", "\n", "\u00a0"):
        text = mark.join(["17"] * 700)
        found = await Redactor([ALL]).text(f"{text}{mark}4111 1111 1111 1111")
        assert found == f"{text}{mark}{CARD}"


async def test_every_card_is_found_that_a_pattern_for_one_alone_would_find() -> None:
    """Whatever stands around it, and in whatever groups a blank or a dash makes."""
    for cut in range(1, 16):
        for mark in " -":
            card = f"{CARD_16[:cut]}{mark}{CARD_16[cut:]}"
            assert await Redactor([ALL]).text(f"x{card}y") == f"x{CARD}y"


def _numbers(beginning: str, length: int) -> Iterator[str]:
    """Yield those of which one has a right check digit."""
    return (f"{beginning:0<{length - 1}}{end}" for end in range(10))


@pytest.mark.parametrize("beginning", ["2131", "2200", "2204", "2221", "2720", "3", "4", "5", "6"])
def test_a_card_begins_with_what_cards_begin_with(beginning: str) -> None:
    assert any(map(is_card, _numbers(beginning, 16)))


@pytest.mark.parametrize(
    "beginning", ["0", "1", "2", "2130", "2132", "2199", "2205", "2220", "2721", "7", "8", "9"]
)
def test_no_card_begins_with_anything_else(beginning: str) -> None:
    assert not any(map(is_card, _numbers(beginning, 16)))


def test_a_card_has_a_right_check_digit() -> None:
    assert is_card("4111111111111111") and is_card("6011111111111117")
    assert not is_card("4111111111111110") and not is_card("41111") and not is_card("1" * 16)
    assert not is_card("6" * 13) and not is_card("4" * 17), "all of one digit"


async def test_what_begins_in_one_piece_and_ends_in_the_next_is_found() -> None:
    for at in range(WINDOW - len(KEY) - 2, WINDOW + 2):
        text = "." * at + KEY + "." * WINDOW + " ann@example.org"
        assert await Redactor([ALL]).text(text) == "." * at + SECRET + "." * WINDOW + f" {MAIL}"


async def test_a_token_that_is_longer_than_a_piece_is_blotted_out_to_its_end() -> None:
    token = ".".join(("eyJ" + "a" * 4000, "b" * 16_000, "c" * 16_000))
    text = " " * (WINDOW - 1) + token
    assert await Redactor([ALL]).text(text) == " " * (WINDOW - 1) + SECRET


# ── where it is looked for ───────────────────────────────────────────────────────────────────────────────────────────


async def test_members_that_are_not_known_here_are_looked_through() -> None:
    inner = ResourceContents(uri="u:", text="x", further={"by": "ann@example.org"})
    answer = ToolResult(
        content=(TextContent(text="x", further={"vendor": [KEY]}), EmbeddedResource(resource=inner)),
        further={"from": "ann@example.org"},
    )
    found = await Redactor([ALL]).result(answer)
    blocks: list[Any] = list(found.content)
    assert (blocks[0].further, blocks[1].resource.further) == ({"vendor": [SECRET]}, {"by": MAIL})
    assert found.further == {"from": MAIL}


async def test_every_part_of_an_answer_is_looked_through_and_stays_json() -> None:
    answer = ToolResult(
        content=(
            TextContent(text="ann@example.org"),
            TextContent(text='{"mail":"ann\\u0040example.org","n":[1,2.5,null,true]}', meta={"m": KEY}),
            EmbeddedResource(resource=ResourceContents(uri="u:ann@example.org", text="x ann@example.org")),
            EmbeddedResource(resource=ResourceContents(uri="u:", blob="YW5uQGV4YW1wbGUub3Jn")),
            ResourceLink(uri="u:", name="ann@example.org", title=KEY),
            ImageContent(data="AAAA", mime_type="image/png"),
        ),
        structured={
            "a": [{"b": "ann@example.org"}],
            "aws": {"SecretAccessKey": AWS, "Sha": AWS.lower()},
            "ann@example.org": 4111111111111111,
            "bob@example.org": 7,
        },
        meta={"k": KEY},
    )
    found = await Redactor([ALL]).result(answer)
    texts = [getattr(block, "text", None) for block in found.content]
    assert texts[:2] == [MAIL, f'{{"mail":"{MAIL}","n":[1,2.5,null,true]}}']
    blocks: list[Any] = list(found.content)
    assert blocks[1].meta == {"m": SECRET}
    assert (blocks[2].resource.uri, blocks[2].resource.text) == ("u:ann@example.org", f"x {MAIL}")
    assert blocks[3].resource.blob == "YW5uQGV4YW1wbGUub3Jn"
    assert (blocks[4].name, blocks[4].title) == (MAIL, SECRET)
    assert found.structured == {
        "a": [{"b": MAIL}], "aws": {"SecretAccessKey": SECRET, "Sha": AWS.lower()}, MAIL: CARD, f"{MAIL} 2": 7,
    }  # fmt: skip
    assert found.meta == {"k": SECRET}
    same = ToolResult(content=(TextContent(text="{broken"),), structured={"n": 10**400, "f": 1e300})
    assert (await Redactor([ALL]).result(same)).structured == same.structured


async def test_a_number_is_looked_through_as_people_write_it_if_it_is_long() -> None:
    given = ToolResult(
        content=(), structured={"n": [4111111111111111.0, 4111111111111112.0, 4.3e18, 2.5, 5e-300]}
    )
    found = await Redactor([ALL]).result(given)
    assert found.structured == {"n": [CARD, 4111111111111112.0, CARD, 2.5, 5e-300]}
    nines = Redactor([RedactConfig(patterns=("9{1,20}",))])
    given = ToolResult(
        content=(), structured={"n": [99999999999, 999999999999, -999999999999.0, 99999999999.0]}
    )
    found = await nines.result(given)
    assert found.structured == {"n": [99999999999, "[redacted]", "-[redacted]", 99999999999.0]}


@pytest.mark.parametrize("before", [" ", "\n\t ", "\ufeff"])
@pytest.mark.parametrize(
    "written", ['{"m":"ann\\u0040example.org"}', '["ann\\u0040example.org"]', '"ann\\u0040example.org"']
)
async def test_blanks_before_json_hide_nothing(before: str, written: str) -> None:
    answer = ToolResult(content=(TextContent(text=before + written),))
    (block,) = (await Redactor([ALL]).result(answer)).content
    assert isinstance(block, TextContent) and MAIL in block.text and "example" not in block.text
    same = ToolResult(content=(TextContent(text=before + '{"n" : 1}'),))
    assert tuple((await Redactor([ALL]).result(same)).content) == same.content


async def test_what_is_nested_too_deeply_is_not_shown_at_all() -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(Unredactable):
        await Redactor([ALL]).value(value)


async def test_prompts_completions_and_errors_are_looked_through() -> None:
    found = Redactor([ALL])
    prompt = PromptResult(
        messages=[PromptMessage(role="user", content=TextContent(text=KEY))], description="ann@example.org"
    )
    clear = await found.library(prompt)
    assert (clear.messages[0].content.text, clear.description) == (SECRET, MAIL)
    assert (await found.library(CompletionResult(values=("ann@example.org",)))).values == [MAIL]
    error = BackendError(f"cannot log in with {KEY}")
    await found.error(error)
    assert str(error) == f"cannot log in with {SECRET}"
    own = ProtocolFailure("no", 7, {"who": "ann@example.org"})
    await found.error(own)
    assert own.data == {"who": MAIL}


class Heard:
    def __init__(self) -> None:
        self.said: list[Any] = []

    async def emit(self, event: Any) -> None:
        self.said.append(event)

    async def ask(self, questions: Any) -> Any:
        self.said.append(questions)
        return {}

    async def checkpoint(self, data: Any) -> None:
        self.said.append(data)

    async def become_task(self) -> bool:
        return True

    async def close_stream(self) -> None:
        self.said.append("closed")


async def test_what_is_said_on_the_way_is_looked_through() -> None:
    heard = Heard()
    outlet = RedactingOutlet(heard, Redactor([ALL]))
    whole = Progress(progress=1, message="to ann@example.org")
    await outlet.emit(whole)
    await outlet.emit(replace(whole, message="ann@exa", joins=True))  # and the rest comes next
    await outlet.emit(LogMessage(level="info", data={"key": KEY}))
    planned = replace(whole, name="planning", data={"plan": "mail ann@example.org"})
    await outlet.emit(planned)
    await outlet.emit(replace(planned, joins=True))
    told = [(each.message, each.name, each.data) for each in heard.said[3:]]
    assert told == [(f"to {MAIL}", "planning", {"plan": f"mail {MAIL}"}), (None, None, None)]
    del heard.said[3:]
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    params = {"message": "mail ann@example.org?", "requestedSchema": schema}
    await outlet.ask({"q": Question(method="elicitation/create", params=params)})
    assert [event.message for event in heard.said[:2]] == [f"to {MAIL}", None]
    assert heard.said[2].data == {"key": SECRET}
    asked = heard.said[3]["q"].params
    assert (asked["message"], asked["requestedSchema"]) == (f"mail {MAIL}?", schema)
    assert await outlet.become_task()


def test_the_bound_of_a_pattern_is_what_the_document_says() -> None:
    assert MOST_STEPS == 500
