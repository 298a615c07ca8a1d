"""What a ticket takes of the limit: prompt plus predicted output, in KV tokens, learned from the truth."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from admission.core.model import Ticket
from admission.core.stats import Mean, RunningQuantile
from admission.vocabulary import PriorityClass


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConfig:
    """How output length is predicted before anything is known, and how much is remembered."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    output_quantile: float = 0.6
    """A request is expected to put out this quantile of what its model and class put out lately."""
    initial_output_tokens: int = 256
    """Expected output until `min_samples` requests have ended."""
    min_samples: int = 10
    """Ended requests of a model and class after which their own lengths count."""
    window: int = 200
    """Ended requests that are remembered for it."""
    bytes_per_token: float = 4.0
    """Bytes of prompt for a token, until the engine's own counts have taught better."""
    max_models: int = 64
    """Models remembered; the longest unused is forgotten."""

    def __post_init__(self) -> None:
        if not 0.0 < self.output_quantile < 1.0:
            raise ValueError(f"output_quantile must be between 0 and 1, not {self.output_quantile}")
        for name in ("initial_output_tokens", "min_samples", "window", "max_models"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.bytes_per_token > 0:
            raise ValueError(f"bytes_per_token must be over 0, not {self.bytes_per_token}")


class Cost(NamedTuple):
    """The parts of a ticket's cost, in tokens."""

    prompt: int
    output: int
    total: int
    """What it takes of the limit."""


class _Learned:
    """What one model (or one class of it) has shown so far."""

    __slots__ = ("bytes_per_token", "outputs", "prompt", "tokens_per_chunk")

    def __init__(self, config: CostConfig) -> None:
        self.outputs = [RunningQuantile(config.window) for _ in PriorityClass]
        self.prompt = [Mean(512.0) for _ in PriorityClass]
        self.bytes_per_token = Mean(config.bytes_per_token)
        self.tokens_per_chunk = Mean(1.0)


class CostModel:
    """Predicts the cost of a ticket and learns from finished ones; bounded by `max_models`, the longest unused forgotten."""

    def __init__(self, config: CostConfig) -> None:
        self.config = config
        self._models: OrderedDict[str, _Learned] = OrderedDict()
        self.tokens_per_chunk = Mean(1.0)
        self._bytes_per_token = Mean(config.bytes_per_token)

    def predict(self, ticket: Ticket) -> Cost:
        """The cost as far as it can be told now. A list of n answers shares its prompt."""
        learned = self._of(ticket.flow.model)
        output = self._output(learned, ticket.priority)
        if ticket.max_tokens:
            output = min(output, ticket.max_tokens)
        prompt = ticket.prompt_tokens or self._prompt(learned, ticket)
        if ticket.n > 1:
            output *= ticket.n
        return Cost(prompt, output, prompt + output)

    def _prompt(self, learned: _Learned, ticket: Ticket) -> int:
        if not ticket.prompt_bytes:
            return int(learned.prompt[ticket.priority].value)
        ratio = learned.bytes_per_token if learned.bytes_per_token.count else self._bytes_per_token
        return max(1, int(ticket.prompt_bytes / ratio.value))

    def _output(self, learned: _Learned, priority: PriorityClass) -> int:
        outputs = learned.outputs[priority]
        if len(outputs) < self.config.min_samples:
            return self.config.initial_output_tokens
        return max(1, int(outputs.value(self.config.output_quantile)))

    def learn(
        self, ticket: Ticket, prompt_tokens: int | None, output_tokens: int | None, chunks: int
    ) -> None:
        """Take the truth of a finished request in; what is not known teaches nothing."""
        learned = self._of(ticket.flow.model)
        if prompt_tokens:
            learned.prompt[ticket.priority].add(prompt_tokens)
            if ticket.prompt_bytes and not ticket.prompt_tokens:
                ratio = ticket.prompt_bytes / prompt_tokens
                learned.bytes_per_token.add(ratio)
                self._bytes_per_token.add(ratio)
        if output_tokens:
            learned.outputs[ticket.priority].add(output_tokens / max(1, ticket.n))
            if chunks >= 2:
                learned.tokens_per_chunk.add(output_tokens / chunks)
                self.tokens_per_chunk.add(output_tokens / chunks)

    def tokens(self, model: str, chunks: int) -> float:
        """How many tokens that many streamed chunks carry."""
        learned = self._models.get(model)
        if learned is None or not learned.tokens_per_chunk.count:
            return chunks * self.tokens_per_chunk.value
        return chunks * learned.tokens_per_chunk.value

    def _of(self, model: str) -> _Learned:
        learned = self._models.get(model)
        if learned is not None:
            self._models.move_to_end(model)
            return learned
        learned = self._models[model] = _Learned(self.config)
        if len(self._models) > self.config.max_models:
            self._models.popitem(last=False)
        return learned

    def saved(self) -> dict[str, list[list[float]]]:
        """Recent output lengths by model, one list for each class in order of rank."""
        return {
            model: [learned.outputs[rank].values() for rank in PriorityClass]
            for model, learned in self._models.items()
        }

    def restore(self, outputs: dict[str, list[list[float]]]) -> None:
        """Go on from what was saved."""
        for model, by_rank in outputs.items():
            learned = self._of(model)
            for rank, lengths in zip(PriorityClass, by_rank, strict=False):
                for length in lengths:
                    learned.outputs[rank].add(length)
