"""What stands in front of tools of the running program: the settings that docs/policy.md shows, over HTTP and over stdio; hooks in processes
of their own; rules that change while it runs, and rules that are bad."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest
from handmade import CALLBACK, Handmade
from mcp_calls import call_tool
from person import Person
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, until
from test_serve_stdio import piped

from tests.free_ports import free_port
from tests.stdio_talk import call, modern

POLICY = "io.ostiary/policy"
OPEN = 'auth = "none"\n'
PAGE = (ROOT / "docs" / "policy.md").read_text("utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
HOOKS = """
    import os
    import time

    print("what it prints is no answer")

    def before(call: dict) -> dict:
        text = call["arguments"].get("text")
        if text == "shout":
            return {"decision": "proceed", "arguments": {"text": "SHOUT"}}
        if text == "no":
            return {"decision": "deny", "reason": f"not for {call['caller']['kind']}"}
        if text == "raise":
            raise RuntimeError("a secret of the author's")
        if text == "exit":
            os._exit(3)
        if text == "hang":
            time.sleep(1000)
        return {"decision": "proceed"}

    def after(call: dict) -> dict:
        (block,) = call["result"]["content"]
        if block["text"] == "swap":
            return {"decision": "substitute", "result": {"content": [{"type": "text", "text": "swapped"}]}}
        return {"decision": "proceed"}
"""
COMMAND = """
import json, sys
call = json.load(sys.stdin)
if call["arguments"]["text"] == "bad":
    sys.exit(7)
answer = {"decision": "proceed", "arguments": {"text": call["tool"] + " " + call["arguments"]["text"]}}
print(json.dumps(answer))
"""


def settings(home: Path, text: str, *, open_to_all: bool = True) -> None:
    (home / "new.toml").write_text(OPEN * open_to_all + text, "utf-8")
    (home / "new.toml").replace(home / "ostiary.toml")  # whole, as an editor saves it


def text_of(result: Any) -> str:
    return result["content"][0]["text"]


def reason_of(result: Any) -> str:
    assert result["isError"] is True
    return result["_meta"][POLICY]["reason"]


def flat(text: str) -> str:
    return " ".join(text.split())


def demo(more: str) -> str:
    return f'[[server]]\nname = "main"\n{more}\n[[server.agent]]\nkind = "demo"\n'


@pytest.mark.parametrize("era", [True, False])
def test_the_example_of_the_page_over_http(home: Path, era: bool) -> None:
    settings(home, EXAMPLES[0])
    program, admin = Program(command=SOURCE, home=home), free_port()
    with program.serving("--admin-port", str(admin)) as server:
        denied = call_tool(server.endpoint, "countdown", {"from": 30}, modern=era)
        assert reason_of(denied) == "denied" and "count from 20 or less" in text_of(denied)
        assert (
            call_tool(server.endpoint, "countdown", {"from": 1, "seconds": 0}, modern=era).get(
                "isError", False
            )
            is False
        )
        mail = call_tool(server.endpoint, "echo", {"text": "ann@example.org"}, modern=era)
        assert text_of(mail) == "[email redacted]"
        for _ in range(2):
            call_tool(server.endpoint, "echo", {"text": "x"}, modern=era)
        used_up = call_tool(server.endpoint, "echo", {"text": "x"}, modern=era)
        assert reason_of(used_up) == "over_budget" and used_up["_meta"][POLICY]["retryAfter"] > 0
        rows = program.at_machine("audit")
        metrics = httpx2.get(f"http://127.0.0.1:{admin}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
        assert 'ostiary_policy_decisions_total{decision="denied"} 1' in metrics
        assert {"policy.denied", "policy.over_budget"} <= set(re.findall(r"policy\.\w+", json.dumps(rows)))
        assert server.end(signal.SIGTERM) == 0
        assert "ann@example.org" not in server.said()
    # Exact over a restart.
    with program.serving() as server:
        assert reason_of(call_tool(server.endpoint, "echo", {"text": "x"}, modern=era)) == "over_budget"


async def test_the_example_of_the_page_over_stdio(home: Path) -> None:
    settings(home, EXAMPLES[0])
    async with piped(Program(command=SOURCE, home=home)) as one:
        denied = await one.result(modern("tools/call", call("countdown", **{"from": 30}), id=1))
        assert reason_of(denied) == "denied"
        # Somebody sits there, and cannot be asked through this client.
        assert (
            reason_of(await one.result(modern("tools/call", call("countdown", **{"from": 1}), id=2)))
            == "not_asked"
        )
        for number in range(3):
            mail = await one.result(modern("tools/call", call("echo", text="a@b.org"), id=3 + number))
            assert text_of(mail) == "[email redacted]"
        assert (
            reason_of(await one.result(modern("tools/call", call("echo", text="x"), id=9))) == "over_budget"
        )


def test_what_the_rules_make_of_a_call_can_be_asked_without_a_server(home: Path) -> None:
    settings(home, EXAMPLES[0])
    program = Program(command=SOURCE, home=home)
    words = program.run("policy", "check", "countdown", "--arguments", '{"from": 30}', code=1).stdout
    assert "deny" in words and "no long waits" in words and "count from 20 or less" in words
    asked = json.loads(program.run("policy", "check", "countdown", "--json", code=1).stdout)
    assert (asked["verdict"], asked["rule"], asked["mode"]) == ("ask", "rule 2", "enforce")
    assert program.ask("policy", "check", "countdown", "--as", "api_key")["verdict"] == "allow"
    assert program.ask("policy", "check", "echo")["max_calls"] == 3
    assert "no JSON object" in program.run("policy", "check", "echo", "--arguments", "[1]", code=1).stderr
    assert not (home / "data").exists()


ACME = """
[[server]]
name = "main"
[[server.policy]]
tools = ["*"]
who = { program = ["Acme Assistant"] }
decision = "allow"
[[server.policy]]
tools = ["*"]
decision = "deny"
[server.hooks]
before = { file = "hooks.py", function = "before" }
[[server.agent]]
kind = "demo"
"""
TELLS = """
import json
def before(call):
    who = call["caller"]
    text = json.dumps([who["program"], who["program_id"], who["claims_to_be"]])
    return {"decision": "substitute", "result": {"content": [{"type": "text", "text": text}]}}
