"""Reading traces lazily: the formats that are taken, what is refused and in which words, and flat memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from admission.simulation.inputs.arrival import Arrival, TraceError
from admission.simulation.inputs.reading import shipped_stream, stream
from admission.vocabulary import PriorityClass

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
FULL = Arrival(
    1.5,
    900,
    40,
    PriorityClass.BATCH,
    "acme",
    "s1",
    "big",
    64,
    False,
    512,
    256,
    "system",
)
FULL_ROW = {
    "arrival_s": 1.5,
    "prompt_tokens": 900,
    "output_tokens": 40,
    "class": "Batch",
    "tenant": "acme",
    "session": "s1",
    "model": "big",
    "max_tokens": 64,
    "stream": False,
    "cached_tokens": 512,
    "shared_tokens": 256,
    "prefix": "system",
}


def _written(folder: Path, text: str | bytes, name: str = "trace.csv", *, packed: bool = False) -> Path:
    raw = text.encode() if isinstance(text, str) else text
    path = folder / name
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_every_column_arrives(tmp_path: Path, kind: str, packed: bool) -> None:
    """Whatever a user knows of a request is simulated, in either format, packed or not."""
    text = json.dumps(FULL_ROW)
    if kind == "csv":
        text = ",".join(FULL_ROW) + "\n" + ",".join(str(value) for value in FULL_ROW.values())
    # The name says nothing: what is in the file does.
    assert list(stream(_written(tmp_path, text + "\n", "trace.txt", packed=packed))) == [FULL]


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    """An empty cell, a missing key and null are the same: not known."""
    rows = '{"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 3, "class": null}\n\n{"prompt_tokens": 8, "output_tokens": 0, "arrival_s": 1}\n'
    assert list(stream(_written(tmp_path, rows))) == [Arrival(1.0, 9, 3), Arrival(1.0, 8, 0)]
    cells = "arrival_s,prompt_tokens,output_tokens,class,tenant,stream,max_tokens\n1,9,3,,,,\n"
    assert list(stream(_written(tmp_path, cells))) == [Arrival(1.0, 9, 3)]


def test_numbers_are_names_too(tmp_path: Path) -> None:
    """Programs number their tenants; what is neither text nor a number is a mistake."""
    row = {"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 3, "tenant": 7}
    assert [a.tenant for a in stream(_written(tmp_path, json.dumps(row)))] == ["7"]
    with pytest.raises(TraceError, match=r"trace.csv:1: tenant \[7\] must be text"):
        list(stream(_written(tmp_path, json.dumps(row | {"tenant": [7]}))))


def test_a_spreadsheets_export_is_read(tmp_path: Path) -> None:
    """A byte order mark, CRLF, quotes, spaces in the header and whole numbers with a point are no mistakes."""
    text = '\ufeff"arrival_s", prompt_tokens,output_tokens\r\n"0.5","10.0",2\r\n'
    assert list(stream(_written(tmp_path, text))) == [Arrival(0.5, 10, 2)]


def test_an_answer_longer_than_the_usual_bound_raises_it(tmp_path: Path) -> None:
    """A recorded answer of 5,000 tokens was asked for: the default of 2,048 must not contradict it."""
    (arrival,) = stream(_written(tmp_path, HEADER + "0,10,5000\n"))
    assert arrival.max_tokens == 5000


def test_azure_as_published(tmp_path: Path) -> None:
    """Timestamps of seven decimals, of either year's trace, count from the first row."""
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    old = header + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    new = header + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.017335+00:00,2399,6\n"

    first, second = stream(_written(tmp_path, old))
    assert (first.at_s, first.prompt_tokens, first.output_tokens) == (0.0, 374, 44)
    assert second.at_s == pytest.approx(4.314579, abs=2e-6)
    assert [a.at_s for a in stream(_written(tmp_path, new))] == pytest.approx([0.0, 0.007405], abs=2e-6)


def test_burstgpt_as_published(tmp_path: Path) -> None:
    """Seconds from the first row; the model is the target, and failures with no answer stay in the traffic."""
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,7,1.5,ChatGPT,472,18,490,Conversation log\n45,,0,GPT-4,300,0,300,API log\n"
    )
    assert list(stream(_written(tmp_path, text))) == [
        Arrival(0.0, 472, 18, session="7", model="ChatGPT"),
        Arrival(40.0, 300, 0, model="GPT-4"),
    ]


