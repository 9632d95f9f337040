"""What rules decide: pure, by table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from auth.values.identity_model import Principal, PrincipalKind
from server.calls.policy.rule_decisions import (
    ANOTHER_TYPE,
    NO_RULE,
    UNREADABLE,
    PolicyFacts,
    PolicyRule,
    decide,
    facts_of,
)
from server.settings.rule_settings import RuleConfig
from server.store.limits.usage_meters import STRANGERS
from tests.calls.policy.governing import governing

MOST_STRANGERS = 5_000


def rules(*tables: dict[str, Any]) -> list[PolicyRule]:
    return [
        PolicyRule(msgspec.convert({"tools": ["*"], **table}, RuleConfig), place)
        for place, table in enumerate(tables, 1)
    ]


def facts(arguments: dict[str, Any] | None = None, **more: Any) -> PolicyFacts:
    given: dict[str, Any] = {
        "kind": "user",
        "scopes": frozenset({"mcp:tools"}),
        "people": ("alice",),
        "programs": ("claude",),
    }
    given |= {"tool": "delete_page", "arguments": arguments or {}, **more}
    return PolicyFacts(**given)


def verdict(table: dict[str, Any], **of: Any) -> str:
    arguments = of.pop("arguments", None)
    return decide(rules({"decision": "deny", **table}), facts(arguments, **of)).verdict


@pytest.mark.parametrize(
    ("table", "of", "expected"),
    [
        ({}, {}, "deny"),
        ({"who": {"kind": ["api_key", "client"]}}, {}, "allow"),
        ({"who": {"kind": ["api_key", "user"]}}, {}, "deny"),
        ({"who": {"scope": "mcp:tools:write"}}, {}, "deny"),  # which is part of what they have
        ({"who": {"scope": "financial"}}, {}, "allow"),
        ({"who": {"scope": "mcp financial"}}, {"scopes": frozenset({"mcp"})}, "allow"),
        ({"who": {"scope": "financial"}}, {"kind": "local", "scopes": frozenset()}, "deny"),
        ({"who": {"person": ["bob", "ali*"]}}, {}, "deny"),
        ({"who": {"person": ["bob"]}}, {}, "allow"),
        ({"who": {"person": ["*"]}}, {"people": ()}, "allow"),  # there is nobody
        ({"who": {"program": ["cl?ude"]}}, {}, "deny"),
        ({"who": {"program": ["CLAUDE"]}}, {}, "allow"),
        ({"who": {"program": ["https://*"]}}, {"programs": ("https://a.example/c",)}, "deny"),
        ({"who": {"program": ["https://a.example"]}}, {"programs": ("https://a.example/c",)}, "deny"),
        (
            {"who": {"program": ["https://*.a.example/c"]}},
            {"programs": ("https://evil.example/x.a.example/c",)},
            "allow",
        ),
        ({"who": {"program": ["*.a.example"]}}, {"programs": ("https://evil.example/x.a.example",)}, "allow"),
        ({"who": {"program": ["*"]}}, {"programs": ()}, "allow"),
        ({"who": {"program": ["cli_*"]}}, {"programs": (), "program_id": "cli_7"}, "allow"),
        ({"who": {"program": ["cli_7"]}}, {"programs": (), "program_id": "cli_7"}, "deny"),
        ({"who": {"program": ["claude"]}}, {"programs": (), "claims_to_be": "claude"}, "allow"),
        ({"who": {"claims_to_be": ["cl*"]}}, {"programs": (), "claims_to_be": "claude"}, "deny"),
        ({"who": {"claims_to_be": ["cl*"]}}, {"programs": ("claude",)}, "allow"),
        ({"who": {"kind": ["user"], "person": ["bob"]}}, {}, "allow"),  # all of it
        ({"when": {"path": {"matches": "^/etc/"}}}, {"arguments": {"path": "/etc/passwd"}}, "deny"),
        ({"when": {"path": {"matches": "^/etc/"}}}, {"arguments": {"path": "/srv/etc/"}}, "allow"),
        ({"when": {"path": {"matches": "^/etc/"}}}, {"arguments": {}}, "allow"),
        ({"when": {"days": {"above": 3}}}, {"arguments": {"days": 3.5}}, "deny"),
        ({"when": {"days": {"above": 3}}}, {"arguments": {"days": 10**400}}, "deny"),
        ({"when": {"a.b.c": "x"}}, {"arguments": {"a": {"b": {"c": "x"}}}}, "deny"),
        ({"when": {"force": {"exists": False}}}, {"arguments": {}}, "deny"),
        ({"when": [{"a": 1}, {"b": 2}]}, {"arguments": {"b": 2}}, "deny"),
        ({"when": {"$schema": {"required": ["x"]}}}, {"arguments": {"x": None}}, "deny"),
    ],
)
def test_a_rule_fits_what_it_says(table: dict[str, Any], of: dict[str, Any], expected: str) -> None:
    assert verdict(table, **of) == expected


OTHER_TYPES: list[tuple[Any, Any]] = [
    *[({"above": 1000}, value) for value in ("5000", "1", [5000], {"v": 5000}, True)],
    ({"atMost": 3}, "1"),
    *[(1, value) for value in ("1", [1], {"v": 1}, True)],
    *[("x", value) for value in (["x"], {"v": "x"}, 7, False)],
    *[(True, value) for value in ("true", 1, [True])],
    ({"in": ["a", "b"]}, ["a"]),
    ({"in": [1, 2]}, "1"),
    ({"matches": "^/etc/"}, ["/etc/passwd"]),
    ({"contains": "/etc"}, {"path": "/etc"}),
    ({"contains": 5}, "5"),
    ({"contains": 5}, ["5"]),
    ({"contains": "x"}, [["x"]]),
    ({"not": 5}, "5"),
    ([1, 2], ["1", 2]),
    ([1, 2], "1,2"),
    ({"x": {"y": 1}}, {"x": {"y": "1"}}),
]


@pytest.mark.parametrize(("compared", "value"), OTHER_TYPES)
@pytest.mark.parametrize(("path", "inside"), [("a", False), ("a.b", True)])
@pytest.mark.parametrize(("decision", "expected"), [("deny", "deny"), ("ask", "ask"), ("allow", "deny")])
def test_another_type_than_a_rule_compares_with_gets_nobody_past_it(
    compared: Any, value: Any, path: str, inside: bool, decision: str, expected: str
) -> None:
    rule = {"decision": decision, "when": {path: compared}}
    given = facts({"a": {"b": value} if inside else value})
    assert (
        decide(rules(rule, {"decision": "deny" if decision == "allow" else "allow"}), given).verdict
        == expected
    )


@pytest.mark.parametrize(("compared", "value"), OTHER_TYPES)
@pytest.mark.parametrize("path", ["a", "a.b"])
@pytest.mark.parametrize("after", [None, "allow", "ask", "deny"])
def test_another_type_gets_nobody_past_a_budget_or_into_it(
    compared: Any, value: Any, path: str, after: str | None
) -> None:
    bounded = {"decision": "allow", "max_calls": 2, "when": {path: compared}}
    several = rules(bounded, *([{"decision": after}] if after else []))
    found = decide(several, facts({"a": {"b": value} if path == "a.b" else value}))
    assert (found.verdict, found.rule, found.reason) == ("deny", "rule 1", ANOTHER_TYPE)


def test_a_budget_counts_what_plainly_fits_and_leaves_the_rest_to_other_rules() -> None:
    several = rules(
        {"decision": "allow", "max_calls": 2, "when": {"amount": {"above": 100}}},
        {"decision": "ask", "when": {"amount": {"above": 50}}, "max_calls": 1},
    )
    assert decide(several, facts({"amount": 500})).max_calls == 2
    assert decide(several, facts({"amount": 70})).verdict == "ask"
    for arguments in ({"amount": 5}, {"amount": None}, {}):
        assert decide(several, facts(arguments)) is NO_RULE
    # Of somebody else's calls it says nothing, in whatever type.
    others = rules(
        {"decision": "allow", "max_calls": 2, "when": {"a": 1}, "who": {"kind": ["api_key"]}},
    )
    assert decide(others, facts({"a": "1"})) is NO_RULE


@pytest.mark.parametrize("value", ["DE", ["DE"], [{"country": "DE"}], 7])
@pytest.mark.parametrize("when", ["DE", {"exists": True}, {"exists": False}])
def test_a_path_through_what_is_no_object_is_in_doubt_as_well(value: Any, when: Any) -> None:
    for decision, expected in (("deny", "deny"), ("ask", "ask"), ("allow", "deny")):
        rule = {"decision": decision, "when": {"place.country": when}}
        last = {"decision": "deny" if decision == "allow" else "allow"}
        assert decide(rules(rule, last), facts({"place": value})).verdict == expected


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ({"a": {"above": 3}}, {}),
        ({"a": {"above": 3}}, {"a": None}),  # as if it were not there
        ({"a": {"above": 3}}, {"a": 2}),
        ({"a.b": 1}, {"a": None}),
        ({"a": 1}, {"a": 2.0}),
        ({"a": "x"}, {"a": "y"}),
        ({"a": {"in": ["true", True]}}, {"a": "false"}),
        ({"a": {"in": []}}, {"a": "x"}),
        ({"a": {"contains": "x"}}, {"a": ["y", "z"]}),
        ({"a": {"not": 5}}, {"a": 5}),
        ({"a": [1, 2]}, {"a": [1, 3]}),
        ({"a": {"x": {"y": 1}}}, {"a": {"x": {"y": 2}}}),
        ({"a": {"x": {"y": 1}}}, {"a": {"x": {"y": 1}, "z": 1}}),
        ({"a": 1, "b": 1}, {"a": "1", "b": 2}),
        ([{"a": 1}, {"b": 1}], {"a": 2, "b": 2}),
    ],
)
def test_a_rule_that_denies_lets_through_what_plainly_does_not_fit(
    when: Any, arguments: dict[str, Any]
) -> None:
    assert verdict({"when": when}, arguments=arguments) == "allow"


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ({"a": {"above": 3}}, {"a": 3.5}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": {"not": 5}}, {"a": 6}),
        ({"a": {"contains": "x"}}, {"a": ["y", "x"]}),
        ({"a": {"contains": "x"}}, {"a": "yxy"}),
        ({"a": [1, "b"]}, {"a": [1, "b"]}),
        ({"a": []}, {"a": []}),
        ({"a": {"x": {"y": 1}}}, {"a": {"x": {"y": 1}}}),
        ({"a.b": {"exists": False}}, {"a": {}}),
        ({"a.b": {"exists": False}}, {}),
    ],
)
def test_a_rule_that_allows_lets_through_what_plainly_fits(when: Any, arguments: dict[str, Any]) -> None:
    several = rules({"decision": "allow", "when": when}, {"decision": "deny"})
    assert decide(several, facts(arguments)).verdict == "allow"


def test_the_first_rule_that_fits_decides_and_without_one_a_call_is_allowed() -> None:
    several = rules(
        {"decision": "allow", "when": {"dry": True}, "name": "dry runs"},
        {"decision": "ask", "when": {"pages": {"atMost": 2}}, "reason": "pages are lost"},
        {"decision": "deny", "reason": "it is too much at once"},
    )
    assert decide(several, facts({"dry": True})).rule == "dry runs"
    asked = decide(several, facts({"pages": 1}))
    assert (asked.verdict, asked.rule, asked.reason) == ("ask", "rule 2", "pages are lost")
    assert decide(several, facts({"pages": 9})).reason == "it is too much at once"
    assert decide(several[:2], facts({"pages": 9})) is NO_RULE


def test_globs_name_tools() -> None:
    (rule,) = rules({"tools": ["delete_*", "move"], "decision": "deny"})
    assert [rule.speaks_of(tool) for tool in ("delete_page", "move", "moved", "undelete_x", "Delete_page")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"path": "/etc/passwd"}
    for _ in range(depth):
        value = {"a": value}
    return value


def test_arguments_that_are_nested_very_deeply_are_looked_into_as_far_as_a_rule_goes() -> None:
    assert verdict({"when": {"a.a.a": {"not": 1}}}, arguments=nested(100_000)) == "deny"
    assert verdict({"when": {"a.a.a": {"equals": {"b": 1}}}}, arguments=nested(100_000)) == "allow"


@pytest.mark.parametrize("arguments", [{"path": "/etc/\ud83d"}, {"path": ["\ud83d"]}])
def test_a_call_does_not_get_past_a_rule_by_being_no_text(arguments: dict[str, Any]) -> None:
    table = {"decision": "deny", "when": {"path": {"contains": "x"}}, "reason": "no"}
    found = decide(rules(table), facts(arguments))
    assert (found.verdict, found.rule, found.reason) == ("deny", "rule 1", UNREADABLE)
    # Also where the rule would let it through.
    assert decide(rules({**table, "decision": "allow"}), facts(arguments)).verdict == "deny"


def test_a_pattern_is_asked_in_a_time_that_grows_with_the_text_alone() -> None:
    (rule,) = rules({"decision": "deny", "when": {"text": {"matches": "^(a+)+$"}}})
    assert rule.fits(facts({"text": "a" * 1_000_000}))
    assert not rule.fits(facts({"text": "a" * 1_000_000 + "b"}))  # where others never come back


def test_facts_are_what_the_principal_is_known_by() -> None:
    key = Principal(
        kind=PrincipalKind.API_KEY,
        subject="key-1",
        client_id="c",
        user="user-7",
        person="alice",
        program="deploys",
        known_as=("deploys", "key-1"),
        scopes=frozenset({"mcp"}),
    )
    found = facts_of(key, "t", {"a": 1})
    assert (found.kind, found.people, found.programs, found.claims_to_be) == (
        "api_key", ("alice", "user-7", "key-1"), ("deploys", "key-1"), "",
    )  # fmt: skip
    claiming = msgspec.structs.replace(key, known_as=(), client_id="https://a.example/c")
    found = facts_of(claiming, "t", {})
    assert (found.programs, found.program_id, found.claims_to_be) == ((), "", "deploys")


async def test_strangers_beyond_so_many_share_a_budget() -> None:
    async with governing({"name": "main"}) as made:
        budgets = made.desk.budgets
        names = {budgets.callers.name(f"10.0.{n >> 8}.{n & 255}", known=False) for n in range(MOST_STRANGERS)}
        assert len(names) == MOST_STRANGERS
        assert budgets.callers.name("10.9.9.9", known=False) == STRANGERS
        assert budgets.callers.name("user:x", known=True) == "user:x"
        made.now[0] += 24 * 3_600_000
        assert budgets.callers.name("10.9.9.9", known=False) == "10.9.9.9"
