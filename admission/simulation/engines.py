"""Engine models by name or from a YAML file, each with where its constants were measured.

The form is step = a + b*prefill_tokens + c*decode_seqs + d*kv_tokens. Capacities marked computed follow
(0.9 x device memory - weights) / KV bytes per token, which gave 581k where 585,248 was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from admission.simulation.engine import EngineConfig

SUFFIXES = (".yaml", ".yml")
SMALLEST_REQUEST_TOKENS = 2
"""One token of prompt and one of answer."""
_TEXTS = ("name", "hardware", "model", "source")
_MOST_S = 60.0
"""No term of a step's cost is that large: whoever writes so took another unit."""


class EngineFileError(ValueError):
    """An engine file that cannot be used: one line with the file and what is wrong with which key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """One engine on one machine."""

    name: str
    hardware: str
    model: str
    source: str
    config: EngineConfig

    def scaled(self, speed: float) -> EngineConfig:
        """The same engine `speed` times as fast in every term; KV and bounds stay.

        Raises:
            ValueError: speed is not positive.
        """
        if speed <= 0:
            raise ValueError("speed must be positive")
        c = self.config
        return replace(
            c,
            base_s=c.base_s / speed,
            prefill_s_per_token=c.prefill_s_per_token / speed,
            decode_s_per_sequence=c.decode_s_per_sequence / speed,
            kv_s_per_token=c.kv_s_per_token / speed,
        )


def _calibration(
    name: str,
    hardware: str,
    model: str,
    *,
    milliseconds: tuple[float, float, float, float],
    kv: int,
    source: str,
    **more: Any,
) -> Calibration:
    a, b, c, d = (value / 1000 for value in milliseconds)
    config = EngineConfig(
        base_s=a,
        prefill_s_per_token=b,
        decode_s_per_sequence=c,
        kv_s_per_token=d,
        kv_capacity_tokens=kv,
        **more,
    )
    return Calibration(name=name, hardware=hardware, model=model, source=source, config=config)


_ARGONNE = "fit to argonne-lcf/LLM-Inference-Bench (vLLM rows)"
_CASYS = (
    "fit to casys-kaist/LLMServingSim bench, vLLM 0.19, 300 ShareGPT requests at 10/s; KV capacity measured"
)

CALIBRATIONS = {
    calibration.name: calibration
    for calibration in (
        _calibration(
            "h200-llama3.1-8b-fp8",
            "H200 141 GB",
            "Llama-3.1-8B, FP8 weights",
            milliseconds=(4.39, 0.0190, 0.0399, 2.92e-5),
            kv=945_029,
            source="fit to ai-dynamo/dynamo H200_TP1 profiling points; KV capacity measured",
        ),
        _calibration(
            "h100-llama3-8b",
            "H100 80 GB",
            "Llama-3-8B bf16",
            milliseconds=(7.79, 0.0255, 0.0488, 5.77e-5),
            kv=460_000,
            source=f"{_ARGONNE}; KV capacity computed",
        ),
        _calibration(
            "a100-llama3-8b",
            "A100 80 GB",
            "Llama-3-8B bf16",
            milliseconds=(14.1, 0.0627, 0.0855, 1.46e-4),
            kv=460_000,
            source=f"{_ARGONNE}; KV capacity computed",
        ),
        _calibration(
            "a100-llama2-7b",
            "A100 80 GB",
            "Llama-2-7B fp16",
            milliseconds=(12.4, 0.0621, 0.0115, 6.18e-4),
            kv=121_000,
            source=f"{_ARGONNE}; KV capacity computed",
        ),
        _calibration(
            "h100x4-llama3.1-70b",
            "4 x H100 80 GB, TP 4",
            "Llama-3.1-70B bf16",
            milliseconds=(15.8, 0.065, 0.072, 5.6e-5),
            kv=490_000,
            source="a and c from ML.ENERGY, d from Argonne, b assumed; KV capacity computed",
        ),
        _calibration(
            "rtx4090-llama3.1-8b",
            "RTX 4090 24 GB",
            "Llama-3.1-8B bf16",
            milliseconds=(15.6, 0.099, 0.049, 1.28e-4),
            kv=41_408,
            source=_CASYS,
        ),
        _calibration(
            "pro6000-llama3.1-8b",
            "RTX PRO 6000",
            "Llama-3.1-8B bf16",
            milliseconds=(13.2, 0.038, 0.061, 5.6e-5),
            kv=585_248,
            source=_CASYS,
        ),
        _calibration(
            "pro6000x2-qwen3-32b",
            "2 x RTX PRO 6000, TP 2",
            "Qwen3-32B bf16",
            milliseconds=(25.6, 0.160, 0.090, 1.73e-4),
            kv=457_824,
            source=_CASYS,
        ),
        _calibration(
            "pro6000-qwen3-30b-a3b",
            "RTX PRO 6000, one of two data-parallel ranks",
            "Qwen3-30B-A3B bf16, expert parallel",
            milliseconds=(25.6, 0.04722, 0.1154, 5.86e-5),
            kv=617_440,
            source=f"{_CASYS} per rank; fitted to the first half by `tidegate calibrate --shipped`",
            max_num_seqs=128,
            ahead=True,
        ),
        _calibration(
            "a10g-llama2-7b",
            "A10G 24 GB",
            "Llama-2-7B fp16, S-LoRA on lightllm",
            milliseconds=(32.0, 0.297, 0.292, 3.26e-4),
            kv=10_000,
            source="fit to Ying1123/VTC-artifact; KV capacity is its launch flag",
            step_tokens=3_072,
            never_preempts=True,
            prefill_every=10,
            overhead_s=0.032,
        ),
    )
}


def calibration(name: str) -> Calibration:
    """Find a calibration by name.

    Raises:
        ValueError: no such name; the message lists those that exist.
    """
    found = CALIBRATIONS.get(name)
    if found is None:
        raise ValueError(f"no engine calibration {name!r}; there are {', '.join(sorted(CALIBRATIONS))}")
    return found


def load_engine(name_or_path: str) -> Calibration:
    """A shipped calibration by its name, or the engine file at a path (a name that ends in .yaml, or has a slash).

    Raises:
        ValueError: neither; one line that lists the names, or says what is wrong with which key of the file.
    """
    if name_or_path in CALIBRATIONS:
        return CALIBRATIONS[name_or_path]
    path = Path(name_or_path)
    if path.suffix in SUFFIXES or path.name != name_or_path:
        return read_engine(path)
    return calibration(name_or_path)


def read_engine(path: Path) -> Calibration:
    """Read an engine file; what it leaves out of the engine's bounds is the model's default.

    Raises:
        EngineFileError: it cannot be read, or a key is missing, unknown or senseless; one line.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise EngineFileError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EngineFileError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    mistakes = _mistakes(document)
    if mistakes:
        raise EngineFileError(f"{path}: {'; '.join(mistakes)}")
    try:
        config = EngineConfig(**{key: _value(key, value) for key, value in document["engine"].items()})
    except ValueError as error:
        raise EngineFileError(f"{path}: engine: {error}") from error
    texts = {key: str(document.get(key, "")) for key in _TEXTS}
    return Calibration(**{**texts, "name": texts["name"] or path.stem}, config=config)


