"""Numbers are short, carry their unit, and never claim what is not known."""

from __future__ import annotations

import math
from datetime import UTC

import pytest

from dashboard import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0004, "0 ms"),
        (0.0412, "41 ms"),
        (0.9996, "1.00 s"),
        (1.238, "1.24 s"),
        (12.4, "12 s"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_a_latency_reads_at_a_glance(value: float | None, text: str) -> None:
    """Three digits are what a tired eye takes in."""
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.2, "<1 s"), (59, "59 s"), (99, "99 s"), (125, "2 min"), (7300, "2 h"), (200_000, "2 d"), (None, "-")],
)
def test_an_age_has_one_unit(value: float | None, text: str) -> None:
    """`4 min` needs no sum."""
    assert wording.ago(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(812, "812"), (8_000, "8,000"), (41_230, "41.2k"), (1_260_000, "1.26M"), (4.2e9, "4.2G"), (None, "-")],
)
def test_token_counts_stay_short(value: float | None, text: str) -> None:
    """A limit of four million tokens fits a card."""
    assert wording.count(value) == text


def test_a_rate_never_shows_zero_for_something_that_happened() -> None:
    """One refusal in a minute is not none."""
    assert [wording.rate(value) for value in (0, 0.01, 3.14, 140.2, None)] == ["0", "<0.1", "3.1", "140", "-"]


def test_a_share_below_all_never_rounds_up_to_all() -> None:
    """99.96 % within SLO is not 100 %."""
    assert [wording.share(9996, 10_000), wording.share(5, 5), wording.share(0, 0)] == ["99.9 %", "100 %", "-"]


def test_memory_is_in_binary_units() -> None:
    """The watermark's 512 MiB stands beside GPUs of 80 GiB."""
    assert [wording.size(value) for value in (512 * 2**20, 6.2 * 2**30, 141 * 2**30, None)] == [
        "512 MiB",
        "6.2 GiB",
        "141 GiB",
        "-",
    ]


@pytest.mark.parametrize("name", ["Nowhere/Land", "", None, "../../etc/passwd"])
def test_an_unknown_time_zone_is_utc_and_says_so(name: str | None) -> None:
    """A browser may send anything."""
    assert wording.zone(name) is UTC
    assert wording.clock(0.0, wording.zone(name)) == "00:00:00 UTC"


def test_a_known_time_zone_is_the_viewers() -> None:
    """Who is paged in Berlin reads Berlin's time."""
    assert wording.clock(0.0, wording.zone("Europe/Berlin")) == "01:00:00"


def test_names_become_words_and_acronyms_stay() -> None:
    """Reasons are read by people."""
    assert [wording.words("QUEUE_FULL"), wording.words("WATERMARK_KV"), wording.words("TTFT_FORECAST")] == [
        "queue full",
        "watermark KV",
        "TTFT forecast",
    ]


def test_a_reading_takes_its_unit_from_its_name() -> None:
    """The suffix says what a number is."""
    assert wording.reading("vram_free_bytes", 2**30) == "1.0 GiB"
    assert wording.reading("KV_USAGE_RATIO", 0.61) == "61 %"
    assert wording.reading("queue_time_s", 0.2) == "200 ms"
    assert wording.reading("waiting", 3) == "3"
    assert wording.reading("load", 0.1234) == "0.123"


def test_a_gpu_keeps_enough_of_its_uuid_to_be_found() -> None:
    """Two GPUs of a node differ in the first digits."""
    assert wording.gpu("GPU-4f0aa1d2-1111-2222") == "GPU-4f0aa1d2…"
    assert wording.gpu("GPU-1") == "GPU-1"
