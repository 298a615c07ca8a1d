"""Reading traces: what is shipped, what is refused, how it is scaled."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pytest

from admission.simulation.traces import Arrival, TraceError, poisson, read, shipped, window

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def test_shipped_window_is_whole() -> None:
    """The Azure code burst is the published one: 1,891 requests, none left out."""
    arrivals = shipped()
    assert len(arrivals) == 1891
    assert arrivals == sorted(arrivals, key=lambda arrival: arrival.at_s)
    assert max(arrival.prompt_tokens for arrival in arrivals) == 7437
    assert max(arrival.output_tokens for arrival in arrivals) == 1899


@pytest.mark.parametrize("packed", [False, True])
def test_reads_csv_plain_and_packed(tmp_path: Path, packed: bool) -> None:
    """Order in the file does not matter, extra columns neither."""
    text = b"client,arrival_s,output_tokens,prompt_tokens\nx,2.5,3,10\ny,1,4,20\n"
    path = tmp_path / "trace.csv"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert read(path) == [Arrival(1.0, 20, 4), Arrival(2.5, 10, 3)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "no column arrival_s"),
        (HEADER, "no requests"),
        (HEADER + "1,10,2\nsoon,10,2\n", "trace.csv:3"),
        (HEADER + "1,10\n", "trace.csv:2"),
        (HEADER + "-1,10,2\n", "negative time"),
        (HEADER + "nan,10,2\n", "negative time"),
        (HEADER + "1,0,2\n", "empty prompt"),
    ],
)
def test_bad_trace_says_where(tmp_path: Path, text: str, says: str) -> None:
    """A wrong value names its line, so that a person can find it."""
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=says):
        read(path)


def test_broken_gzip_is_a_trace_error(tmp_path: Path) -> None:
    """Half a download is no traceback."""
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(TraceError, match="gzipped"):
        read(path)


def test_window_plays_faster_without_losing_anyone() -> None:
    """Twice the speed takes twice the recorded time into the same seconds."""
    arrivals = [Arrival(float(second), 10, 0) for second in range(20)]
    cut = window(arrivals, 4.0, 5.0, speed=2.0)
    assert [arrival.at_s for arrival in cut] == [i / 2 for i in range(10)]
    assert cut[0].output_tokens == 1, "an engine cannot answer with no token"
    with pytest.raises(ValueError, match="positive"):
        window(arrivals, 0.0, 1.0, speed=0.0)


def test_poisson_keeps_its_rate() -> None:
    """Five a second for 1,000 s are 5,000 within four standard deviations."""
    arrivals = poisson(5.0, 1000.0, [(100, 10), (200, 20)], Random(1))
    assert abs(len(arrivals) - 5000) < 4 * 5000**0.5
    assert {arrival.prompt_tokens for arrival in arrivals} == {100, 200}
    with pytest.raises(ValueError, match="positive"):
        poisson(0.0, 1.0, [(1, 1)], Random(1))
