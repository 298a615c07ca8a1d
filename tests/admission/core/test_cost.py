"""What a ticket costs before the truth is known, and how the truth teaches."""

from __future__ import annotations

import pytest

from admission.core.cost import CostConfig, CostModel
from admission.core.model import Flow, Ticket, TicketId
from admission.vocabulary import PriorityClass


def ticket(**fields: object) -> Ticket:
    """Any ticket."""
    return Ticket(TicketId("s", 1), **fields)  # type: ignore[arg-type]


def test_before_anything_is_known_the_answer_is_guessed() -> None:
    """256 tokens, but never more than was asked for."""
    model = CostModel(CostConfig())
    assert model.predict(ticket(prompt_tokens=100)).total == 356
    assert model.predict(ticket(prompt_tokens=100, max_tokens=20)).total == 120


def test_n_answers_cost_n_times_their_output_and_one_prompt() -> None:
    """The prompt's KV is shared, the answers' is not."""
    cost = CostModel(CostConfig()).predict(ticket(prompt_tokens=100, max_tokens=10, n=4))
    assert (cost.prompt, cost.output) == (100, 40)


def test_the_answer_length_is_learned_per_class() -> None:
    """Batch answers say nothing of interactive ones."""
    model = CostModel(CostConfig())
    batch = ticket(prompt_tokens=1, priority=PriorityClass.BATCH)
    for length in range(10):
        model.learn(batch, 1, 1_000 + length, 0)

    assert model.predict(batch).output == 1_005
    assert model.predict(ticket(prompt_tokens=1)).output == 256


def test_bytes_become_tokens_by_a_learned_ratio() -> None:
    """The client sees text, the engine's usage tells the tokens; another model borrows the ratio until it has its own."""
    model = CostModel(CostConfig())
    text = ticket(prompt_bytes=4_000)
    assert model.predict(text).prompt == 1_000
    model.learn(text, 2_000, 5, 0)
    assert model.predict(text).prompt == 2_000
    assert model.predict(ticket(prompt_bytes=400, flow=Flow(model="other"))).prompt == 200


def test_a_ticket_of_unknown_length_costs_its_class_mean() -> None:
    """Multipart and huge bodies are not parsed."""
    model = CostModel(CostConfig())
    assert model.predict(ticket()).prompt == 512
    model.learn(ticket(), 90, None, 0)
    assert model.predict(ticket()).prompt == 90


def test_tokens_per_chunk_are_learned_per_model() -> None:
    """A server that streams sixteen tokens a chunk is not sixteen times slower."""
    model = CostModel(CostConfig())
    wide = ticket(flow=Flow(model="wide"))
    model.learn(wide, 10, 160, 10)
    assert model.tokens("wide", 3) == 48.0
    assert model.tokens("unseen", 1) == 16.0
    model.learn(wide, 10, 160, 1)
    assert model.tokens("wide", 1) == 16.0


def test_a_request_without_usage_teaches_nothing() -> None:
    """Unknown is not zero."""
    model = CostModel(CostConfig())
    model.learn(ticket(prompt_tokens=7), None, None, 5)
    assert model.predict(ticket(prompt_tokens=7)).total == 263


def test_models_are_bounded() -> None:
    """Ten thousand invented model names must not fill the memory."""
    model = CostModel(CostConfig(max_models=2))
    for name in ("a", "b", "c"):
        model.learn(ticket(flow=Flow(model=name)), 10, 20, 0)
    assert set(model.saved()) == {"b", "c"}


def test_what_was_learned_outlives_a_restart() -> None:
    """Saved and restored, the prediction is the same."""
    model, again = CostModel(CostConfig()), CostModel(CostConfig())
    for length in range(20):
        model.learn(ticket(prompt_tokens=1), 1, 100 + length, 0)
    again.restore(model.saved())
    assert again.predict(ticket(prompt_tokens=1)) == model.predict(ticket(prompt_tokens=1))


@pytest.mark.parametrize(
    "bad", [{"output_quantile": 1.0}, {"min_samples": 0}, {"window": 0}, {"bytes_per_token": 0.0}]
)
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    """At start, with the name."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        CostConfig(**bad)  # type: ignore[arg-type]
