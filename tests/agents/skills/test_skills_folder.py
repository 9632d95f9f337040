from __future__ import annotations

from pathlib import Path

import pytest
from shelf import skill_folder

from server.agents.skills import skills_folder
from server.agents.skills.skills_folder import NoSkills, book_in

PDF = """\
    ---
    name: read-pdf
    description: >
      Extract text and tables from documents, also from scanned ones.
    license: MIT
    ---
    # Read

    First [[x]] see [notes](../take-notes/SKILL.md) and [gone](../gone/SKILL.md).
    """
NOTES = """\
    ---
    name: take-notes
    description: Keep what matters of a conversation
    metadata:
      triggers: "write down, note"
    ---
    Write it down.
    """


@pytest.fixture
def root(tmp_path: Path) -> Path:
    skill_folder(tmp_path / "skills", read_pdf=PDF, take_notes=NOTES)
    (tmp_path / "skills" / "read-pdf" / "scripts").mkdir()
    (tmp_path / "skills" / "read-pdf" / "scripts" / "run me.py").write_text("print(1)")
    (tmp_path / "skills" / "read-pdf" / "logo.bin").write_bytes(b"\xff\x00")
    (tmp_path / "skills" / "read-pdf" / ".secret").write_text("hidden")
    (tmp_path / "skills" / "README.md").write_text("belongs to no skill")
    return tmp_path / "skills"


def test_each_folder_with_a_skill_is_one_and_links_between_them_are_what_they_depend_on(root: Path) -> None:
    book, faults = book_in(root)
    assert book.name == "skills"
    assert [(skill.name, skill.z) for skill in book.skills] == [("read-pdf", 1), ("take-notes", 2)]
    assert [skill.name for skill in book.resolve("read-pdf")] == ["read-pdf", "take-notes"]
    assert book.skills[0].body.startswith("# Read")
    assert [fault.rule for fault in faults] == ["dead-link"]


def test_it_is_found_by_its_triggers_or_else_by_the_telling_words_of_its_description(root: Path) -> None:
    book, _ = book_in(root)
    (found,) = book.route("tables in documents, from a scan")
    assert (found.skill.name, list(found.matched)) == ("read-pdf", ["tables", "from", "documents"])
    assert [each.skill.name for each in book.route("write that down")] == ["take-notes"]
    assert book.route("what matters in conversation") == []


def test_its_files_can_be_read_but_hidden_ones_and_those_of_no_skill(root: Path) -> None:
    book, _ = book_in(root)
    pages = {page.uri: page for page in book.pages}
    assert sorted(pages) == [
        "skill://read-pdf/SKILL.md",
        "skill://read-pdf/logo.bin",
        "skill://read-pdf/scripts/run%20me.py",
        "skill://take-notes/SKILL.md",
    ]
    assert (pages["skill://read-pdf/SKILL.md"].text or "").startswith("---\nname: read-pdf")
    assert pages["skill://read-pdf/logo.bin"].data == b"\xff\x00"
    assert pages["skill://read-pdf/scripts/run%20me.py"].media_type == "text/x-python"


def test_what_no_host_need_take_is_left_out_of_what_the_protocols_extension_lists(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, _ = book_in(root)
    assert [skill.uri for skill in book.listed] == [
        "skill://read-pdf/SKILL.md",
        "skill://take-notes/SKILL.md",
    ]
    assert [file.uri for file in book.listed[0].resources] == [
        "skill://read-pdf/SKILL.md",
        "skill://read-pdf/logo.bin",
        "skill://read-pdf/scripts/run%20me.py",
    ]
    monkeypatch.setattr(skills_folder, "MOST_SKILL_FILES", 2)
    (root / "take-notes").rename(root / "takes-notes")
    book, faults = book_in(root)
    assert book.listed == ()
    assert [fault.rule for fault in faults if fault.level == "warning"] == ["name", "listing"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("metadata: {n: 1}", "metadata holds something besides texts"),
        ("metadata: [a]", "metadata holds something besides texts"),
        ("license: 3", "license is no text"),
        ('compatibility: ""', "compatibility is no text of 1 to 500 characters"),
        ("allowed-tools: [a]", "allowed-tools is no text"),
    ],
)
def test_a_skill_that_strict_hosts_refuse_is_served_and_not_listed(root: Path, line: str, why: str) -> None:
    (root / "take-notes" / "SKILL.md").write_text(
        f"---\nname: take-notes\ndescription: d\n{line}\n---\n", "utf-8"
    )
    book, faults = book_in(root)
    assert [skill.name for skill in book.skills] == ["read-pdf", "take-notes"]
    assert [skill.uri for skill in book.listed] == ["skill://read-pdf/SKILL.md"]
    assert [fault.message for fault in faults if fault.rule == "listing"] == [
        f'"take-notes" is not listed to clients that look for skills: {why}'
    ]


def test_nothing_outside_of_the_folder_is_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "private.md").write_text("secret")
    (root / "read-pdf" / "link.md").symlink_to(tmp_path / "private.md")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "SKILL.md").write_text("---\nname: elsewhere\ndescription: d\n---\n")
    (root / "elsewhere").symlink_to(tmp_path / "elsewhere")
    book, _ = book_in(root)
    assert len(book.skills) == 2
    assert not any("secret" in (page.text or "") for page in book.pages)


@pytest.mark.parametrize(
    ("text", "rule", "why"),
    [
        ("no frontmatter", "parse", "does not begin"),
        ("---\nname: x\n", "parse", "not closed"),
        ("---\nname: [\n---\n", "parse", "frontmatter, line 1"),
        ("---\n- x\n---\n", "parse", "no names with values"),
        ("---\ndescription: d\n---\n", "parse", "needs a name"),
        ("---\nname: bad\n---\n", "parse", "needs a description"),
        ("---\nname: read-pdf\ndescription: again\n---\n", "unique-skill", "already"),
        ("---\nname: Other Name\ndescription: d\n---\n", "name", "that of its folder"),
    ],
)  # fmt: skip
def test_a_skill_that_cannot_be_used_is_left_out_and_told(root: Path, text: str, rule: str, why: str) -> None:
    (root / "zz").mkdir()
    (root / "zz" / "SKILL.md").write_text(text)
    book, faults = book_in(root)
    (fault,) = [each for each in faults if each.rule != "dead-link"]
    assert fault.rule == rule
    assert why in fault.message
    assert len(book.skills) == (3 if rule == "name" else 2)


def test_a_folder_that_is_a_skill_itself_is_one(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: whole\ndescription: all of it\n---\nDo.")
    (tmp_path / "more.txt").write_text("m")
    book, faults = book_in(tmp_path)
    assert ([skill.name for skill in book.skills], list(faults)) == (["whole"], [])
    assert [page.uri for page in book.pages] == ["skill://whole/SKILL.md", "skill://whole/more.txt"]


def test_a_folder_without_skills_or_with_too_much_is_refused(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoSkills, match=r"no SKILL\.md"):
        book_in(tmp_path / "empty")
    (root / "read-pdf" / "big.txt").write_text("x" * 1000)
    for name, bound, why in (
        ("MAX_FILES", 2, "more than 2 files"),
        ("MAX_SKILLS", 1, "more than 1 skills"),
        ("FILE_BYTES", 999, "larger than"),
        ("FOLDER_BYTES", 20, "are more than"),
    ):
        with monkeypatch.context() as bounds:
            bounds.setattr(skills_folder, name, bound)
            with pytest.raises(NoSkills, match=why):
                book_in(root)
