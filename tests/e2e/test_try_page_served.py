"""`/try` of a whole server, with a browser that has no script: who may, what a form comes to, questions, proofs, files and quotes."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from person import NAME, PASSPHRASE, Person
from programs import SOURCE, Program, Server, until

from tests.sealing import write_to_file

pytestmark = pytest.mark.slow

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
READS = {"readOnlyHint": True}
EVIL = "</pre><script>alert(1)</script>"
ASK = {
    "ask": {"id": "who", "prompt": f"Who {EVIL} are you?", "schema": {"name": "string", "unit": ["C", "F"]}}
}
TOOLS = {
    "name": "house",
    "tools": [
        {
            "name": "look",
            "description": f"Looks {EVIL} around.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "where": {"type": "string", "maxLength": 40, "description": f"A room {EVIL}"},
                    "times": {"type": "integer", "minimum": 1, "maximum": 3},
                    "loud": {"type": "boolean"},
                    "how": {"enum": ["fast", "slow"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "at": {"type": "object", "properties": {"floor": {"type": "integer"}}},
                },
                "required": ["where"],
                "additionalProperties": False,
            },
            "annotations": READS,
            "scenarios": [
                {"when": {"where": "cellar"}, "error": f"it is {EVIL} flooded"},
                {
                    "when": {"where": "gallery"},
                    "result": {
                        "content": [
                            {"type": "text", "text": EVIL},
                            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                            {"type": "image", "data": PIXEL, "mimeType": 'image/svg+xml" onload="alert(1)'},
                            {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
                        ],
                        "structuredContent": {"evil": EVIL},
                    },
                },
                {
                    "when": {
                        "where": "attic",
                        "times": 2,
                        "how": "slow",
                        "tags": {"equals": ["x", "y"]},
                        "at": {"equals": {"floor": 3}},
                    },
                    "respond": "looked twice",
                },
                {"when": {"where": "roof"}, "respond": "looked at the roof"},
                {"respond": "looked around"},
            ],
        },
        {
            "name": "wonder",
            "annotations": READS,
            "inputSchema": {"type": "object", "properties": {"about": {"type": "string", "maxLength": 40}}},
            "scenarios": [
                {
                    "when": {"about": "rain"},
                    "steps": [ASK],
                    "then": [
                        {"when": {"answers.who.action": "decline"}, "respond": "never mind"},
                        {
                            "when": {"answers.who.content.name": "Ada", "answers.who.content.unit": "F"},
                            "respond": "Ada wonders about rain",
                        },
                    ],
                    "respond": "somebody wonders",
                },
                {"steps": [ASK], "respond": "somebody wonders"},
            ],
        },
        {"name": "change", "inputSchema": {"type": "object"}, "scenarios": [{"respond": "it is changed"}]},
        {
            "name": "cancel_order",
            "inputSchema": {
                "type": "object",
                "properties": {"order": {"type": "string"}, "why": {"type": "string", "default": "late"}},
                "required": ["order"],
            },
            "annotations": {"destructiveHint": True},
            "scenarios": [{"respond": "it is cancelled"}],
        },
        {"name": "pay", "inputSchema": {"type": "object"}, "scenarios": [{"respond": "paid"}]},
    ],
}
SETTINGS = """
{top}
[[server]]
name = "house"
title = "The house"
financial = true
[server.tools.look]
example = {{ where = "attic" }}
{price}
[server.tools.pay]
tier = "financial"
[[server.agent]]
kind = "mock"
file = "house.json"

