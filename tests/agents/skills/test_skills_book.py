from __future__ import annotations

from pathlib import Path

import pytest
from shelf import AGENT, written

from server.agents.skills.agent3md_profile import book_of
from server.agents.skills.planes import read_3md
from server.agents.skills.skills_book import SkillBook, as_chain, as_prompt, words
from server.agents.skills.skills_source import DOCUMENT_BYTES, CannotOpenSkills, open_skills


@pytest.fixture
def book() -> SkillBook:
    return book_of(read_3md(AGENT))


def routed(book: SkillBook, request: str) -> list[str]:
    return [str(each) for each in book.route(request)]


def test_the_agent_is_the_plane_that_says_so_and_the_others_are_skills(book: SkillBook) -> None:
    assert (book.name, book.model, book.persona, book.tools) == (
        "kitchen",
        "any-large",
        "cooks slowly",
        ("oven", "git"),
    )
    assert book.identity == "# kitchen\n\nWash your hands."
    assert [skill.name for skill in book.skills] == ["bake", "cool", "knead"]


def test_without_such_a_plane_the_lowest_is_the_agent() -> None:
    book = book_of(read_3md("---\n3md: 1\n---\n@plane z=5 label=a\nA\n@plane z=-2 label=b\nB\n"))
    assert (book.identity, [skill.name for skill in book.skills], book.name) == ("B", ["a"], "agent")


def test_the_catalogue_has_no_bodies(book: SkillBook) -> None:
    assert book.catalogue()[0] == {
        "name": "bake",
        "z": 1,
        "triggers": ("bake", "bread", "warm up"),
        "cost": "heat",
        "tool": "oven --heat {degrees} {tray}",
    }


def test_a_request_leads_to_skills_whose_phrases_it_holds_whole_the_most_first_and_then_the_lowest(
    book: SkillBook,
) -> None:
    assert routed(book, "BREAD, please: warm it up!") == [
        "bake  (score 2; matched: bread, warm up)",
        "knead  (score 1; matched: bread)",
    ]
    assert routed(book, "let it be") == []
    assert routed(book, "bread") == ["bake  (score 1; matched: bread)", "knead  (score 1; matched: bread)"]


def test_words_are_letters_and_digits_of_any_script() -> None:
    assert words("Ünïcode-3 пример_x — ok") == {"ünïcode", "3", "пример", "x", "ok"}


def test_a_skill_comes_with_all_that_it_depends_on_each_once_and_depth_first(book: SkillBook) -> None:
    assert [skill.name for skill in book.resolve("bake")] == ["bake", "knead", "cool"]
    assert as_chain(book.resolve("knead")) == "### knead\nKnead. See [[z=2]].\n\n### cool\nLet it rest."
    assert book.resolve("nothing") == ()


def test_skills_that_depend_on_each_other_end() -> None:
    head = "---\n3md: 1\n---\n@plane z=0\n"
    book = book_of(read_3md(head + "@plane z=1 label=a\n[[z=2]] [[z=9]]\n@plane z=2 label=b\n[[z=1]]\n"))
    assert [skill.name for skill in book.resolve("a")] == ["a", "b"]


def test_ten_thousand_links_deep_is_no_depth() -> None:
    planes = "".join(f"@plane z={n} label=s{n}\n[[z={n + 1}]]\n" for n in range(1, 9_000))
    book = book_of(read_3md(f"---\n3md: 1\n---\n@plane z=0\n{planes}"))
    assert len(book.resolve("s1")) == 8_999


def test_it_is_exported_as_the_profile_says(book: SkillBook) -> None:
    exported = book.export(bodies=True)
    assert exported["schema"] == "agent3md/1"
    assert exported["agent"] == {
        "name": "kitchen",
        "model": "any-large",
        "tools": ("oven", "git"),
        "persona": "cooks slowly",
    }
    first = exported["skills"][0]
    assert first["inputs"] == ["degrees", "tray", "note"]
    assert first["inputSchema"][0] == {"name": "degrees", "type": "number", "required": True}
    assert first["inputSchema"][2] == {"name": "note", "type": "string", "required": False}
    assert list(first["deps"]) == [3, 2, 3]
    assert exported["bodies"]["cool"] == "Let it rest."
    assert "bodies" not in book.export()


def test_a_prompt_is_the_instructions_with_what_was_given_and_the_command(book: SkillBook) -> None:
    bake = book.get("bake")
    assert bake is not None
    text = as_prompt(bake, {"degrees": "200", "tray": "it's"})
    assert text.startswith(bake.body)
    assert "- degrees: 200\n- tray: it's" in text
    assert "```\noven --heat '200' 'it'\\''s'\n```" in text


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("agent.md", b"x", "neither a .3md document nor a folder"),
        ("missing.3md", None, "cannot be read"),
        ("big.3md", b"x" * (DOCUMENT_BYTES + 1), "larger than 5 MiB"),
        ("latin.3md", b"\xff", "not text"),
        ("text.3md", b"text", "missingFrontmatter"),
    ],
)
def test_what_is_no_document_is_refused_by_its_absolute_path(
    tmp_path: Path, name: str, data: bytes | None, why: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CannotOpenSkills, match=why) as caught:
        open_skills(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_a_document_at_the_bound_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, AGENT + "x" * (DOCUMENT_BYTES - len(AGENT)))
    assert len(open_skills(path).book.skills) == 3
