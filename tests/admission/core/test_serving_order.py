"""Who of a class is admitted first."""

from __future__ import annotations

from dataclasses import replace

from admission.core.model import Admitted, Queued
from admission.core.settings import ClassConfig, default_classes
from admission.core.slo import SloConfig
from admission.vocabulary import PriorityClass
from tests.admission.core.bench import FULL_AT_100K, Bench, only, some

BATCH = PriorityClass.BATCH


def test_a_class_is_served_in_the_order_that_its_settings_say() -> None:
    """Also one set while they wait already."""
    newest = {**default_classes(), PriorityClass.INTERACTIVE: ClassConfig(order="newest", overtaken_s=9.0)}
    bench = Bench(limit=FULL_AT_100K)
    long = bench.fill()
    for _ in range(2):
        only(Queued, bench.submit(prompt_tokens=4_000, max_tokens=1))
        bench.wait(0.1)
    bench.core.reconfigure(replace(bench.core.config, classes=newest), bench.now)
    third = bench.ticket(prompt_tokens=4_000, max_tokens=1)
    only(Queued, bench.core.submit(third, bench.now))
    assert only(Admitted, bench.finish(long)).ticket is third


def test_the_one_whose_first_token_is_due_first_goes_first() -> None:
    """A large prompt has a longer target: the small one that came after it is late before it."""
    grows = ClassConfig(slo=SloConfig(ttft_s=2.0, ttft_per_1k_s=0.25), queue_rate_s=9.0)
    bench = Bench(limit=FULL_AT_100K, classes={**default_classes(), PriorityClass.INTERACTIVE: grows})
    long = bench.fill()
    large = bench.ticket(prompt_tokens=3_000, max_tokens=1)
    only(Queued, bench.core.submit(large, bench.now))
    bench.wait(0.1)
    small = bench.ticket(prompt_tokens=1_000, max_tokens=1)
    only(Queued, bench.core.submit(small, bench.now))
    assert [one.ticket for one in some(Admitted, bench.finish(long))] == [small, large]


def fitting(**classes: ClassConfig) -> Bench:
    """A limit of 100k that is 90 % full; interactive is served in order of fit."""
    settings = {**default_classes(), PriorityClass.INTERACTIVE: ClassConfig(order="fit", queue_rate_s=99.0)}
    bench = Bench(
        limit=FULL_AT_100K,
        classes={**settings, **{PriorityClass[name]: one for name, one in classes.items()}},
    )
    bench.fill(90_000)
    return bench


def test_a_small_one_may_pass_a_large_one_that_does_not_fit() -> None:
    """For a third of the large one's patience; then it waits for it like everybody."""
    bench = fitting()
    only(Queued, bench.submit(prompt_tokens=60_000, max_tokens=1))
    only(Admitted, bench.submit(prompt_tokens=100, max_tokens=1))
    bench.wait(0.6)
    only(Queued, bench.submit(prompt_tokens=100, max_tokens=1))


def test_no_less_urgent_one_passes_with_them() -> None:
    """Order of fit is an order within a class."""
    bench = fitting()
    only(Queued, bench.submit(prompt_tokens=60_000, max_tokens=1))
    only(Queued, bench.submit(prompt_tokens=100, max_tokens=1, priority=BATCH))


def test_only_a_few_that_do_not_fit_are_passed() -> None:
    """Each look at the queue costs the same, however long it is."""
    bench = fitting()
    for _ in range(5):
        only(Queued, bench.submit(prompt_tokens=12_000, max_tokens=1))
    only(Queued, bench.submit(prompt_tokens=100, max_tokens=1))
