"""Tickets find their target by name or model, and those that find none are counted within bounds."""

from __future__ import annotations

from admission.runtime.routes import Routes


def routes() -> Routes:
    """Two targets; the second takes what the first leaves."""
    return Routes({"chat": ("llama*", "qwen-*"), "embed": ("bge-?",)})


def test_a_name_wins_over_the_model() -> None:
    """The caller may know better."""
    assert routes().find("embed", "llama-3") == "embed"


def test_a_model_finds_its_target_by_glob() -> None:
    """Names of models carry sizes and versions."""
    found = routes()

    assert [found.find("", model) for model in ("llama-3", "qwen-2", "bge-m")] == ["chat", "chat", "embed"]


def test_a_ticket_without_a_model_goes_to_the_first_target() -> None:
    """A middleware that cannot read the body still wants a permit."""
    assert routes().find("", "") == "chat"


def test_unknown_names_and_models_find_nothing_and_are_counted() -> None:
    """They pass, and the operator must be able to see which."""
    found = routes()

    assert found.find("", "mixtral") is None
    assert found.find("other", "llama-3") is None
    assert found.find("", "mixtral") is None
    assert found.unknown == {"model mixtral": 2, "target other": 1}


def test_invented_names_do_not_fill_the_memory() -> None:
    """Names come from callers."""
    found = routes()
    for number in range(10_000):
        found.find("", f"invented-{number}")

    assert len(found.unknown) <= 65
    assert sum(found.unknown.values()) == found.unknown_total == 10_000
    assert len(found._cache) <= 4096
