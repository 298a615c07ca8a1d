"""Tables that make no sense are refused in one line that names file, row and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from admission.simulation.calibrating.facts import kv_capacity, max_num_seqs
from admission.simulation.calibrating.job import Wish, calibrate
from admission.simulation.calibrating.measured import CalibrationError, Measured, Moment, Recording
from admission.simulation.calibrating.tables import read_table, requests, series

HEAD = "arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s"
WISH = Wish(kv_capacity_tokens=10_000)


def _file(folder: Path, text: str, name: str = "requests.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_requests_come_in_order_of_arrival(tmp_path: Path) -> None:
    """Servers log requests as they end."""
    path = _file(tmp_path, f"{HEAD}\n2.0,10,5,0.1,1.1\n1.0,20,1,0.2,0.2\n3.0,5,4,,\n")
    first, second, third = requests(read_table(path))
    assert first == Measured(1.0, 20, 1, 0.2, 0.0)
    assert second == Measured(2.0, 10, 5, 0.1, 1.0)
    assert third == Measured(3.0, 5, 4), "no times: load and no more"
    assert first.tpot_s is None
    assert second.tpot_s == pytest.approx(0.25)


def test_gzipped_tables_read_the_same(tmp_path: Path) -> None:
    """Recordings are kept compressed."""
    text = f"{HEAD}\n2.0,10,5,0.1,1.1\n"
    packed = tmp_path / "requests.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert requests(read_table(packed)) == requests(read_table(_file(tmp_path, text)))


def test_rows_can_be_chosen(tmp_path: Path) -> None:
    """One file often holds several runs."""
    path = _file(tmp_path, f"gpu,{HEAD}\nA,1,10,5,.1,1\nB,2,10,5,.1,1\n")
    assert len(requests(read_table(path, {"gpu": "B"}))) == 1


def test_a_kv_usage_of_nothing_but_zeros_was_not_recorded(tmp_path: Path) -> None:
    """Some recorders write 0 for what they do not know; read as an empty KV it would mislead."""
    path = _file(tmp_path, "t_s,running,waiting,kv_pct\n2,3,0,0\n1,4,1,0\n")
    assert series(read_table(path)) == (Moment(1.0, 4, 1), Moment(2.0, 3, 0))
    path = _file(tmp_path, "t_s,running,waiting,kv_ratio\n1,4,1,0.5\n")
    assert series(read_table(path)) == (Moment(1.0, 4, 1, 0.5),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "columns none are of no known table"),
        ("a,b\n1,2\n", "columns a, b are of no known table"),
        (f"{HEAD}\n", "no rows"),
        (f"{HEAD}\n1,2\n", ":2: not as many values as columns"),
        (f"{HEAD}\n1,10,5,.1,1\n-1,10,5,.1,1\n", ":3: arrival_s '-1' is no number from 0"),
        (f"{HEAD}\n1,ten,5,.1,1\n", ":2: prompt_tokens 'ten' is no number from 0"),
        (f"{HEAD}\n1,0,5,.1,1\n", ":2: prompt_tokens '0' is no whole number from 1"),
        (f"{HEAD}\n1,1.5,5,.1,1\n", ":2: prompt_tokens '1.5' is no whole number from 1"),
        (f"{HEAD}\n1,1e12,5,.1,1\n", ":2: prompt_tokens '1e12' is no number from 0 to 1e+08"),
        (f"{HEAD}\n1,10,5,nan,1\n", ":2: ttft_s 'nan' is no number from 0"),
        (f"{HEAD}\n1,10,5,2,1\n", ":2: e2e_s 1 is less than ttft_s 2"),
        (f"gpu,{HEAD}\nA,1,10,5,.1,1\nB,1,10,5,.1,1\n", "2 runs in one file, choose one: gpu=A; gpu=B"),
        ("t_s,running,waiting\n1,2,3\n", "a series alone says nothing of single requests"),
        ("context_len,itl_ms\n100,5\n", "decode points need a column batch or out_tok_s"),
        ("context_len,itl_ms,batch\n100,0,5\n", ":2: itl_ms is 0"),
        ("context_len,itl_ms,batch\n100,5,5\n", "1 points; 6 are needed"),
        (f"{HEAD}\n1,10,5,.1,1\n", "0 requests with times to fit to; 20 are needed"),
    ],
)
def test_bad_tables_are_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    """Whoever reads the message fixes the row without reading our source."""
    path = _file(tmp_path, text)
    with pytest.raises(CalibrationError) as error:
        calibrate([path], WISH)
    assert says in str(error.value)
    assert str(path) in str(error.value) or "alone" in says
    assert "\n" not in str(error.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    """A wrong path, a damaged file and a binary each say so."""
    damaged = tmp_path / "cut.csv.gz"
    damaged.write_bytes(gzip.compress(HEAD.encode() * 100)[:30])
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, says in (
        (tmp_path / "none.csv", "No such file"),
        (damaged, "neither CSV"),
        (binary, "neither"),
    ):
        with pytest.raises(CalibrationError, match=says):
            read_table(path)


def test_choices_are_checked(tmp_path: Path) -> None:
    """A typing mistake in --where must not choose nothing silently."""
    path = _file(tmp_path, f"gpu,{HEAD}\nA,1,10,5,.1,1\n")
    for where, says in (
        ("gpu", "COLUMN=VALUE"),
        ("cpu=A", "no column cpu"),
        ("gpu=C", "no rows of that choice"),
    ):
        with pytest.raises(CalibrationError, match=says):
            calibrate([path], Wish(kv_capacity_tokens=10_000, where=(where,)))


def test_tables_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    """Requests of two servers, or requests and points, are two calibrations."""
    one, two = (_file(tmp_path, f"{HEAD}\n1,10,5,.1,1\n", name) for name in ("a.csv", "b.csv"))
    points = _file(tmp_path, "isl,ttft_ms\n100,5\n", "points.csv")
    for paths, says in (
        ([one, two], "two tables of requests"),
        ([one, points], "apart"),
        ([one, tmp_path], "alone"),
    ):
        with pytest.raises(CalibrationError, match=says):
            calibrate(paths, WISH)


def test_an_unknown_capacity_is_asked_for(tmp_path: Path) -> None:
    """A guess would be wrong by a factor, and preemptions with it."""
    path = _file(tmp_path, f"{HEAD}\n" + "1,10,5,.1,1\n" * 50)
    with pytest.raises(CalibrationError, match="give --kv-capacity"):
        calibrate([path], Wish())
    with pytest.raises(CalibrationError, match="max_num_seqs must be at least 1 and below step_tokens"):
        calibrate([path], Wish(kv_capacity_tokens=10_000, max_num_seqs=512, step_tokens=512))


def test_what_the_engine_says_of_itself_comes_first() -> None:
    """Its own figure is exact; what requests held is an estimate."""
    said = Recording("x", (), kv_capacity_tokens=5_000, max_num_seqs=7)
    assert (kv_capacity(said), max_num_seqs(said)) == (5_000, 7)
    moments = tuple(Moment(1.0 + i / 10, 2, 1, 0.5) for i in range(6))
    told = Recording("x", (Measured(0.0, 400, 100, 0.5, 10.0), Measured(0.0, 500, 0)), moments)
    assert kv_capacity(told) == pytest.approx(2 * (400 + 100 * 0.075), rel=0.02)
    assert max_num_seqs(told) == 2


def test_of_a_long_recording_the_busiest_part_is_taken(tmp_path: Path) -> None:
    """A day of traffic must not take a day to fit: the peak tells most of an engine."""
    quiet = [f"{10 * n},100,20,0.1,0.5" for n in range(100)]
    busy = [f"{2_000 + n / 10},100,30,0.2,0.9" for n in range(60)]
    path = _file(tmp_path, "\n".join([HEAD, *quiet, *busy]))
    outcome = calibrate([path], Wish(kv_capacity_tokens=10_000, most_requests=50, evaluations=1))
    assert outcome.notes == ("the busiest 50 of 160 requests are taken",)
    assert outcome.judged is not None
    assert outcome.judged.requests == 25
    assert outcome.judged.lines[0].real_s == 0.2
