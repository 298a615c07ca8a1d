"""Short traces as lists: what is shipped, how a piece is cut out, arrivals at random."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from random import Random

import pytest

from admission.simulation.traces import Arrival, TraceError, poisson, read, shipped, shipped_names, window


def test_shipped_window_is_whole() -> None:
    """The Azure code burst is the published one: 1,891 requests, none left out."""
    arrivals = shipped()
    assert len(arrivals) == 1891
    assert max(arrival.prompt_tokens for arrival in arrivals) == 7437
    assert max(arrival.output_tokens for arrival in arrivals) == 1899


@pytest.mark.parametrize(
    ("name", "rows", "longest_prompt", "longest_answer"),
    [
        ("azure2023_conv_busy_1620_2040", 3215, 5380, 939),
        ("mooncake_conversation_full", 12031, 126195, 2000),
        ("arena_vtc_27clients_600s", 1500, 1021, 977),
    ],
)
def test_other_shipped_traces_are_those_published(
    name: str, rows: int, longest_prompt: int, longest_answer: int
) -> None:
    """Figures are only as good as their traces: counts and extremes are those of the sources."""
    arrivals = shipped(name)

    assert len(arrivals) == rows
    assert max(arrival.prompt_tokens for arrival in arrivals) == longest_prompt
    assert max(arrival.output_tokens for arrival in arrivals) == longest_answer


def test_every_shipped_trace_can_be_read() -> None:
    """A name that is offered must work; measured results beside them are not offered as traffic."""
    assert {name: len(shipped(name)) > 0 for name in shipped_names()} == dict.fromkeys(shipped_names(), True)
    assert "azure2023_code_burst_540_960" in shipped_names()
    assert not [name for name in shipped_names() if "results" in name]


def test_shipped_archives_carry_no_time() -> None:
    """A gzip header with a time in it makes two equal files differ."""
    packed = [
        each for each in (files("admission.simulation") / "data").iterdir() if each.name.endswith(".gz")
    ]

    assert len(packed) >= 7
    assert {each.name: each.read_bytes()[4:8] for each in packed} == dict.fromkeys(
        (each.name for each in packed), bytes(4)
    )


def test_every_data_file_has_its_source_written_down() -> None:
    """Data of others may be passed on with its attribution only."""
    folder = files("admission.simulation") / "data"
    text = (folder / "ATTRIBUTION.md").read_text()
    names = [each.name for each in folder.iterdir() if each.name.endswith((".csv", ".csv.gz"))]

    assert [name for name in names if name not in text] == []


def test_unknown_shipped_trace_names_those_that_exist() -> None:
    """Guessing names is no fun; and a name is no path."""
    with pytest.raises(TraceError, match=r"no shipped trace 'azure'.*azure2023_code_burst_540_960"):
        shipped("azure")
    with pytest.raises(TraceError, match="no shipped trace"):
        shipped("../traces.py")


def test_mooncake_reuse_is_cached_but_never_the_whole_prompt() -> None:
    """An engine computes at least the last token of a prompt itself; elsewhere reuse is kept as recorded."""
    arrivals = shipped("mooncake_conversation_full")

    assert sum(arrival.cached_tokens > 0 for arrival in arrivals) > len(arrivals) / 2
    assert all(arrival.cached_tokens < arrival.prompt_tokens for arrival in arrivals)


def test_arena_clients_are_tenants() -> None:
    """Fairness is about them."""
    assert len({arrival.tenant for arrival in shipped("arena_vtc_27clients_600s")}) == 27


def test_read_takes_a_file(tmp_path: Path) -> None:
    """Columns in any order; names that mean nothing are passed over."""
    path = tmp_path / "trace.csv"
    path.write_text("colour,arrival_s,output_tokens,prompt_tokens\nred,1,4,20\nblue,2.5,3,10\n")

    assert read(path) == [Arrival(1.0, 20, 4), Arrival(2.5, 10, 3)]


def test_window_plays_faster_without_losing_anyone() -> None:
    """Twice the speed takes twice the recorded time into the same seconds, and each request keeps what it is."""
    arrivals = [Arrival(float(second), 10, 0, tenant=f"t{second}") for second in range(20)]

    cut = window(arrivals, 4.0, 5.0, speed=2.0)

    assert [arrival.at_s for arrival in cut] == [i / 2 for i in range(10)]
    assert [arrival.tenant for arrival in cut] == [f"t{second}" for second in range(4, 14)]
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
