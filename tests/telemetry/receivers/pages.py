"""Metrics pages as vLLM and SGLang write them, from their documented names."""

from __future__ import annotations

_TTFT_BUCKETS = (
    *("0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75", "1", "2.5"),
    *("5", "7.5", "10", "20", "40", "80", "160", "640", "2560", "+Inf"),
)
_LATENCY_BUCKETS = ("0.3", "0.5", "0.8", "1", "1.5", "2", "2.5", "5", "10", "30", "60", "240", "7680", "+Inf")


def histogram(name: str, labels: str, count: int, total_s: float) -> list[str]:
    """A histogram in which everything fell into the middle."""
    edges = _TTFT_BUCKETS if "first_token" in name or "token" in name else _LATENCY_BUCKETS
    middle = len(edges) // 2
    lines = [f"# HELP {name} Histogram of {name}.", f"# TYPE {name} histogram"]
    for place, edge in enumerate(edges):
        held = float(count if place >= middle else 0)
        lines.append(f'{name}_bucket{{{labels},le="{edge}"}} {held}')
    return [*lines, f"{name}_count{{{labels}}} {float(count)}", f"{name}_sum{{{labels}}} {total_s}"]


def vllm(
    engines: int = 1, *, kv: str = "vllm:kv_cache_usage_perc", running: float = 7.0, waiting: float = 3.0
) -> str:
    """A page of vLLM 0.3x with `engines` data-parallel ranks, each with the same load and 1,000 blocks."""
    lines = ["# HELP python_info Python platform information", "# TYPE python_info gauge"]
    lines += ['python_info{implementation="CPython",major="3",minor="12"} 1.0']
    for rank in range(engines):
        labels = f'engine="{rank}",model_name="meta-llama/Llama-3.1-8B"'
        lines += [
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{{{labels}}} {running}",
            f"vllm:num_requests_waiting{{{labels}}} {waiting}",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {waiting}',
            f"{kv}{{{labels}}} {0.25 * (rank + 1)}",
            f"vllm:num_preemptions_total{{{labels}}} 5.0",
            f"vllm:num_preemptions_created{{{labels}}} 1.7e+09",
            f"vllm:prompt_tokens_total{{{labels}}} 120000.0",
            f"vllm:generation_tokens_total{{{labels}}} 64000.0",
            f'vllm:admission_rejections_total{{{labels},reason="max_num_queued_reqs"}} 2.0',
            f'vllm:admission_rejections_total{{{labels},reason="max_num_queued_tokens"}} 1.0',
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} 300.0',
            f'vllm:cache_config_info{{block_size="16",engine="{rank}",num_gpu_blocks="{1000 * engines}"}} 1.0',
        ]
        lines += histogram("vllm:time_to_first_token_seconds", labels, 310, 95.5)
        lines += histogram("vllm:e2e_request_latency_seconds", labels, 305, 2000.0)
    return "\n".join(lines) + "\n"


def sglang(*, dp: int = 1, tp: int = 1, priorities: bool = False) -> str:
    """A page of SGLang 0.5 with `dp` data-parallel ranks of `tp` tensor-parallel ranks each."""
    lines = []
    for dp_rank in range(dp):
        for tp_rank in range(tp):
            labels = (
                f'dp_rank="{dp_rank}",engine_type="unified",model_name="m",moe_ep_rank="0",'
                f'pp_rank="0",tp_rank="{tp_rank}"'
            )
            total = labels + ',priority=""'
            lines += [
                f"sglang:num_running_reqs{{{total}}} 4.0",
                f"sglang:num_queue_reqs{{{total}}} 2.0",
                f"sglang:token_usage{{{labels}}} {0.3 + 0.1 * dp_rank}",
                f"sglang:max_total_num_tokens{{{labels}}} 50000.0",
                f"sglang:num_retracted_requests_total{{{labels}}} 1.0",
            ]
            if priorities:
                lines.append(f'sglang:num_running_reqs{{{labels},priority="5"}} 4.0')
    own = 'engine_type="unified",model_name="m"'
    lines += [f"sglang:prompt_tokens_total{{{own}}} 900.0", f"sglang:generation_tokens_total{{{own}}} 800.0"]
    lines += histogram("sglang:time_to_first_token_seconds", f'{own},is_streaming="true"', 20, 3.0)
    lines += histogram("sglang:time_to_first_token_seconds", f'{own},is_streaming="false"', 5, 3.0)
    return "\n".join(lines) + "\n"
