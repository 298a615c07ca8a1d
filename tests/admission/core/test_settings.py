"""Settings that make no sense are refused, each by its name."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.settings import (
    ClassConfig,
    ControllerConfig,
    KvForecastConfig,
    RetryAfterConfig,
)
from admission.core.slo import SloConfig


def test_the_settings_check_themselves() -> None:
    """All of them, by name."""
    refused: tuple[dict[str, Any], ...] = (
        {"classes": {}},
        {"ageing_s": 0.0},
        {"limit_room": 1.0},
        {"kv_room": 1.0},
        {"yield_s": -1.0},
    )
    for bad in refused:
        with pytest.raises(ValueError, match=next(iter(bad))):
            ControllerConfig(**bad)
    for field, value in (
        ("patience_s", -1.0),
        ("queue_tickets", -1),
        ("queue_rate_s", 0.0),
        ("overtaken_s", -1.0),
    ):
        with pytest.raises(ValueError, match=field):
            ClassConfig(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="min_s"):
        RetryAfterConfig(min_s=9.0, max_s=1.0)
    with pytest.raises(ValueError, match="jitter"):
        RetryAfterConfig(jitter=1.0)
    with pytest.raises(ValueError, match="set_point"):
        KvForecastConfig(set_point=0.0)
    with pytest.raises(ValueError, match="output_share"):
        KvForecastConfig(output_share=0.0)
    assert ClassConfig(slo=SloConfig(ttft_s=None)).patience == 10.0


def test_a_large_prompt_may_wait_longer_as_its_first_token_may_come_later() -> None:
    """Else a class whose target grows with the prompt would give its large ones up with most of their time left."""
    grows = SloConfig(ttft_s=2.0, ttft_per_1k_s=0.25)
    assert ClassConfig(slo=grows).patience_for(0) == 1.5
    assert ClassConfig(slo=grows).patience_for(8_000) == 3.0
    assert ClassConfig(slo=grows, patience_s=1.0).patience_for(8_000) == 1.0
    assert ClassConfig(slo=SloConfig(ttft_s=None)).patience_for(8_000) == 10.0