def test_mooncake_as_published(tmp_path: Path) -> None:
    """Milliseconds; leading blocks seen before are cached, later ones behind a gap are not, the whole prompt never is."""
    rows = [
        {"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 1400, "output_length": 5, "hash_ids": [0, 9, 2]},
        {"timestamp": 5999, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]},
    ]
    text = "\n".join(json.dumps(row) for row in rows)

    arrivals = list(stream(_written(tmp_path, text, "trace.jsonl")))

    assert [arrival.at_s for arrival in arrivals] == [0.0, 3.0, 5.999]
    assert [arrival.cached_tokens for arrival in arrivals] == [0, 512, 1023]


def test_the_prefix_cache_forgets_the_longest_unused(tmp_path: Path) -> None:
    """A cache without bound would grow with the trace and promise hits that no engine has."""
    rows = [
        {"timestamp": at, "input_length": 1024, "output_length": 5, "hash_ids": [name, name + 1]}
        for at, name in enumerate([0, 10, 20, 0, 20])
    ]
    path = _written(tmp_path, "\n".join(json.dumps(row) for row in rows))

    assert [a.cached_tokens for a in stream(path)] == [0, 0, 0, 1023, 1023]
    assert [a.cached_tokens for a in stream(path, cache_blocks=4)] == [0, 0, 0, 0, 1023]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "trace.csv: no requests"),
        ("\n \n", "trace.csv: no requests"),
        (HEADER, "trace.csv: no requests"),
        ("a,b\n1,2\n", "trace.csv: no column arrival_s, prompt_tokens, output_tokens, only a, b"),
        ("arrival_s,prompt_tokens\n1,2\n", "trace.csv: no column output_tokens"),
        ("TIMESTAMP,ContextTokens\n1,2\n", "trace.csv: no column GeneratedTokens"),
        ("arrival_s,arrival_s\n1,2\n", "trace.csv: column arrival_s is there twice"),
        ("timestamp,Timestamp\n1,2\n", "trace.csv: timestamp and Timestamp both say when"),
        (HEADER + "1,10,2\nsoon,10,2\n", "trace.csv:3: arrival_s soon must be a number"),
        (HEADER + "1,10\n", "trace.csv:2: 2 values where the header has 3 columns"),
        (HEADER + "1,5,10,2\n", "trace.csv:2: 4 values where the header has 3 columns"),
        (HEADER + "-1,10,2\n", "trace.csv:2: arrival_s -1 must be seconds from the start, 0 to 1e+09"),
        (HEADER + "1.7e12,10,2\n", "trace.csv:2: arrival_s 1.7e12 must be seconds from the start, 0 to 1e+09"),
        (HEADER + "nan,10,2\n", "trace.csv:2: arrival_s nan must be a finite number"),
        (HEADER + "inf,10,2\n", "trace.csv:2: arrival_s inf must be a finite number"),
        (HEADER + "1,0,2\n", "trace.csv:2: prompt_tokens 0 must be at least 1"),
        (HEADER + "1,,2\n", 'trace.csv:2: prompt_tokens "" must be a number'),
        (HEADER + "1,10,-2\n", "trace.csv:2: output_tokens -2 must be a whole number of tokens"),
        (HEADER + "1,10.5,2\n", "trace.csv:2: prompt_tokens 10.5 must be a whole number of tokens"),
        (HEADER + "1,1e30,2\n", "trace.csv:2: prompt_tokens 1e30 must be a whole number of tokens, 0 to 100,000,000"),
        (HEADER + "1," + "9" * 6000 + ",2\n", "trace.csv:2: prompt_tokens 9999999"),
        (HEADER + "5,10,2\n\n3.2,10,2\n", "trace.csv:4: arrival_s 3.2 is before the row above (5 s): sort the trace by arrival_s"),
        (HEADER.strip() + ",class\n1,1,1,gold\n", "trace.csv:2: class gold must be one of interactive, batch, internal"),
        (HEADER.strip() + ",stream\n1,1,1,maybe\n", "trace.csv:2: stream maybe must be true or false"),
        (HEADER.strip() + ",cached_tokens\n1,10,1,11\n", "trace.csv:2: cached_tokens 11 are more than prompt_tokens 10"),
        (HEADER.strip() + ",shared_tokens\n1,10,1,5\n", "trace.csv:2: shared_tokens 5 are more than cached_tokens 0"),
        (HEADER.strip() + ",max_tokens\n1,10,9,8\n", "trace.csv:2: output_tokens 9 are more than max_tokens 8"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "trace.csv:2: TIMESTAMP yesterday must be a date and time"),
        ("[\n", "trace.csv:1: not JSON: one object on each line is expected"),
        ("[1, 2]\n", "trace.csv:1: not a JSON object: one object on each line is expected"),
        ('{"arrival_s": 1, "prompt_tokens": 2}\n', "trace.csv:1: no column output_tokens"),
        ('{"arrival_s": true, "prompt_tokens": 2, "output_tokens": 1}\n', "trace.csv:1: arrival_s true must be a number"),
        ('{"arrival_s": NaN, "prompt_tokens": 2, "output_tokens": 1}\n', "trace.csv:1: arrival_s NaN must be a finite number"),
        ('{"arrival_s": 1, "prompt_tokens": [2], "output_tokens": 1}\n', "trace.csv:1: prompt_tokens [2] must be a number"),
        ('{"timestamp": 1, "input_length": 2, "output_length": 1, "hash_ids": "x"}\n', "trace.csv:1: hash_ids x must be a list of block names"),
        ('{"timestamp": 1, "input_length": 2, "output_length": 1, "chat_id": 3}\n', "trace.csv:1: timestamp beside chat_id may be seconds"),
    ],
)  # fmt: skip
def test_bad_trace_says_where(tmp_path: Path, text: str, says: str) -> None:
    """One line with file, row, column and what is expected, so that a person can mend it."""
    with pytest.raises(TraceError) as caught:
        list(stream(_written(tmp_path, text)))

    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (bytes(range(256)) * 20, "neither CSV nor JSON lines"),
        (b"\xff\xfe\x00\x01", "neither CSV nor JSON lines"),
        (b"\x00" * 5000, "neither CSV nor JSON lines"),
        (b"x" * 3_000_000, "neither CSV nor JSON lines"),
        (gzip.compress(b"x" * 1000)[:20], "damaged or cut short"),
        (b"\x1f\x8b" + b"nonsense" * 9, "damaged or cut short"),
    ],
)
def test_no_text_at_all_is_said_so(tmp_path: Path, raw: bytes, says: str) -> None:
    """A picture, half a download, a file without line ends: no traceback, and no gigabytes read."""
    with pytest.raises(TraceError, match=rf"^trace.csv:\d+: .*{says}"):
        list(stream(_written(tmp_path, raw)))


