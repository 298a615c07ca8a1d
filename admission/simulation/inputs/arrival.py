"""The one record of a request that is to be simulated, and the error of an input that cannot be one."""

from __future__ import annotations

from dataclasses import dataclass

from admission.vocabulary import PriorityClass

DEFAULT_MAX_TOKENS = 2_048


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. Seconds from the start; an answer of 0 tokens is one that was never given (or an embedding)."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    priority: PriorityClass = PriorityClass.INTERACTIVE
    tenant: str = ""
    """Empty: anonymous."""
    session: str = ""
    model: str = ""
    """The target, when a scenario has several."""
    max_tokens: int = DEFAULT_MAX_TOKENS
    """What the caller asks for at most."""
    stream: bool = True
    cached_tokens: int = 0
    """Leading prompt tokens that the engine's prefix cache can serve: they need no prefill."""
    shared_tokens: int = 0
    """Of the cached ones, those that others hold already (a shared system prompt): they need no KV of their own."""
    prefix: str = ""
    """Name of the shared prefix: cold after the cache was flushed, until one such request has been prefilled."""

    def at(self, at_s: float) -> Arrival:
        """The same request at another moment."""
        # dataclasses.replace looks every field up by name and takes five times as long.
        return Arrival(
            at_s,
            self.prompt_tokens,
            self.output_tokens,
            self.priority,
            self.tenant,
            self.session,
            self.model,
            self.max_tokens,
            self.stream,
            self.cached_tokens,
            self.shared_tokens,
            self.prefix,
        )


class TraceError(ValueError):
    """An input that cannot be read, in one line: file, row and column, what is wrong."""
