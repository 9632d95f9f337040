"""Which URIs a template matches, what its variables then are, and which templates and URIs are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.mcp.uri_template import (
    MAX_COMPARED,
    MAX_TEMPLATE,
    MAX_VARIABLES,
    BadTemplate,
    UriTemplate,
)

HARMLESS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=12
).filter(lambda text: text != "..")
PATHS = st.lists(HARMLESS, min_size=1, max_size=4).map("/".join)
# A value of the reserved form keeps its "?" and "#", where the query or fragment of the template begins.
PATHS_BEFORE_A_QUERY = PATHS.filter(lambda path: not set("?#") & set(path))


@pytest.mark.requirement("resources.templates")
@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("test://fixed", "test://fixed", {}),
        ("test://x/{id}", "test://x/1", {"id": "1"}),
        ("test://x/{id}/data", "test://x/a:b@c/data", {"id": "a:b@c"}),
        ("test://x/{id}", "test://x/a%20b%C3%A9", {"id": "a bé"}),
        ("test://x/{id}", "test://x/é", {"id": "é"}),
        ("test://x/{a}/{b}", "test://x/1/2", {"a": "1", "b": "2"}),
        ("test://x/{a}-{b}", "test://x/1-2-3", {"a": "1-2", "b": "3"}),
        ("test://x/{name}.{ext}", "test://x/a.tar.gz", {"name": "a.tar", "ext": "gz"}),
        ("test://x/{id}.json", "test://x/a.json.json", {"id": "a.json"}),
        ("map://{x,y}", "map://1,2", {"x": "1", "y": "2"}),
        ("test://x/{+path}", "test://x/a/b?c#d", {"path": "a/b?c#d"}),
        ("test://{+path}/x/{id}", "test://p/x/q/x/r", {"path": "p/x/q", "id": "r"}),
        ("file://{+path}", "file:///a/b", {"path": "/a/b"}),
        ("test://x{/a,b}", "test://x/1/2", {"a": "1", "b": "2"}),
        ("test://x{/a,b}", "test://x/1", {"a": "1"}),
        ("test://x{/a,b}", "test://x", {}),
        ("test://x{/path*}", "test://x/a/b%20c/d", {"path": "a/b c/d"}),
        ("test://x/{name}{.ext}", "test://x/a.tar.gz", {"name": "a", "ext": "tar.gz"}),
        ("test://x/{name}{.ext}", "test://x/a", {"name": "a"}),
        ("test://x{;a,b}", "test://x;a=1;b", {"a": "1", "b": ""}),
        ("test://x{;a,b}", "test://x;b=2", {"b": "2"}),
        ("test://x{?q,page}", "test://x?q=a%26b&page=2", {"q": "a&b", "page": "2"}),
        ("test://x{?q,page}", "test://x?page=2&q=", {"page": "2", "q": ""}),
        ("test://x{?q,page}", "test://x", {}),
        ("test://x{?q}", "test://x?q=a/b", {"q": "a/b"}),
        ("test://x?fixed=1{&q}", "test://x?fixed=1&q=2", {"q": "2"}),
        ("test://x/{+p}?a=1{&q}", "test://x/b/c?a=1&q=2", {"p": "b/c", "q": "2"}),
        ("test://x?a={a}{&q}", "test://x?a=1&q=2", {"a": "1", "q": "2"}),
        ("test://x?a={a}&b={b}", "test://x?a=1&b=2", {"a": "1", "b": "2"}),
        ("test://{+path}{?q}", "test://a/b?q=1", {"path": "a/b", "q": "1"}),
        ("test://{+path}{?q}{#at}", "test://a/b?q=1#c/d?e", {"path": "a/b", "q": "1", "at": "c/d?e"}),
        ("test://x{#at}", "test://x", {}),
        ("{+any}", "https://elsewhere.example/a?b", {"any": "https://elsewhere.example/a?b"}),
    ],
)
def test_a_uri_of_the_template_gives_its_variables_decoded(
    template: str, uri: str, values: dict[str, str]
) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("test://fixed", "test://fixed/"),
        ("test://x/{id}", "test://x/"),
        ("test://x/{id}", "test://x/1/2"),
        ("test://x/{id}", "test://x/1?a=2"),
        ("test://x/{id}", "test://x/1#a"),
        ("test://x/{id}", "TEST://x/1"),
        ("test://x/{id}", "test://x/a b"),
        ("test://x/{id}", "test://x/a\n"),
        ("test://x/{id}", "test://x/100%"),
        ("test://x/{id}", "test://x/%zz"),
        ("test://x/{id}", "test://x/%ff"),
        ("map://{x,y}", "map://1"),
        ("map://{x,y}", "map://1,2,3"),
        ("test://x{?q}", "test://x?"),
        ("test://x{?q}", "test://x?r=1"),
        ("test://x{?q}", "test://x?q=1&q=2"),
        ("test://x{?q}", "test://x?q=1&r=2"),
        ("test://x?a={a}", "test://x?a=1&b=2"),
        ("test://x{/path*}", "test://x/"),
        ("test://x{;a}", "test://x;ab=1"),
    ],
)
def test_any_other_uri_is_no_match(template: str, uri: str) -> None:
    assert UriTemplate(template).match(uri) is None


@pytest.mark.requirement("resources.traversal")
@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("test://x/{id}", "test://x/.."),
        ("test://x/{id}", "test://x/%2e%2E"),
        ("test://x/{id}", "test://x/a%2Fb"),
        ("test://x/{id}", "test://x/..%2f..%2fetc"),
        ("test://x/{id}", "test://x/a%5Cb"),
        ("test://x/{id}", "test://x/a%00"),
        ("test://x/{+path}", "test://x/a/../../etc"),
        ("test://x/{+path}", "test://x/a/%2e./etc"),
        ("test://x/{+path}", "test://x/a%2f..%2fetc"),
        ("test://x/{+path}", "test://x/a%5C..%5Cetc"),
        ("test://x/{+path}", "test://x//etc/passwd"),
        ("test://x/{+path}", "test://x/%2Fetc/passwd"),
        ("test://{+path}", "test:///etc/passwd"),
        ("file://{+path}", "file:///srv/../etc/passwd"),
        ("test://x/{+path}", "test://x/a%00"),
        ("test://x{/path*}", "test://x/a/../b"),
        ("test://x{/path*}", "test://x//etc"),
        ("test://x{/path*}", "test://x/a%2Fb"),
        ("test://x{/path*}", "test://x/%5Cetc"),
        ("test://x{/a}", "test://x/.."),
        ("test://x{.a}", "test://x..%2Fb"),
        ("test://x{;a}", "test://x;a=.."),
        ("test://x{?a}", "test://x?a=../b"),
        ("test://x{?a}", "test://x?a=%00"),
        ("test://x{#a}", "test://x#../b"),
    ],
)
def test_a_value_that_could_lead_out_of_a_directory_is_no_match(template: str, uri: str) -> None:
    assert UriTemplate(template).match(uri) is None


def test_dots_that_are_no_path_segment_of_their_own_are_just_dots() -> None:
    assert UriTemplate("test://x/{id}").match("test://x/a..b") == {"id": "a..b"}
    assert UriTemplate("test://x/{id}").match("test://x/...") == {"id": "..."}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "1 to"),
        ("x" * (MAX_TEMPLATE + 1), "1 to"),
        ("test://{id", "without its }"),
        ("test://id}", "without its {"),
        ("test://{a{b}}", "no name of a variable"),
        ("test://{}", "no name of a variable"),
        ("test://{a-b}", "no name of a variable"),
        ("test://{a,}", "no name of a variable"),
        ("test://{.}", "no name of a variable"),
        ("test://{%41}", "no name of a variable"),
        ("test://a b", "percent-encoded"),
        ("test://é", "percent-encoded"),
        ("test://%zz", "percent-encoded"),
        ("test://{=a}", "operator = is reserved"),
        ("test://{|a}", "operator | is reserved"),
        ("test://{a:3}", "prefix"),
        ("test://{+a:3}", "prefix"),
        ("test://{a*}", "list"),
        ("test://{?a*}", "list"),
        ("test://{/a,b*}", "list"),
        ("test://{/a*,b}", "list"),
        ("test://{+a,b}", "one of several"),
        ("test://{#a,b}", "one of several"),
        ("test://{.a,b}", "one of several"),
        ("test://{a}{b}", "where {a} ends"),
        ("test://{a}{+b}", "where {a} ends"),
        ("test://{+a}{/b}", "takes all that"),
        ("test://{/a*}{/b}", "takes all that"),
        ("test://{?a}/b", "only a fragment"),
        ("test://{?a}{b}", "only a fragment"),
        ("test://{?a}{&b}", "only a fragment"),
        ("test://{#a}b", "nothing can follow"),
        ("test://{a}/{a}", "stands in it twice"),
        ("test://" + "/".join(f"{{v{n}}}" for n in range(MAX_VARIABLES + 1)), "at most"),
    ],
)
def test_a_template_that_cannot_be_matched_is_refused_with_the_reason(template: str, reason: str) -> None:
    with pytest.raises(BadTemplate) as refused:
        UriTemplate(template)
    assert reason in str(refused.value)


def test_the_variables_are_listed_in_their_order() -> None:
    assert UriTemplate("test://{b}/{a}{?d,c}").variables == ("b", "a", "d", "c")


def test_a_uri_that_is_too_long_is_no_match() -> None:
    template = UriTemplate("test://{+a}")
    assert template.match("test://" + "a" * (MAX_COMPARED - 7)) is not None
    assert template.match("test://" + "a" * (MAX_COMPARED - 6)) is None


def test_a_template_full_of_choices_does_not_try_them_one_by_one() -> None:
    """Thirty variables between the same letter, and a URI that fits but for its end: backtracking would not come back."""
    template = UriTemplate("a".join(f"{{v{n}}}" for n in range(30)) + "/end")
    assert template.match("a" * (MAX_COMPARED - 4) + "/eng") is None
    assert template.match("a" * (MAX_COMPARED - 4) + "/end") is not None
    assert template.match("/end") is None


@given(
    values=st.fixed_dictionaries(
        {"a": HARMLESS, "b": HARMLESS, "path": PATHS_BEFORE_A_QUERY},
        optional={
            "c": HARMLESS.filter(lambda text: text != "y"),  # "/y/y" would be read as the end of the path
            "m": HARMLESS | st.just(""),
            "q": PATHS | st.just(""),
            "r": HARMLESS,
            "at": PATHS,
        },
    )
)
def test_what_was_expanded_is_matched_with_the_same_values(values: dict[str, str]) -> None:
    template = UriTemplate("test://host/{a},{b}/x/{+path}/y{/c}{;m}{?q,r}{#at}")
    uri = template.expand(values)
    assert template.match(uri) == values


@given(values=st.fixed_dictionaries({"a": HARMLESS, "b": HARMLESS}), rest=PATHS)
def test_two_readings_of_a_uri_expand_to_the_same_uri(values: dict[str, str], rest: str) -> None:
    """A "-" in a value is not encoded, so where the first value ends is a choice; it is never one that does not fit."""
    template = UriTemplate("test://{a}-{b}{/rest*}")
    uri = template.expand({**values, "rest": rest})
    found = template.match(uri)
    assert found is not None
    assert template.expand(found) == uri


def test_a_variable_that_cannot_be_left_out_needs_a_value_to_expand() -> None:
    assert UriTemplate("test://x{/a}{?b}").expand({}) == "test://x"
    with pytest.raises(KeyError):
        UriTemplate("test://{a}").expand({})


@given(st.text("abc:/{}+#.;?&,*%2Ff=\n é", max_size=30), st.text("abc:/+#.;?&,*%2Ff=\n é", max_size=30))
def test_no_text_makes_a_template_or_a_match_fail_otherwise(template: str, uri: str) -> None:
    try:
        parsed = UriTemplate(template)
    except BadTemplate:
        return
    found = parsed.match(uri)
    assert found is None or set(found) <= set(parsed.variables)