def test_a_gzip_file_cut_short_gives_what_it_had_and_says_so(tmp_path: Path) -> None:
    """Silently ending early would look like a quiet evening."""
    text = HEADER + "".join(f"{at},{at % 997 + 1},{at % 89}\n" for at in range(20_000))
    path = _written(tmp_path, gzip.compress(text.encode())[:-2000])
    arrivals = stream(path)

    with pytest.raises(TraceError, match=r"trace.csv:\d+: the gzipped file is damaged or cut short"):
        list(arrivals)
    assert len(list(islice(stream(path), 1000))) == 1000


def test_a_missing_file_and_a_folder_are_trace_errors(tmp_path: Path) -> None:
    """One kind of error for every input that cannot be used."""
    for path in (tmp_path / "gone.csv", tmp_path):
        with pytest.raises(TraceError, match=f"{path.name}: cannot be read"):
            list(stream(path))


def test_reading_stops_where_nobody_asks_on(tmp_path: Path) -> None:
    """The first minute of a week's trace must not cost a week: a mistake behind it is never reached."""
    text = HEADER + "0,10,2\n1,10,2\nnonsense,10,2\n"
    assert len(list(islice(stream(_written(tmp_path, text)), 2))) == 2


def _peak_bytes(arrivals: Iterator[Arrival]) -> int:
    tracemalloc.start()
    try:
        for _ in arrivals:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """A week of traffic is read on a laptop: ten times the rows take the same memory."""
    peaks = []
    for rows in (3_000, 30_000):
        text = HEADER + "".join(f"{at},{at % 997 + 1},{at % 89}\n" for at in range(rows))
        peaks.append(_peak_bytes(stream(_written(tmp_path, text, packed=True))))

    assert peaks[1] < 1.1 * peaks[0] < 2_000_000


def test_shipped_traces_stream_too() -> None:
    """With or without the ending of its name."""
    one, other = (shipped_stream(f"azure2023_conv_busy_1620_2040{end}") for end in ("", ".csv.gz"))
    assert next(one) == next(other) == Arrival(0.04955, 385, 93)
