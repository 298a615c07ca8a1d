"""Named calibrations of the engine model, each with where its constants were measured.

The form is step = a + b*prefill_tokens + c*decode_seqs + d*kv_tokens. Capacities marked computed follow
(0.9 x device memory - weights) / KV bytes per token, which gave 581k where 585,248 was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from admission.simulation.engine import EngineConfig


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
) -> Calibration:
    a, b, c, d = (value / 1000 for value in milliseconds)
    config = EngineConfig(
        base_s=a,
        prefill_s_per_token=b,
        decode_s_per_sequence=c,
        kv_s_per_token=d,
        kv_capacity_tokens=kv,
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
            "a10g-llama2-7b",
            "A10G 24 GB",
            "Llama-2-7B fp16, S-LoRA on lightllm",
            milliseconds=(32.0, 0.297, 0.292, 3.26e-4),
            kv=10_000,
            source="fit to Ying1123/VTC-artifact; KV capacity is its launch flag",
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
