"""Engine files read back as they were written, and what is wrong with one is said in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from admission.simulation.engines import (
    CALIBRATIONS,
    Calibration,
    EngineFileError,
    load_engine,
    read_engine,
    write_engine,
)

GOOD = {
    "base_s": "0.01",
    "prefill_s_per_token": "3e-5",
    "decode_s_per_sequence": "5e-05",
    "kv_s_per_token": "0",
    "kv_capacity_tokens": "100000",
}


def _file(folder: Path, changes: dict[str, str | None], head: str = "") -> Path:
    lines = {**GOOD, **changes}
    body = "".join(f"  {key}: {value}\n" for key, value in lines.items() if value is not None)
    path = folder / "engine.yaml"
    path.write_text(f"{head}engine:\n{body}")
    return path


@pytest.mark.parametrize("engine", CALIBRATIONS.values(), ids=lambda engine: engine.name)
def test_an_engine_reads_back_as_it_was_written(engine: Calibration, tmp_path: Path) -> None:
    """What `calibrate` writes, `simulate` must run, bit for bit."""
    path = tmp_path / "e.yaml"
    write_engine(path, engine, "fitted on a Sunday\nwith care")
    assert load_engine(str(path)) == engine
    assert path.read_text().startswith("# fitted on a Sunday\n# with care\nname: ")


def test_an_engine_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    """One option of a command takes both."""
    path = _file(tmp_path, {})
    assert load_engine("h100-llama3-8b") is CALIBRATIONS["h100-llama3-8b"]
    assert load_engine(str(path)).config.base_s == 0.01
    with pytest.raises(ValueError, match="no engine calibration 'tpu'; there are a100-llama2-7b, "):
        load_engine("tpu")
    with pytest.raises(EngineFileError, match=r"none\.yaml: No such file"):
        load_engine(str(tmp_path / "none.yaml"))


def test_bounds_may_be_left_out_and_numbers_written_as_people_do(tmp_path: Path) -> None:
    """YAML takes 5e-05 for text; whoever writes it means the number."""
    engine = read_engine(_file(tmp_path, {"ahead": "true"}))
    assert engine.name == "engine"
    assert engine.config.decode_s_per_sequence == 5e-05
    assert (engine.config.max_num_seqs, engine.config.step_tokens, engine.config.ahead) == (256, 2_048, True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kv_capacity_tokens": "1"}, "engine.kv_capacity_tokens: 1 is too small for any request"),
        ({"kv_capacity_tokens": "1.5"}, "engine.kv_capacity_tokens: 1.5 is not a whole number"),
        ({"kv_capacity_tokens": None}, "no engine.kv_capacity_tokens"),
        ({"base_s": "0"}, "engine.base_s: 0 must be positive"),
        ({"base_s": "-1"}, "engine.base_s: -1 must be positive"),
        ({"base_s": "7.8e3"}, "engine.base_s: 7800 s is absurd"),
        ({"kv_s_per_token": "-1e-9"}, "engine.kv_s_per_token: -1e-09 must be at least 0"),
        ({"kv_s_per_token": ".nan"}, "engine.kv_s_per_token: nan is not a number"),
        ({"base_s": "fast"}, "engine.base_s: 'fast' is not a number"),
        ({"base_s": "true"}, "engine.base_s: True is not a number"),
        ({"base_s": "[1]"}, "engine.base_s: [1] is not a number"),
        ({"ahead": "2"}, "engine.ahead: 2 is not true or false"),
        ({"max_num_seqs": "0"}, "engine.max_num_seqs: 0 is below 1"),
        ({"max_num_seqs": "4096"}, "engine: max_num_seqs must be at least 1 and below step_tokens"),
        ({"base_ms": "7"}, "unknown key engine.base_ms"),
        ({"base_s": "-1", "speed": "2"}, "unknown key engine.speed; engine.base_s: -1 must be positive"),
    ],
)
def test_a_bad_engine_file_is_refused_in_one_line(
    changes: dict[str, str | None], says: str, tmp_path: Path
) -> None:
    """A file edited by hand is told which key to look at."""
    path = _file(tmp_path, changes)
    with pytest.raises(EngineFileError) as error:
        read_engine(path)
    assert str(error.value).startswith(f"{path}: {says}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("- 1", "the key `engine`"),
        ("engine: 3", "the key `engine`"),
        ("", "the key `engine`"),
    ],
)
def test_what_is_no_engine_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """Another file given by mistake."""
    path = tmp_path / "engine.yaml"
    path.write_text(text)
    with pytest.raises(EngineFileError, match=says) as error:
        read_engine(path)
    assert "\n" not in str(error.value)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(EngineFileError, match="not YAML"):
        read_engine(binary)


def test_an_unknown_key_at_the_top_is_refused(tmp_path: Path) -> None:
    """A constant one level too high would be ignored in silence."""
    with pytest.raises(EngineFileError, match="unknown key base_s"):
        read_engine(_file(tmp_path, {}, head="base_s: 3\n"))


def test_a_faster_engine_keeps_its_bounds() -> None:
    """`scaled` is for scenarios at another speed; KV stays."""
    engine = CALIBRATIONS["h100-llama3-8b"]
    assert engine.scaled(2.0) == replace(
        engine.config,
        base_s=engine.config.base_s / 2,
        prefill_s_per_token=engine.config.prefill_s_per_token / 2,
        decode_s_per_sequence=engine.config.decode_s_per_sequence / 2,
        kv_s_per_token=engine.config.kv_s_per_token / 2,
    )
