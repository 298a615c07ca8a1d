"""The stand-in's /metrics: vLLM's names, types and buckets over the engine model's own counts."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from admission.simulation.engine import StepResult
from admission.simulation.standin.driver import Driver, Stream

_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0),
)
_LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
    *(480.0, 960.0, 1920.0, 7680.0),
)
_BLOCK_TOKENS = 16
_LABELS = ("model_name", "engine")


class Tally:
    """A histogram that counts many equal values at once: a step gives each of its streams the same gap."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, in seconds."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def family(self, labels: tuple[str, str]) -> HistogramMetricFamily:
        """The histogram as it is exposed."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        family = HistogramMetricFamily(self._name, self._text, labels=_LABELS)
        family.add_metric(labels, buckets, self._sum)
        return family


class StandInMetrics(Collector):
    """Collects at each scrape; told of steps and finished sequences in between."""

    def __init__(self, model: str) -> None:
        self.driver: Driver | None = None
        self._labels = (model, "0")
        self._ttft = Tally("vllm:time_to_first_token_seconds", "Time to first token.", _TTFT)
        self._itl = Tally("vllm:inter_token_latency_seconds", "Gap between two tokens.", _TOKEN)
        self._tpot = Tally("vllm:request_time_per_output_token_seconds", "Mean gap of a request.", _TOKEN)
        self._e2e = Tally("vllm:e2e_request_latency_seconds", "Whole request.", _LATENCY)
        self._queue = Tally("vllm:request_queue_time_seconds", "Time in WAITING.", _LATENCY)
        self._finished = Counter[str]()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The text that a scrape gets."""
        return generate_latest(self._registry)

    def stepped(self, result: StepResult, gap_s: float) -> None:
        """Count a step's first tokens and gaps."""
        for sequence in result.first:
            self._ttft.observe(result.at - sequence.arrived_at)
        if result.step.decode_seqs:
            self._itl.observe(gap_s or result.at - result.step.started_at, result.step.decode_seqs)

    def finished(self, stream: Stream) -> None:
        """Count a sequence that ended whole."""
        sequence = stream.sequence
        first, end = sequence.first_token_at, sequence.finished_at
        if first is None or end is None or sequence.scheduled_at is None:
            return
        self._finished[stream.call.ask.finish_reason] += 1
        self._e2e.observe(end - sequence.arrived_at)
        self._queue.observe(sequence.scheduled_at - sequence.arrived_at)
        if sequence.output_tokens > 1:
            self._tpot.observe((end - first) / (sequence.output_tokens - 1))

    def collect(self) -> Iterator[Metric]:
        """Yield every family; called by the registry at a scrape."""
        if self.driver is None:
            return
        yield from self._gauges(self.driver)
        yield from self._counters(self.driver)
        for tally in (self._ttft, self._itl, self._tpot, self._e2e, self._queue):
            yield tally.family(self._labels)

    def _gauges(self, driver: Driver) -> Iterator[Metric]:
        engine = driver.engine
        for name, text, value in (
            ("vllm:num_requests_running", "Requests in the batch.", engine.running),
            ("vllm:num_requests_waiting", "Requests that wait.", engine.waiting),
            ("vllm:kv_cache_usage_perc", "KV-cache usage; 1 means 100 percent.", engine.kv_usage_ratio),
            ("standin:lag_seconds", "Time the model lost to a late event loop.", driver.lag_s),
            ("standin:busy_seconds", "Time spent in steps.", engine.busy_s),
        ):
            family = GaugeMetricFamily(name, text, labels=_LABELS)
            family.add_metric(self._labels, value)
            yield family
        blocks = engine.config.kv_capacity_tokens // _BLOCK_TOKENS
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The cache's configuration.",
            labels=("block_size", "num_gpu_blocks", "engine"),
        )
        info.add_metric((str(_BLOCK_TOKENS), str(blocks), "0"), 1)
        yield info

    def _counters(self, driver: Driver) -> Iterator[Metric]:
        engine = driver.engine
        for name, text, value in (
            ("vllm:num_preemptions", "Preemptions.", engine.preemptions_total),
            ("vllm:prompt_tokens", "Prompt tokens prefilled.", engine.prompt_tokens_total),
            ("vllm:generation_tokens", "Tokens generated.", engine.generation_tokens_total),
        ):
            family = CounterMetricFamily(name, text, labels=_LABELS)
            family.add_metric(self._labels, value)
            yield family
        success = CounterMetricFamily(
            "vllm:request_success", "Finished requests.", labels=(*_LABELS, "finished_reason")
        )
        # vLLM leaves "abort" at 0 when clients go away.
        for reason in ("stop", "length", "abort"):
            success.add_metric((*self._labels, reason), self._finished[reason])
        yield success
        rejections = CounterMetricFamily(
            "vllm:admission_rejections", "Refused by the engine's own limit.", labels=(*_LABELS, "reason")
        )
        rejections.add_metric((*self._labels, "max_num_queued_reqs"), driver.rejections_total)
        yield rejections
