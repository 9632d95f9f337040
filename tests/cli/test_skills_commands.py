"""`ostiary skills`: what is printed, where, and the exit code."""

from __future__ import annotations

import json

from shell import Terminal

AGENT = """\
---
3md: 1.0
agent: tidy
tools: printf
---
@plane z=0 label=tidy kind=identity
Rules.
@plane z=1 label=say kind=skill triggers="say, speak" inputs="text:string" tool="printf %s {text}"
Say it. [[z=2]]
@plane z=2 label=think kind=skill triggers=think
Think first.
@plane z=3 label=pipe kind=skill triggers=pipe tool="printf a | cat"
Pipe.
"""


async def test_a_new_agent_is_written_once_and_has_no_faults(shell: Terminal) -> None:
    done = await shell.run("skills", "new", "My Agent")
    assert (done.code, done.stdout) == (0, "wrote my-agent.3md\n")
    assert "ostiary skills check my-agent.3md" in done.stderr
    again = await shell.run("skills", "new", "My Agent")
    assert (again.code, again.stderr) == (1, "error: my-agent.3md is there already, and is not overwritten\n")
    checked = await shell.run("skills", "check", "my-agent.3md")
    assert (checked.code, checked.stdout) == (0, "passed: 0 errors, 0 warnings\n")


async def test_what_is_asked_finds_its_skill_and_what_it_comes_with(shell: Terminal) -> None:
    (shell.home / "agent.3md").write_text(AGENT)
    listed = await shell.run("skills", "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["tidy", "say", "think", "pipe"]
    routed = await shell.run("skills", "route", "please", "SAY", "it")
    assert (routed.code, routed.stdout) == (0, "say  (score 1; matched: say)\n")
    assert routed.stderr == "it comes with think\n"
    assert (await shell.run("skills", "route", "agent.3md", "nothing here")).stdout == "no skill matched\n"
    assert (await shell.run("skills", "get", "agent.3md", "think")).stdout == "Think first.\n"
    resolved = await shell.run("skills", "resolve", "say")
    assert resolved.stdout == "### say\nSay it. [[z=2]]\n\n### think\nThink first.\n"
    unknown = await shell.run("skills", "get", "thnk")
    assert (unknown.code, unknown.stdout) == (1, "")
    assert unknown.stderr == "error: unknown skill: thnk\nhint: did you mean think?\n"


async def test_a_command_is_printed_with_its_values_and_run_only_when_told(shell: Terminal) -> None:
    (shell.home / "agent.3md").write_text(AGENT)
    shown = await shell.run("skills", "run", "say this", "text=it's; exit 3")
    assert (shown.code, shown.stdout) == (0, "printf %s 'it'\\''s; exit 3'\n")
    ran = await shell.run("skills", "run", "agent.3md", "say this", "text=it's; exit 3", "--exec")
    assert (ran.code, ran.stdout) == (0, "printf %s 'it'\\''s; exit 3'\nit's; exit 3")
    lacking = await shell.run("skills", "run", "say", "--exec")
    assert (lacking.code, lacking.stdout) == (1, "printf %s {text}\n")
    assert "there is no value for text" in lacking.stderr
    assert "fill in text=" in (await shell.run("skills", "run", "say")).stderr
    piped = await shell.run("skills", "run", "pipe", "--exec")
    assert (piped.code, piped.stdout) == (1, "printf a | cat\n")
    assert "for a shell" in piped.stderr
    guidance = await shell.run("skills", "run", "think", "--exec")
    assert (guidance.code, guidance.stdout) == (0, "Think first.\n")


async def test_the_exit_code_of_a_command_is_ours(shell: Terminal) -> None:
    text = AGENT.replace('tool="printf %s {text}"', 'tool="sh -c {text}"').replace(
        "printf a | cat", "no-such-program"
    )
    (shell.home / "agent.3md").write_text(text)
    assert (await shell.run("skills", "run", "say", "text=exit 7", "--exec")).code == 7
    assert (await shell.run("skills", "run", "say", "text=kill -9 $$", "--exec")).code == 137
    assert (await shell.run("skills", "run", "pipe", "--exec")).code == 127


async def test_a_check_ends_with_0_1_or_2(shell: Terminal) -> None:
    (shell.home / "bad.3md").write_text(AGENT.replace("z=2]]", "z=9]]"))
    failed = await shell.run("skills", "check", "bad.3md")
    assert failed.code == 1
    assert (
        failed.stdout.splitlines()[0] == "error [dead-link] z=1 [[z=9]] links to a plane that does not exist"
    )
    assert failed.stdout.splitlines()[-1] == "failed: 1 error, 0 warnings"
    told = json.loads((await shell.run("skills", "check", "bad.3md", "--json")).stdout)
    assert (told["ok"], told["faults"][0]["rule"]) == (False, "dead-link")
    (shell.home / "broken.3md").write_text("text")
    assert (await shell.run("skills", "check", "broken.3md")).code == 1
    assert (await shell.run("skills", "check", "missing.3md")).code == 2
    assert (await shell.run("skills", "check", "agent.md")).code == 2


async def test_it_is_exported_as_json(shell: Terminal) -> None:
    (shell.home / "agent.3md").write_text(AGENT)
    told = json.loads((await shell.run("skills", "export", "--bodies")).stdout)
    assert (told["schema"], told["bodies"]["think"]) == ("agent3md/1", "Think first.")
    assert "bodies" not in json.loads((await shell.run("skills", "export", "agent.3md")).stdout)


async def test_a_folder_of_skills_is_a_document_as_well(shell: Terminal) -> None:
    (shell.home / "many" / "one").mkdir(parents=True)
    (shell.home / "many" / "one" / "SKILL.md").write_text(
        "---\nname: one\ndescription: count things\n---\nCount.\n"
    )
    assert (await shell.run("skills", "get", "many", "one")).stdout == "Count.\n"
    assert (await shell.run("skills", "check", "many")).code == 0


async def test_what_cannot_be_served_by_itself_is_told(shell: Terminal) -> None:
    done = await shell.run("serve", "notes.txt")
    assert done.code == 2
    assert done.stderr.startswith("error: notes.txt is nothing that can be served by itself\n")
    (shell.home / "broken.3md").write_text("text")
    broken = await shell.run("serve", "broken.3md", "--stdio")
    assert broken.code == 1
    assert "missingFrontmatter" in broken.stderr
