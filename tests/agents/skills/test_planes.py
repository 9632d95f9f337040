from __future__ import annotations

import pytest

from server.agents.skills.planes import Bad3md, read_3md

HEAD = "---\n3md: 1.0\n---\n"


def test_a_document_has_frontmatter_a_preamble_and_planes_as_they_are_written() -> None:
    read = read_3md(
        '\ufeff\r\n---\r\n3MD: \'1.0\'\r\n# a comment\r\n\r\nAxis:  SKILL \r\nTitle: "a \\"b\\" \\\\ c"\r\nkey: x:y\r\nkey: last\r\nKey: other\r\n---\r\n\r\nAbove.\r\n\r\n'
        "@plane z=2 x=-1.5 Y=1e2 label=\"back drop\" author='me' role=2\r\n\r\n\r\nText\r\n\r\n@plane\tz=-1\r\n"
    )
    assert (read.version, read.axis, read.title) == ("1.0", "skill", 'a "b" \\ c')
    assert read.metadata == {"key": "last", "Key": "other"}
    assert read.preamble == "Above."
    first, second = read.planes
    assert (first.z, first.x, first.y, first.label, first.body) == (2, -1.5, 100, "back drop", "Text")
    assert first.attributes == {"author": "me", "role": "2"}
    assert (second.z, second.label, second.body) == (-1, None, "")


def test_without_planes_all_of_it_is_one_at_zero() -> None:
    read = read_3md(HEAD + "\n# Text\n\nmore\n")
    assert [(plane.z, plane.body) for plane in read.planes] == [(0, "# Text\n\nmore")]
    assert (read.preamble, read.axis, read.title) == (None, "layer", None)
    assert read_3md(HEAD).planes == ()


def test_a_directive_in_a_fence_or_indented_or_longer_is_text() -> None:
    body = "```\n@plane z=9\n~~~\n```\n~~~\n@plane\n```\n~~~\n  @plane z=8\n@planes z=7"
    (plane,) = read_3md(f"{HEAD}@plane z=1\n{body}\n").planes
    assert plane.body == body


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# Markdown\n", "missingFrontmatter"),
        ("", "missingFrontmatter"),
        ("---\n3md: 1\n", "invalidFrontmatter"),
        ("---\n3md: 1\nno colon\n---\n", "invalidFrontmatter"),
        ("---\ntitle: x\n---\n", "missingVersion"),
        ("---\n3md:\n---\n", "missingVersion"),
        (HEAD + '@plane label="x"\n', "missingPlanePosition"),
        (HEAD + "@plane z=0 word\n", "invalidPlaneDirective"),
        (HEAD + '@plane z=0 label="x\n', "invalidPlaneDirective"),
        (HEAD + "@plane z=0 x=left\n", "invalidPlaneDirective"),
        (HEAD + "@plane z=0\n@plane z=0.0\n", "duplicatePlane"),
        (HEAD + "@plane z=0\n@plane z=-0\n", "duplicatePlane"),
        *((HEAD + f"@plane z={z}\n", "invalidPlaneDirective") for z in ("top", "0x10", "inf", "nan", "1,000", "1e999", "٣", "1_0", "")),
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused_by_the_formats_own_names(text: str, fault: str) -> None:
    with pytest.raises(Bad3md) as caught:
        read_3md(text)
    assert caught.value.fault == fault
    assert str(caught.value).startswith(f"{fault}: ")


@pytest.mark.parametrize(("written", "z"), [("5.", 5), (".5", 0.5), ("-2.5", -2.5), ("1e3", 1000), ("+7", 7)])
def test_a_position_is_any_finite_decimal(written: str, z: float) -> None:
    assert read_3md(f"{HEAD}@plane z={written}\n").planes[0].z == z