[[server]]
name = "shed"
{shed}
[[server.agent]]
kind = "demo"
"""


PAYMENTS = """
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base-sepolia"]
[[payments.facilitator]]
url = "https://facilitator.example"
"""


def write(home: Path, top: str = "", shed: str = "", price: str = "") -> str:
    (home / "house.json").write_text(json.dumps(TOOLS))
    settings = home / "ostiary.toml"
    settings.write_text(SETTINGS.format(top=top, shed=shed, price=price))
    return str(settings)


@pytest.fixture(scope="module")
def shared(shared_home: Path) -> Program:
    """The program whose server is for all tests that need no settings of their own."""
    return Program(command=SOURCE, home=shared_home)


@pytest.fixture(scope="module")
def served(shared: Program) -> Iterator[Server]:
    with shared.serving("--config", write(shared.home)) as server, closing(Person()) as claimant:
        claimant.claim(shared, server)
        yield server


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("open")
    config = write(home, 'auth = "none"', "page_size = 2")
    with Program(command=SOURCE, home=home).serving("--config", config) as server:
        yield server


@pytest.fixture
def people() -> Iterator[Callable[[], Person]]:
    """Make people, each with a browser of their own."""
    found: list[Person] = []

    def another() -> Person:
        found.append(Person())
        return found[-1]

    yield another
    for person in found:
        person.close()


@pytest.fixture
def owner(served: Server, people: Callable[[], Person]) -> Person:
    """The owner, who has just signed in, in a browser that no other test has."""
    person = people()
    signin = person.browser.get(f"{served.url}/signin")
    person.press(signin, "Sign in", {"name": NAME, "passphrase": PASSPHRASE})
    return person


class TryForm:
    """The form of a tool as a page shows it, to be filled in by hand: text areas and choices, too."""

    def __init__(self, person: Person, page: httpx2.Response) -> None:
        self.person = person
        self.page = page
        (body,) = re.findall(
            r'<form method="post" action="(/\w+/try/[^"]+)">(.*?)</form>', page.text, re.DOTALL
        )
        self.action, markup = body
        self.fields = {
            html.unescape(name): html.unescape(value)
            for name, value in re.findall(r'<input[^>]* name="([^"]*)"[^>]* value="([^"]*)"', markup)
        }
        for name, value in re.findall(
            r'<textarea[^>]* name="([^"]*)"[^>]*>\n(.*?)</textarea>', markup, re.DOTALL
        ):
            self.fields[html.unescape(name)] = html.unescape(value)
        for name, options in re.findall(
            r'<select[^>]* name="([^"]*)"[^>]*>(.*?)</select>', markup, re.DOTALL
        ):
            chosen = re.findall(r'<option value="([^"]*)" selected>', options) or re.findall(
                r'value="([^"]*)"', options
            )
            self.fields[html.unescape(name)] = html.unescape(chosen[0])

    def send(self, more: Mapping[str, str] | None = None, **headers: str) -> httpx2.Response:
        target = self.page.url.join(self.action)
        own = f"{target.scheme}://{target.netloc.decode()}"
        return self.person.browser.post(
            target,
            content=urlencode({**self.fields, **(more or {})}).encode(),
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": own,
                "Sec-Fetch-Site": "same-origin",
                **headers,
            },
        )

    def confirmed(self, more: Mapping[str, str] | None = None) -> httpx2.Response:
        """What came of it where the page asks first."""
        return TryForm(self.person, self.send(more)).send()


def form(person: Person, server: Server, tool: str = "look", name: str = "house") -> TryForm:
    page = person.browser.get(f"{server.url}/{name}/try/{tool}")
    assert page.status_code == 200, page.text
    return TryForm(person, page)


def prove(person: Person, page: httpx2.Response) -> httpx2.Response:
    return person.press(page, "Continue", {"passphrase": PASSPHRASE})


def test_somebody_signed_in_chooses_fills_in_and_is_answered(owner: Person, served: Server) -> None:
    page = owner.browser.get(f"{served.url}/try")
    assert "/house/try" in page.text
    assert "/shed/try" in page.text
    page = owner.browser.get(f"{served.url}/house/try")
    assert re.findall(r'href="/house/try/(\w+)"', page.text) == ["look", "wonder", "change", "cancel_order"]
    filled = form(owner, served)
    assert filled.fields["a/where"] == "attic"
    page = filled.send({"a/times": "2", "a/how": "1", "a/tags": "x\r\ny", "a/at/floor": "3"})
    assert page.status_code == 200
    assert "looked twice" in page.text
    assert TryForm(owner, page).fields["a/tags"].split() == ["x", "y"]
    sent = json.loads(
        subprocess.run(
            [
                "sh",
                "-c",
                f'curl() {{ cat >/dev/null; for w; do :; done; printf %s "$w"; }}\n{_program(page)}',
            ],
            env={"PATH": "/usr/bin:/bin", "OSTIARY_TOKEN": "t"},
            capture_output=True,
            check=True,
        ).stdout
    )
    assert sent["params"]["arguments"] == {
        "where": "attic", "times": 2, "how": "slow", "tags": ["x", "y"], "at": {"floor": 3},
    }  # fmt: skip


def _program(page: httpx2.Response) -> str:
    return html.unescape(
        re.findall(r"<summary>The same with curl</summary><pre[^>]*>(.*?)</pre>", page.text, re.DOTALL)[0]
    )


def test_each_call_is_recorded_as_that_persons(owner: Person, shared: Program, served: Server) -> None:
    """With a tool that no other test calls."""
    form(owner, served, "echo", "shed").send({"a/text": "hello"})
    (call,) = until("the record", lambda: [call for call in _calls(shared) if call["tool"] == "echo"] or None)
    assert (call["person"], call["program"]) == (NAME, "the try-it page")


def test_nothing_that_a_tool_says_is_markup(owner: Person, served: Server) -> None:
    for where in ("gallery", "cellar", EVIL):
        page = form(owner, served).send({"a/where": where})
        assert "<script" not in page.text
        assert "onload" not in re.sub(r"&[#\w]+;", "", page.text) or 'onload="' not in page.text
        assert "&lt;script&gt;" in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
    page = form(owner, served).send({"a/where": "gallery"})
    assert f'<img class="answer" src="data:image/png;base64,{PIXEL}"' in page.text
    assert page.text.count("<img") == 1
    assert page.text.count('href="data:application/octet-stream;base64,') == 3
    assert "<script" not in owner.browser.get(f"{served.url}/house/try").text


def test_what_cannot_be_understood_calls_nothing_and_keeps_what_was_typed(
    owner: Person, served: Server
) -> None:
    page = form(owner, served).send({"a/times": "many", "a/where": "hall"})
    assert page.status_code == 400
    assert "This is no number." in page.text
    assert TryForm(owner, page).fields["a/where"] == "hall"
    page = form(owner, served).send({"raw": "{not json"})
    assert page.status_code == 400
    assert "This is no JSON" in page.text
    page = form(owner, served).send({"raw": '{"where": "roof", "times": 9}'})
    assert page.status_code == 200
    assert "times: " in page.text  # the tool's own schema says what is wrong
    page = form(owner, served).send({"raw": '{"where": "roof"}', "a/where": "hall"})
    assert "looked at the roof" in page.text


def test_a_question_is_answered_in_a_second_form(owner: Person, served: Server) -> None:
    asked = form(owner, served, "wonder").send({"a/about": "rain"})
    assert "<h1>wonder asks</h1>" in asked.text
    assert "&lt;script&gt;" in asked.text
    second = TryForm(owner, asked)
    done = second.send({"q0/name": "Ada", "q0/unit": "1", "answer": "accept"})
    assert "Ada wonders about rain" in done.text
    assert TryForm(owner, done).fields["a/about"] == "rain"
    assert "never mind" in second.send({"answer": "decline"}).text
    # The state is sealed and of this call: it opens nothing else.
    other = second.send({"kept": '{"about": "snow"}', "q0/name": "Ada", "q0/unit": "1", "answer": "accept"})
    assert "wonders" not in other.text
    assert second.send({"state": "forged", "answer": "accept"}).text.count("wonders") == 0
    assert second.send({"asked": "[", "answer": "accept"}).status_code == 403


def test_what_may_change_something_wants_a_fresh_proof(
    owner: Person, shared: Program, served: Server
) -> None:
    assert "it is changed" in form(owner, served, "change").confirmed().text  # just proven, by signing in
    write_to_file(shared.data_dir, "UPDATE browser_sessions SET auth_time = auth_time - 16 * 60000")
    page = form(owner, served, "change").send()
    assert "Is it you?" in page.text
    assert "it is changed" not in page.text
    assert "looked around" in form(owner, served).send().text  # what only reads goes on
    wrong = TryForm(owner, page).send({"passphrase": "not my passphrase at all"})
    assert wrong.status_code == 400
    assert "it is changed" not in wrong.text
    shown = prove(owner, page)
    assert "it is changed" not in shown.text
    assert "it is changed" in TryForm(owner, shown).send().text


def test_nothing_is_made_up_and_what_cannot_be_undone_is_asked_about_first(
    owner: Person, shared: Program, served: Server
) -> None:
    listed = owner.browser.get(f"{served.url}/house/try").text
    assert re.findall(r'class="tag[^"]*">([^<]+)<', listed) == [
        *("only reads", "only reads", "changes things", "changes things", "cannot be undone")
    ]
    empty = form(owner, served, "cancel_order")
    assert empty.fields["a/order"] == ""
    assert empty.fields["a/why"] == "late"  # as its schema says
    assert 'placeholder="for example text"' in empty.page.text
    refused = empty.send()
    assert refused.status_code == 400
    assert "This is needed." in refused.text
    shown = TryForm(owner, empty.send({"a/order": "A7"}))
    assert "This cannot be undone." in shown.page.text
    assert json.loads(html.unescape(re.findall(r"<pre[^>]*>(.*?)</pre>", shown.page.text, re.DOTALL)[0])) == {
        "order": "A7", "why": "late",
    }  # fmt: skip
    # What was shown is what is called: other arguments, or another tool's yes, are shown first.
    change = TryForm(owner, form(owner, served, "change").send())
    for more in (
        {"kept": '{"order": "B8"}'},
        {"once": "other"},
        {"sure": change.fields["sure"]},
        {"sure": ""},
        {"kept": '{"order": "B8"}', "state": "x", "asked": "{}", "answer": "accept"},
    ):
        page = shown.send(more)
        assert page.status_code == 200
        assert "it is cancelled" not in page.text
        assert "This cannot be undone." in page.text
    assert shown.send({"kept": "["}).status_code == 403
    assert shown.send({"form_token": "x"}).status_code == 403
    assert not [
        call for call in _calls(shared) if call["tool"] == "cancel_order"
    ]  # nothing was called so far
    assert "it is cancelled" in shown.send().text


def _calls(program: Program) -> list[dict[str, str]]:
    found = program.at_machine("calls")
    return found["calls"] if isinstance(found, dict) else found


def test_a_form_of_somebody_else_calls_nothing(owner: Person, served: Server) -> None:
    mine = form(owner, served)
    for more, headers in (
        ({"form_token": "x"}, {}),
        ({}, {"Origin": "https://attacker.example"}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
        ({}, {"Sec-Fetch-Site": "same-site"}),
    ):
        page = mine.send(more, **headers)
        assert page.status_code == 403
        assert "looked" not in page.text
    other = form(owner, served, "wonder")
    assert mine.send({"form_token": other.fields["form_token"]}).status_code == 403
    assert mine.person.browser.get(f"{served.url}/house/try/look?a/where=x").text.count("It took") == 0


def test_what_moves_money_is_not_there(owner: Person, served: Server) -> None:
    page = owner.browser.get(f"{served.url}/house/try/pay")
    assert page.status_code == 404
    mine = form(owner, served, "change")
    mine.action = "/house/try/pay"
    assert mine.send().status_code == 404
    assert owner.browser.get(f"{served.url}/nowhere/try").status_code == 404
    assert owner.browser.get(f"{served.url}/house/try/no.such").status_code == 404


def test_without_a_login_there_is_only_the_sign_in(served: Server, people: Callable[[], Person]) -> None:
    stranger = people()
    for path in ("/try", "/house/try", "/house/try/look"):
        page = stranger.browser.get(served.url + path)
        assert page.url.path == "/signin"
        assert page.url.params["next"] == "/try"
    answer = stranger.browser.post(f"{served.url}/house/try/look", data={"a/where": "attic"})
    assert "looked" not in answer.text


def _guest(guest: Person, program: Program) -> Person:
    link = program.at_machine("invite", "gus", "--scope", "mcp:tools:read")["url"]
    guest.press(
        guest.browser.get(link), "Come in", {"passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE}
    )
    return guest


def test_somebody_else_than_the_owner_may_not(
    shared: Program, served: Server, people: Callable[[], Person]
) -> None:
    guest = _guest(people(), shared)
    for path in ("/try", "/house/try", "/house/try/look"):
        assert guest.browser.get(served.url + path).status_code == 403


def test_somebody_else_than_the_owner_may_where_the_settings_say_so(
    program: Program, home: Path, people: Callable[[], Person]
) -> None:
    with program.serving("--config", write(home, 'try_page = "people"')) as server:
        people().claim(program, server)
        guest = _guest(people(), program)
        page = guest.browser.get(f"{server.url}/house/try")
        # Within their ceiling, and no more.
        assert re.findall(r'href="/house/try/(\w+)"', page.text) == ["look", "wonder"]
        assert "looked around" in form(guest, server).send().text
        assert guest.browser.get(f"{server.url}/house/try/change").status_code == 404
        mine = form(guest, server)
        program.at_machine("users", "disable", "gus")
        assert "looked" not in mine.send().text


def test_it_can_be_off(program: Program, home: Path, people: Callable[[], Person]) -> None:
    with program.serving("--config", write(home, 'try_page = "off"')) as server:
        person = people()
        person.claim(program, server)
        for path in ("/try", "/house/try", "/house/try/look"):
            assert person.browser.get(server.url + path).status_code == 404


def test_where_nobody_logs_in_whoever_is_at_the_machine_may(
    open_to_all: Server, people: Callable[[], Person]
) -> None:
    person = people()
    page = person.browser.get(f"{open_to_all.url}/house/try")
    assert re.findall(r'href="/house/try/(\w+)"', page.text) == ["look", "wonder", "change", "cancel_order"]
    assert "it is changed" in form(person, open_to_all, "change").confirmed().text
    assert "OSTIARY_TOKEN" not in _program(form(person, open_to_all).send())
    assert form(person, open_to_all).send({"form_token": "x"}).status_code == 403
    assert form(person, open_to_all).send({}, **{"Sec-Fetch-Site": "same-site"}).status_code == 403


def test_of_many_tools_a_page_shows_some_and_leads_to_the_next(
    open_to_all: Server, people: Callable[[], Person]
) -> None:
    browser, seen, address = people().browser, list[str](), "/shed/try"
    while address:
        page = browser.get(open_to_all.url + address)
        assert page.status_code == 200
        found = re.findall(r'href="/shed/try/(\w+)"', page.text)
        assert 0 < len(found) <= 2
        seen += found
        further = re.search(r'href="(/shed/try[^"]*)">More tools', page.text)
        assert ('<a href="/shed/try">The first tools</a>' in page.text) is (address != "/shed/try")
        address = "" if further is None else further[1]
    assert seen == ["echo", "clock", "countdown"]
    gone = browser.get(f"{open_to_all.url}/shed/try?at=no-such-place", follow_redirects=False)
    assert (gone.status_code, gone.headers["Location"]) == (303, "/shed/try")


def test_a_form_that_is_too_large_is_refused_and_a_long_text_is_not(owner: Person, served: Server) -> None:
    long = form(owner, served, "wonder").send({"raw": json.dumps({"about": "x" * 30_000})})
    assert long.status_code == 200
    assert form(owner, served).send({"raw": "x" * 50_000}).status_code == 400
    assert form(owner, served).send({"raw": "x" * 70_000}).status_code == 413
    assert form(owner, served).send({f"a/{n}": "x" for n in range(99)}).status_code in (400, 413)


def test_what_costs_something_is_paid_from_the_balance_once_for_each_form(
    program: Program, home: Path, people: Callable[[], Person]
) -> None:
    config = write(home, PAYMENTS, price='price = "$0.25"')
    with program.serving("--config", config) as server:
        person = people()
        person.claim(program, server)
        assert "$0.25" in person.browser.get(f"{server.url}/house/try").text
        first = form(person, server)
        assert "Costs $0.25 a call. It is taken from your balance." in first.page.text
        assert "looked around" not in first.confirmed().text  # there is none yet

        def balance() -> int:
            (wallet,) = program.at_machine("ledger", "balance", "--wallet", NAME)["wallets"]
            assert wallet["held"] == 0
            return wallet["balance"] // 10_000

        program.at_machine("ledger", "grant", NAME, "$1.00")
        shown = TryForm(person, first.send())
        assert "Costs $0.25 a call. It is taken from your balance." in shown.page.text
        assert balance() == 100
        for _ in range(2):
            assert "looked around" in shown.send().text
            assert balance() == 75
        # Other arguments are another call, and are shown first; so is another form.
        other = shown.send({"kept": '{"where": "roof"}'})
        assert "looked at the roof" not in other.text
        assert balance() == 75
        assert "looked at the roof" in TryForm(person, other).send().text
        assert balance() == 50
        assert "looked around" in form(person, server).confirmed().text
        assert balance() == 25
        write_to_file(program.data_dir, "UPDATE browser_sessions SET auth_time = auth_time - 16 * 60000")
        assert "Is it you?" in form(person, server).send().text
        assert balance() == 25
