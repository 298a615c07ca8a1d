"""What less urgent classes leave to the more urgent ones."""

from __future__ import annotations

from admission.core.limits.fixed import FixedConfig
from admission.core.model import Admitted, Queued
from admission.core.settings import default_classes
from admission.vocabulary import PriorityClass
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

BATCH = PriorityClass.BATCH
PLENTY = FixedConfig(limit_tokens=10_000_000)


def test_batch_stays_out_for_a_moment_after_interactive_had_to_wait() -> None:
    """Room that comes free then is for the next one of those who wait least gladly."""
    bench = Bench(limit=FULL_AT_100K, classes=default_classes())
    first = bench.fill(60_000)
    second = bench.fill(35_000)
    waiting = bench.ticket(prompt_tokens=8_000, max_tokens=1)
    only(Queued, bench.core.submit(waiting, bench.now))
    assert only(Admitted, bench.finish(first)).ticket is waiting
    bench.core.first_token(waiting.id, bench.now)
    only(Queued, bench.submit(prompt_tokens=100, max_tokens=1, priority=BATCH))
    assert some(Admitted, bench.wait(1.5)) == []
    assert [one.ticket.priority for one in some(Admitted, bench.wait(1.0))] == [BATCH]
    bench.finish(second)


def test_batch_leaves_some_kv_to_interactive() -> None:
    """A limit in tokens leaves room of its own; where KV is scarce that alone leaves none."""
    bench = Bench(limit=PLENTY, classes=default_classes())
    bench.scrape(running=0, waiting=0, kv=0.0, capacity=100_000)
    held = bench.admit(prompt_tokens=80_000, max_tokens=1)
    bench.core.first_token(held.id, bench.now)
    only(Queued, bench.submit(prompt_tokens=6_000, max_tokens=1, priority=BATCH))
    only(Admitted, bench.submit(prompt_tokens=6_000, max_tokens=1))
