"""Values that carry a little arithmetic."""

from __future__ import annotations

import pytest

from admission.core.model import Sample
from admission.vocabulary import Outcome


@pytest.mark.parametrize(
    ("fields", "tpot_s"),
    [
        ({"e2e_s": 2.0, "ttft_s": 1.0, "output_tokens": 11}, 0.1),
        ({"decode_s": 0.5, "e2e_s": 2.0, "ttft_s": 1.0, "output_tokens": 11}, 0.05),
        ({"e2e_s": 2.0, "ttft_s": 1.0, "output_tokens": 1}, None),
        ({"e2e_s": 2.0, "output_tokens": 11}, None),
        ({"e2e_s": 2.0, "ttft_s": 1.0}, None),
    ],
)
def test_tpot_is_told_only_when_it_can_be(fields: dict[str, float], tpot_s: float | None) -> None:
    """The engine's own decode time is free of the front end's lag; an answer of one token has no TPOT."""
    assert Sample(0.0, Outcome.OK, **fields).tpot_s == tpot_s  # type: ignore[arg-type]
