"""What a ranking of texts finds for the words of a question."""

from __future__ import annotations

import pytest

from server.lib.text_ranking import TextRanking, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserById", ["get", "user", "id"]),
        ("list_pull_requests", ["list", "pull", "request"]),
        ("HTTPServer queries", ["http", "serv", "query"]),
        ("creating an event, created events", ["creat", "event", "creat", "event"]),
        ("天気 12", ["天", "気", "12"]),
        ("glass", ["glass"]),
        ("", []),
    ],
)
def test_words_are_found_in_names_and_sentences(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_rare_words_and_heavy_parts_come_first() -> None:
    texts = [
        [("send_mail", 3.0), ("Sends a message to a person", 1.0)],
        [("list_messages", 3.0), ("Lists messages", 1.0)],
        [("weather", 3.0), ("The weather of a place, as a message", 1.0)],
    ]
    ranking = TextRanking(texts)
    assert ranking.best("message")[0] == 1 and len(ranking.best("message")) == 3
    assert ranking.best("send it") == [0]
    assert ranking.best("what is the weather message") == [2, 1, 0]
    assert ranking.best("nothing of it") == [] and TextRanking(()).best("x") == []
