"""How much a policy sees of the engine and of its own requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.core.model import Completion, Reading, Sample
from admission.simulation.callers import Call
from admission.simulation.fleet import Node
from admission.vocabulary import Outcome, SignalKind, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Header sight is `first_tokens` and `progress` off; `own_events` off takes usage away as well."""

    scrape_s: float | None = 1.0
    """How often the engines' metrics are read; None: never."""
    scrapes_lost: tuple[tuple[float, float], ...] = ()
    """(from, until): scrapes in it fail."""
    own_events: bool = True
    """Callers tell of first tokens, chunks and usage."""
    first_tokens: bool = True
    progress: bool = True
    progress_s: float = 0.25
    """How often callers tell of their new chunks."""
    chunk_tokens: int = 1
    """Tokens in one streamed chunk."""
    usage: bool = True
    """The answer's end says how many tokens it had, and how many came from the cache."""
    spans: bool = False
    """Each finished request is told by a span as well."""
    max_sequences: bool = False
    """The engine says how many sequences it runs at most."""

    def __post_init__(self) -> None:
        if self.scrape_s is not None and not self.scrape_s > 0:
            raise ValueError(f"scrape_s must be over 0, not {self.scrape_s}")
        if not self.progress_s > 0 or self.chunk_tokens < 1:
            raise ValueError("progress_s must be over 0 and chunk_tokens at least 1")

    @property
    def sees_first_tokens(self) -> bool:
        """Callers tell of first tokens."""
        return self.own_events and self.first_tokens

    @property
    def sees_progress(self) -> bool:
        """Callers tell of new chunks."""
        return self.own_events and self.progress

    def loses(self, now: float) -> bool:
        """Does a scrape of now fail?"""
        return any(start <= now < end for start, end in self.scrapes_lost)

    def readings(self, node: Node, now: float) -> Iterator[Reading]:
        """One scrape of one member, whose engine is caught up."""
        up = node.up and not self.loses(now)
        yield Reading(SignalKind.ENGINE_UP, float(up), now, Source.SCRAPE, node.name)
        if not up:
            return
        engine = node.engine
        config = engine.config
        yield Reading(SignalKind.KV_CAPACITY_TOKENS, config.kv_capacity_tokens, now, Source.SCRAPE, node.name)
        if self.max_sequences:
            yield Reading(SignalKind.MAX_SEQUENCES, config.max_num_seqs, now, Source.SCRAPE, node.name)
        yield Reading(SignalKind.RUNNING, engine.running, now, Source.SCRAPE, node.name)
        yield Reading(SignalKind.KV_USAGE_RATIO, engine.kv_usage_ratio, now, Source.SCRAPE, node.name)
        yield Reading(SignalKind.WAITING, engine.waiting, now, Source.SCRAPE, node.name)
        yield Reading(SignalKind.PREEMPTIONS_TOTAL, engine.preemptions_total, now, Source.SCRAPE, node.name)
        yield Reading(
            SignalKind.GENERATION_TOKENS_TOTAL, engine.generation_tokens_total, now, Source.SCRAPE, node.name
        )

    def completion(self, call: Call, now: float) -> Completion:
        """How a whole answer's end is told."""
        if not self.own_events:
            return Completion(Outcome.OK)
        told = Completion(Outcome.OK)
        if self.usage:
            told.prompt_tokens = call.arrival.prompt_tokens
            told.output_tokens = call.arrival.output_tokens
            told.cached_tokens = call.hit_tokens
        if call.stream and self.first_tokens and call.first_token_at is not None:
            told.engine_ttft_s = call.first_token_at - (call.admitted_at or 0.0)
            told.decode_s = now - call.first_token_at
        return told

    def span(self, call: Call, now: float) -> Sample:
        """What the engine's span says of a whole answer."""
        began_at = call.admitted_at if call.admitted_at is not None else call.began_at
        first_at = call.first_token_at if call.first_token_at is not None else now
        return Sample(
            now,
            Outcome.OK,
            e2e_s=now - began_at,
            ttft_s=first_at - began_at,
            prompt_tokens=call.arrival.prompt_tokens,
            output_tokens=call.arrival.output_tokens,
        )
