"""What a stand-in can be told: which engine, how fast, how it answers, where its spans go."""

from __future__ import annotations

from dataclasses import dataclass, replace

from admission.simulation.engine import EngineConfig
from admission.simulation.engines import calibration


@dataclass(frozen=True, kw_only=True, slots=True)
class StandInConfig:
    """Settings of one stand-in; zero means the calibration's own value for the engine's bounds."""

    engine: str = "rtx4090-llama3.1-8b"
    scale: float = 1.0
    """Speed relative to the calibration: 2 halves the duration of each step."""
    kv_capacity_tokens: int = 0
    max_num_seqs: int = 0
    step_tokens: int = 0
    max_model_len: int = 0
    """Longest prompt plus answer, in tokens; 0: what KV can hold."""
    max_num_queued_reqs: int = 0
    """vLLM's own static limit on requests waiting or running; 0: none."""
    model: str = "standin"
    tokens_per_chunk: int = 1
    noise_ratio: float = 0.03
    """Standard deviation of the logarithm of each step's noise factor."""
    seed: int = 0
    otlp_endpoint: str = ""
    """Where spans go by OTLP/gRPC; empty: no spans."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings that make no sense."""
        if self.tokens_per_chunk < 1:
            raise ValueError("tokens_per_chunk must be at least 1")
        if self.noise_ratio < 0 or min(self.max_model_len, self.max_num_queued_reqs) < 0:
            raise ValueError("noise_ratio, max_model_len and max_num_queued_reqs must not be negative")
        self.engine_config()

    def engine_config(self) -> EngineConfig:
        """The engine to run: the calibration at this speed, with the bounds that were given.

        Raises:
            ValueError: unknown calibration, or bounds that the engine refuses.
        """
        config = calibration(self.engine).scaled(self.scale)
        return replace(
            config,
            kv_capacity_tokens=self.kv_capacity_tokens or config.kv_capacity_tokens,
            max_num_seqs=self.max_num_seqs or config.max_num_seqs,
            step_tokens=self.step_tokens or config.step_tokens,
        )

    @property
    def context_tokens(self) -> int:
        """Longest prompt plus answer that is accepted."""
        capacity = self.engine_config().kv_capacity_tokens
        return min(self.max_model_len or capacity, capacity)
