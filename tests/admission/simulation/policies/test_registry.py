"""Policies by name, and the product's own controller among them."""

from __future__ import annotations

import math

import pytest

from admission.core.controller import ControllerConfig
from admission.core.limits.fixed import FixedConfig
from admission.core.model import Admitted, Event, Queued, Reading, Rejected, Ticket, TicketId
from admission.core.slo import SloConfig
from admission.simulation.policies import Policy, PolicySpec, build, kind, names
from admission.simulation.policies.fixed import FixedRequestsConfig, FixedTokensConfig
from admission.simulation.policies.tidegate import Tidegate, TidegateConfig
from admission.vocabulary import Mode, PriorityClass, SignalKind, Source

STRICT = {PriorityClass.INTERACTIVE: SloConfig(ttft_s=0.5, tpot_s=0.01)}


def submit(policy: Policy, no: int, max_tokens: int = 0) -> list[Event]:
    """One ticket of 100 prompt tokens."""
    return policy.submit(Ticket(TicketId("s", no), prompt_tokens=100, max_tokens=max_tokens), 0.0)


def core(spec: PolicySpec, **more: dict[PriorityClass, SloConfig]) -> Tidegate:
    """A policy that is the product's."""
    policy = build(spec, seed=0, now=0.0, slos=more.get("slos"))
    assert isinstance(policy, Tidegate)
    return policy


@pytest.mark.parametrize("name", names())
def test_every_policy_builds_without_settings_and_admits_to_an_idle_engine(name: str) -> None:
    """Found by its file; nothing else has to know it."""
    policy = build(PolicySpec(name), seed=0, now=0.0, slos=STRICT)
    policy.observe(Reading(SignalKind.WAITING, 0.0, 0.0, Source.SCRAPE), 0.0)
    assert any(isinstance(event, Admitted) for event in submit(policy, 1))
    assert policy.look(0.0).in_flight == 1


def test_a_wrong_name_lists_the_right_ones() -> None:
    """And a configuration of another policy is no configuration."""
    with pytest.raises(ValueError, match="fixed_requests, fixed_tokens"):
        kind("magic")
    with pytest.raises(TypeError, match="takes a FixedTokensConfig, not a FixedRequestsConfig"):
        build(PolicySpec("fixed_tokens", FixedRequestsConfig()), seed=0, now=0.0)


def test_the_product_enforces_unless_told_otherwise() -> None:
    """Its own default is shadow, which would compare nothing."""
    assert core(PolicySpec("tidegate")).mode is Mode.ENFORCE
    assert core(PolicySpec("tidegate", ControllerConfig())).mode is Mode.SHADOW


def test_slos_reach_every_policy_that_has_them() -> None:
    """A scenario says what good means, and all are held to it."""
    for name in ("tidegate", "fixed_tokens", "fixed_requests"):
        classes = core(PolicySpec(name), slos=STRICT).config.classes
        assert classes[PriorityClass.INTERACTIVE].slo == STRICT[PriorityClass.INTERACTIVE]
        assert classes[PriorityClass.BATCH].slo != STRICT[PriorityClass.INTERACTIVE]


def test_it_switches_to_enforcing_at_its_time() -> None:
    """As an operator does after a while in shadow."""
    config = TidegateConfig(mode=Mode.SHADOW, enforce_at_s=0.5, limit=FixedConfig(limit_tokens=400))
    policy = core(PolicySpec("tidegate", config))
    assert policy.next_wakeup() == 0.5
    policy.wake(0.5)
    assert policy.mode is Mode.ENFORCE
    assert policy.next_wakeup() == 1.0


def test_callers_of_a_simulated_world_never_fall_silent() -> None:
    """A permit held for minutes without news is not lost: its owner's heartbeats go on."""
    policy = core(PolicySpec("tidegate"))
    submit(policy, 1)
    now = 0.0
    while now < 120.0:
        now = policy.next_wakeup() or now
        policy.wake(now)
    assert policy.look(now).in_flight == 1


def test_none_counts_and_never_refuses() -> None:
    """What an engine does alone."""
    policy = build(PolicySpec("none"), seed=0, now=0.0)
    for no in range(1_000):
        submit(policy, no)
    look = policy.look(0.0)
    assert (look.limit, look.used, look.in_flight, look.queued) == (math.inf, 100_000, 1_000, 0)
    assert policy.cancel(TicketId("s", 7), 1.0) == []
    assert policy.cancel(TicketId("s", 7), 1.0) == []
    assert policy.look(0.0).in_flight == 999
    assert policy.next_wakeup() is None


def test_fixed_budgets_stand_still() -> None:
    """One in tokens of prompt and expected answer, one in requests; the rest of the product is as it is."""
    tokens = core(PolicySpec("fixed_tokens", FixedTokensConfig(limit_tokens=1_000)))
    requests = core(PolicySpec("fixed_requests", FixedRequestsConfig(limit_requests=2)))
    for policy in (tokens, requests):
        policy.target.prefill.restored = 1e6
        admitted = 0
        for no in range(8):
            events = submit(policy, no, max_tokens=156)
            admitted += any(isinstance(event, Admitted) for event in events)
            assert any(isinstance(event, Admitted | Queued | Rejected) for event in events)
        assert admitted == {id(tokens): 3, id(requests): 2}[id(policy)]
