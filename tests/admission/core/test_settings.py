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