"""


def test_a_rule_for_a_program_is_not_for_one_that_calls_itself_so(home: Path) -> None:
    (home / "ostiary.toml").write_text(ACME, "utf-8")
    (home / "hooks.py").write_text(TELLS, "utf-8")
    program, owner = Program(command=SOURCE, home=home), Person()
    with program.serving() as server:
        client = Handmade(server.url)
        owner.claim(program, server)

        def called(client_id: str) -> Any:
            code = client.agreed(owner, client_id)["code"]
            token = client.redeem(client_id, code).json()["access_token"]
            arguments = {"name": "echo", "arguments": {"text": "x"}}
            return client.mcp("tools/call", arguments, token=token).json()["result"]

        for name in ("Acme Assistant", "Acme\u200b Assistant"):
            assert reason_of(called(client.register(client_name=name)["client_id"])) == "denied"
        entered = program.at_machine(
            "clients", "add", "Acme Assistant", "--grant", "authorization_code", "--redirect-uri", CALLBACK
        )
        told = called(entered["id"])
        assert json.loads(text_of(told)) == ["Acme Assistant", entered["id"], ""]
        where = ("--data-dir", str(program.data_dir))
        assert "calls itself Acme Assistant" not in flat(program.run("doctor", *where).stdout)
        program.at_machine("clients", "remove", entered["id"], "--yes")
        assert "calls itself Acme Assistant" in flat(program.run("doctor", *where, code=1).stdout)
        claims = ("policy", "check", "echo", "--claims-to-be", "Acme Assistant", "--json")
        assert json.loads(program.run(*claims, code=1).stdout)["claimed"] == ["rule 1"]
        # A rule that asks or denies may go by a claim.
        settings(
            home,
            ACME.replace("program = [", "claims_to_be = [")
            .replace('"allow"', '"deny"', 1)
            .replace('decision = "deny"\n[server.hooks]', 'decision = "allow"\n[server.hooks]'),
            open_to_all=False,
        )
        server.await_words("settings.reloaded")
        assert reason_of(called(client.register(client_name="Acme Assistant")["client_id"])) == "denied"
        other = client.register(client_name="Other")["client_id"]
        assert json.loads(text_of(called(other))) == ["", other, "Other"]
        client.close()
        owner.close()


def test_functions_of_a_file_look_at_calls_and_what_is_wrong_with_them_is_their_owners_to_know(
    home: Path,
) -> None:
    (home / "hooks.py").write_text(dedent(HOOKS), "utf-8")
    hooks = (
        '[server.hooks]\nbefore = { file = "hooks.py", function = "before", deadline_seconds = 10 }\n'
        'after = { file = "hooks.py", function = "after" }\n'
    )
    settings(home, demo(hooks))
    program = Program(command=SOURCE, home=home)

    def say(text: str) -> Any:
        return call_tool(server.endpoint, "echo", {"text": text})

    with program.serving() as server:
        assert [text_of(say(text)) for text in ("plain", "shout", "swap")] == ["plain", "SHOUT", "swapped"]
        assert text_of(say("no")) == "This call was not made: not for anonymous"
        assert program.at_machine("status")["server"]["agents"] == []
        failed = say("raise")
        assert reason_of(failed) == "out_of_order" and "secret" not in json.dumps(failed)
        (trouble,) = program.at_machine("status")["server"]["agents"]
        assert "the hook before did not answer a call" in trouble["words"]
        assert (trouble["calls"], trouble["people"]) == (1, ["callers without a login"])
        server.await_words("agent.out_of_order")
        assert trouble["words"] in server.said(), "the log says it in the same words"
        assert "hooks.py" in program.run("doctor", "--data-dir", str(program.data_dir), code=1).stdout
        assert text_of(say("plain")) == "plain"  # it answers again
        assert program.at_machine("status")["server"]["agents"] == []
        assert reason_of(say("hang")) == "out_of_order"
        assert reason_of(say("exit")) == "out_of_order"
        until("the hook is there again", lambda: text_of(say("plain")) == "plain" or None)
        # It is loaded anew when it changes.
        (home / "hooks.py").write_text(dedent(HOOKS).replace("SHOUT", "LOUDER"), "utf-8")
        server.await_words("agent.reloaded")
        assert text_of(say("shout")) == "LOUDER"
        assert server.end(signal.SIGTERM) == 0


def test_a_command_looks_at_calls(home: Path) -> None:
    (home / "look.py").write_text(COMMAND, "utf-8")
    run = json.dumps([sys.executable, str(home / "look.py")])
    settings(home, demo(f"[server.hooks]\nbefore = {{ run = {run} }}\n"))
    with Program(command=SOURCE, home=home).serving() as server:
        assert text_of(call_tool(server.endpoint, "echo", {"text": "x"})) == "echo x"
        assert reason_of(call_tool(server.endpoint, "echo", {"text": "bad"})) == "out_of_order"
        # Read anew, it stays; taken out, it goes.
        server.process.send_signal(signal.SIGHUP)
        settings(home, demo(""))
        server.await_words("agent.gone")
        assert text_of(call_tool(server.endpoint, "echo", {"text": "bad"})) == "bad"


def test_rules_are_taken_while_it_runs_and_bad_ones_are_not(home: Path) -> None:
    settings(home, demo(""))
    program = Program(command=SOURCE, home=home)
    rule = '[[server.policy]]\ntools = ["echo"]\ndecision = "deny"\n'
    with program.serving() as server:

        def denied() -> bool:
            return call_tool(server.endpoint, "echo", {"text": "x"})["isError"]

        assert not denied()
        settings(home, demo(rule))
        server.await_words("settings.reloaded")
        assert denied()
        settings(home, demo(rule.replace("echo", "ecko")))
        server.await_words("settings.not_reloaded")
        server.await_words("names ecko, which is no tool that an agent offers")
        assert denied()
        settings(home, demo(rule.replace('"deny"', '"maybe"')))
        server.await_words("(?s)settings.not_reloaded.*settings.not_reloaded")
        assert denied()
        settings(home, demo('policy_mode = "audit"\n' + rule))
        server.await_words("(?s)settings.reloaded.*settings.reloaded")
        assert not denied()
        settings(home, demo(""))
        server.await_words("(?s)settings.reloaded.*settings.reloaded.*settings.reloaded")
        assert not denied()
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[[server.policy]]\ntools = ["ecko"]\ndecision = "deny"\n', "policy[1].tools names ecko"),
        (
            '[server.hooks]\nbefore = { file = "hooks.py", function = "look" }\n',
            "hooks.py has no function look",
        ),
        ('[server.hooks]\nbefore = { file = "none.py", function = "look" }\n', "there is no file"),
        (
            '[server.hooks]\nafter = { run = ["./no-such-program"] }\n',
            "there is no program ./no-such-program",
        ),
        ('[server.tools.echo]\nconfirm = { preview = "show" }\n', "tools.echo.confirm.preview names show"),
    ],
)
def test_what_is_not_there_keeps_the_server_from_starting(home: Path, more: str, words: str) -> None:
    (home / "hooks.py").write_text(dedent(HOOKS), "utf-8")
    settings(home, demo(more))
    said = Program(command=SOURCE, home=home).run("serve", "--port", "0", code=1).stderr
    assert words in said, said
