"""The closed sets that everybody shares; names and numbers are those of proto/admission/v1/types.proto."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class PriorityClass(IntEnum):
    """Who goes first. The number is the rank: lower is more urgent."""

    INTERACTIVE = 0
    BATCH = 1
    INTERNAL = 2

    @property
    def label(self) -> str:
        """The name in configuration, headers and metrics."""
        return self.name.lower()


class Verdict(IntEnum):
    """The answer to one ticket."""

    ADMITTED = 1
    QUEUED = 2
    REJECTED = 3
    SHED = 4


class Reason(IntEnum):
    """Why a ticket was not admitted."""

    QUEUE_FULL = 1
    QUEUE_TOKENS = 2
    DEADLINE = 3
    TTFT_FORECAST = 4
    QUOTA = 5
    BREAKER = 6
    WATERMARK_VRAM = 7
    WATERMARK_KV = 8
    DRAINING = 9
    OUTAGE = 10
    DEGRADED = 11
    DISPLACED = 12
    CANCELLED = 13
    NEVER_FITS = 14
    UNAUTHORIZED = 15


class Outcome(IntEnum):
    """How an admitted request ended."""

    OK = 1
    ERROR = 2
    BUSY = 3
    ABORTED = 4
    INVALID = 5
    LOST = 6


class Mode(IntEnum):
    """What a target does with its decisions."""

    SHADOW = 1
    ENFORCE = 2
    OFF = 3


class SignalKind(IntEnum):
    """What a reading measures. Ratios are 0 to 1, sizes bytes or tokens, durations seconds."""

    ENGINE_UP = 1
    """1 when the engine answered the scrape with its own metrics, 0 when it did not."""
    RUNNING = 2
    WAITING = 3
    KV_USAGE_RATIO = 4
    KV_CAPACITY_TOKENS = 5
    PREEMPTIONS_TOTAL = 6
    PROMPT_TOKENS_TOTAL = 7
    GENERATION_TOKENS_TOTAL = 8
    TTFT_COUNT_TOTAL = 9
    """First tokens so far: the count of the engine's TTFT histogram."""
    ENGINE_REJECTIONS_TOTAL = 10
    MAX_SEQUENCES = 11
    VRAM_USED_BYTES = 20
    VRAM_FREE_BYTES = 21
    VRAM_TOTAL_BYTES = 22
    GPU_UTILIZATION_RATIO = 23
    GPU_POWER_W = 24
    GPU_TEMPERATURE_C = 25
    GPU_STATE = 26
    """1 when the GPU answers, 0 when it is lost."""
    GPU_CLOCK_REASONS = 27


class Source(StrEnum):
    """Where the measurement behind a change came from."""

    OWN = "own"
    SPANS = "spans"
    SCRAPE = "scrape"
    NVML = "nvml"
    OTLP = "otlp"
    OPERATOR = "operator"
    LAW = "law"


class Sight(StrEnum):
    """How much of a target we see."""

    FULL = "full"
    PARTIAL = "partial"
    HEADER = "header"
    BLIND = "blind"


class EngineState(StrEnum):
    """What we believe about the engine."""

    STARTING = "starting"
    UP = "up"
    OUTAGE = "outage"
    REOPENING = "reopening"


class EngineKind(StrEnum):
    """Which server it is, as far as its metrics tell."""

    UNKNOWN = "unknown"
    VLLM = "vllm"
    SGLANG = "sglang"
    TGI = "tgi"
    TRITON = "triton"
    DYNAMO = "dynamo"
    LLAMACPP = "llamacpp"