def write_engine(path: Path, engine: Calibration, remarks: str = "") -> None:
    """Write an engine file that `read_engine` reads back equal; `remarks` become comments at its head.

    Raises:
        OSError: the file cannot be written.
    """
    document = {key: getattr(engine, key) for key in _TEXTS} | {"engine": asdict(engine.config)}
    comments = "".join(f"# {line}".rstrip() + "\n" for line in remarks.splitlines())
    path.write_text(comments + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110))


_KINDS: dict[str, type] = {
    field.name: {"int": int, "float": float, "bool": bool}[str(field.type)] for field in fields(EngineConfig)
}
_NEEDED = ("base_s", "prefill_s_per_token", "decode_s_per_sequence", "kv_s_per_token", "kv_capacity_tokens")


def _mistakes(document: object) -> list[str]:
    if not isinstance(document, Mapping) or not isinstance(document.get("engine"), Mapping):
        return ["an engine file has the key `engine` with the constants under it"]
    engine = document["engine"]
    found = [f"unknown key {key}" for key in document if key not in {*_TEXTS, "engine"}]
    found += [f"unknown key engine.{key}" for key in engine if key not in _KINDS]
    found += [f"no engine.{key}" for key in _NEEDED if key not in engine]
    for key, value in engine.items():
        if key in _KINDS and (wrong := _wrong(key, value)):
            found.append(f"engine.{key}: {wrong}")
    return found


def _value(key: str, value: Any) -> Any:
    """YAML reads 5e-05 as text: a number all the same."""
    kind = _KINDS[key]
    if kind is bool or isinstance(value, bool):
        return value
    return kind(float(value)) if kind is float else int(value)


def _wrong(key: str, value: Any) -> str:
    kind = _KINDS[key]
    if kind is bool or isinstance(value, bool):
        return "" if isinstance(value, bool) and kind is bool else f"{value!r} is not {_A[kind]}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return f"{value!r} is not {_A[kind]}"
    if not math.isfinite(number) or (kind is int and number != int(number)):
        return f"{value!r} is not {_A[kind]}"
    return _wrong_count(key, number) if kind is int else _wrong_cost(key, number)


_A = {int: "a whole number", float: "a number", bool: "true or false"}


def _wrong_count(key: str, number: float) -> str:
    if key == "kv_capacity_tokens" and number < SMALLEST_REQUEST_TOKENS:
        return f"{number:.0f} is too small for any request"
    least = 0 if key == "prefill_every" else 1
    return f"{number:.0f} is below {least}" if number < least else ""


def _wrong_cost(key: str, number: float) -> str:
    if number < 0 or (number == 0 and key == "base_s"):
        return f"{number:g} must be {'positive' if key == 'base_s' else 'at least 0'}"
    return f"{number:g} s is absurd; the unit is seconds" if number > _MOST_S else ""
