"""What "good" means: TTFT and TPOT targets of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SloConfig:
    """Targets in seconds. TTFT grows with the prompt; None: the class has no TTFT target."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    ttft_s: float | None = 2.0
    """Time to first token of an empty prompt, in seconds; unset: no target, and no forecast refuses the class."""
    ttft_per_1k_s: float = 0.25
    """Seconds more for each thousand prompt tokens."""
    tpot_s: float = 0.08
    """Time per output token, in seconds: what the limit steers by."""

    def __post_init__(self) -> None:
        if self.ttft_s is not None and not self.ttft_s > 0:
            raise ValueError(f"ttft_s must be over 0, not {self.ttft_s}")
        if not self.ttft_per_1k_s >= 0:
            raise ValueError(f"ttft_per_1k_s must not be negative, not {self.ttft_per_1k_s}")
        if not self.tpot_s > 0:
            raise ValueError(f"tpot_s must be over 0, not {self.tpot_s}")

    def ttft_for(self, prompt_tokens: int) -> float | None:
        """The TTFT target of a prompt of that length, in seconds."""
        if self.ttft_s is None:
            return None
        return self.ttft_s + self.ttft_per_1k_s * prompt_tokens / 1000.0

    def met(self, prompt_tokens: int, ttft_s: float | None, tpot_s: float | None) -> bool | None:
        """Were the targets met? None when a target's value was not seen; an answer of one token has no TPOT."""
        target = self.ttft_for(prompt_tokens)
        if target is not None and ttft_s is None:
            return None
        late = target is not None and ttft_s is not None and ttft_s > target
        slow = tpot_s is not None and tpot_s > self.tpot_s
        return not (late or slow)


INTERACTIVE_SLO = SloConfig()
BACKGROUND_SLO = SloConfig(ttft_s=None, tpot_s=0.2)
