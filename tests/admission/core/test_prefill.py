"""The prefill budget and the forecast of TTFT."""

from __future__ import annotations

from typing import Any

import pytest

from admission.core.cost import Cost
from admission.core.ledger import Ledger, Permit
from admission.core.model import Ticket, TicketId
from admission.core.prefill import Prefill, PrefillConfig


class Desk:
    """A ledger, a prefill budget, and permits of any size."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.prefill = Prefill(PrefillConfig())
        self.no = 0

    def admit(self, prompt: int, now: float, *, stream: bool = True) -> Permit:
        """Enter a permit."""
        self.no += 1
        ticket = Ticket(TicketId("s", self.no), stream=stream)
        permit = Permit(
            ticket, Cost(prompt, 1, prompt + 1), now, 0.0, self.ledger.pending_prompt + prompt, counted=True
        )
        self.ledger.add(permit)
        return permit

    def first_token(self, permit: Permit, now: float) -> None:
        """Its first token comes."""
        self.prefill.on_first_token(permit, now)
        self.ledger.prefilled(permit)

    def learn(self, rate: float, times: int = 10) -> None:
        """Make the engine known as one of that rate."""
        for _ in range(times):
            self.first_token(self.admit(4_000, 0.0), 4_000 / rate)


def test_the_rate_is_learned_from_first_tokens() -> None:
    """Until 20k tokens are seen it is a guess, then it is measured."""
    desk = Desk()
    assert desk.prefill.rate == 8_000
    desk.learn(2_000.0)
    assert round(desk.prefill.rate) == 2_000
    assert desk.prefill.budget(desk.ledger, 0.0) == pytest.approx(desk.prefill.config.share * 2.0 * 2_000)


def test_a_small_prompt_on_a_quiet_engine_does_not_measure_the_rate() -> None:
    """Its time is all overhead."""
    desk = Desk()
    for _ in range(500):
        desk.first_token(desk.admit(50, 0.0), 0.02)
    assert desk.prefill.known
    assert desk.prefill.rate == 8_000


def test_a_late_request_lowers_the_rate_now() -> None:
    """It is evidence while it waits, not when it ends."""
    desk = Desk()
    desk.learn(20_000.0)
    desk.admit(1_000, 10.0)
    desk.admit(3_000, 10.0)
    assert desk.prefill.censored(desk.ledger, 10.2) == pytest.approx(20_000)
    assert desk.prefill.censored(desk.ledger, 11.0) == pytest.approx(1_000)


def test_a_first_token_meanwhile_shows_that_prefill_goes_on() -> None:
    """Then only its own prompt explains how long the oldest has been waiting since."""
    desk = Desk()
    desk.learn(20_000.0)
    first, _ = desk.admit(4_000, 10.0), desk.admit(1_000, 10.0)
    desk.first_token(first, 10.8)
    assert desk.prefill.censored(desk.ledger, 11.0) == pytest.approx(desk.prefill.rate)
    assert desk.prefill.censored(desk.ledger, 11.8) == pytest.approx(1_000)


def test_figures_in_tokens_scale_with_the_slo() -> None:
    """A law tuned at 2 s must work at 50 ms too."""
    desk = Desk()
    desk.prefill.slo_s = 0.05
    desk.learn(800.0, times=1)
    assert desk.prefill.known
    assert desk.prefill.budget(desk.ledger, 0.0) == pytest.approx(12.8)


def test_the_forecast_counts_what_is_pending() -> None:
    """Prefill is first come, first served."""
    desk = Desk()
    desk.learn(2_000.0)
    desk.admit(1_000, 0.0)
    assert desk.prefill.forecast(1_000, desk.ledger, 0.0) == pytest.approx((0.5, 1.0))


def test_a_large_prompt_in_work_counts_for_what_is_left_of_it() -> None:
    """It is read for seconds: to count it whole until its first token would leave the engine with nothing to do after it."""
    desk = Desk()
    desk.learn(2_000.0)
    desk.admit(8_000, 100.0)
    desk.admit(1_000, 100.0)
    unread = [desk.prefill.unread(desk.ledger, at) for at in (99.0, 100.0, 102.0, 190.0)]
    assert unread == pytest.approx([9_000, 9_000, 5_000, 1_800])
    assert desk.prefill.forecast(1_000, desk.ledger, 102.0)[1] == pytest.approx(2.5 + 0.5)


def test_a_large_prompt_is_in_work_only_since_the_one_before_it_was_done() -> None:
    """Prefill is first come, first served."""
    desk = Desk()
    desk.learn(2_000.0)
    first, _ = desk.admit(1_000, 100.0), desk.admit(8_000, 100.0)
    desk.first_token(first, 100.5)
    assert desk.prefill.unread(desk.ledger, 101.5) == pytest.approx(8_000 - desk.prefill.rate)


def test_small_prompts_and_those_of_an_unknown_engine_count_whole() -> None:
    """A small one is read in a step or two; and nobody knows how far an engine is that was never seen."""
    desk = Desk()
    desk.admit(8_000, 100.0)
    assert desk.prefill.unread(desk.ledger, 101.0) == 8_000
    known = Desk()
    known.learn(2_000.0)
    assert known.prefill.unread(known.ledger, 100.0) == 0
    known.admit(3_000, 100.0)
    assert known.prefill.unread(known.ledger, 101.0) == 3_000


def test_a_slow_engine_is_measured_though_its_budget_never_lets_much_be_ahead() -> None:
    """Nor is any of its first tokens late: it would be thought slower than it is for ever."""
    desk = Desk()
    desk.learn(1_000.0)
    for no in range(300):
        desk.first_token(desk.admit(700, 100.0 + no), 100.35 + no)
    assert desk.prefill.rate == pytest.approx(2_000, rel=0.01)


def test_an_unknown_engine_is_trusted() -> None:
    """Refusing at the first request because of a guess would be absurd."""
    desk = Desk()
    assert desk.prefill.forecast(20_000, desk.ledger, 0.0) == pytest.approx((1.0, 1.0))


def test_a_restored_rate_holds_until_a_new_one_is_known_or_the_engine_restarts() -> None:
    """Yesterday's measurement beats a guess."""
    desk = Desk()
    desk.prefill.restored = 500.0
    assert desk.prefill.rate == 500.0
    desk.learn(2_000.0)
    assert round(desk.prefill.rate) == 2_000
    desk.prefill.forget()
    assert desk.prefill.rate == 8_000


def test_without_first_tokens_the_engine_queue_steers() -> None:
    """Waiting inside means too much; nothing waiting while the budget binds means too little."""
    desk = Desk()
    desk.prefill.steer(5, binds=True)
    assert desk.prefill.rate == pytest.approx(7_200)
    desk.prefill.steer(0, binds=True)
    assert desk.prefill.rate == pytest.approx(7_560)
    desk.prefill.steer(0, binds=False)
    desk.prefill.steer(1, binds=True)
    assert desk.prefill.rate == pytest.approx(7_560)


def test_a_stall_is_silence_that_the_oldest_prompt_cannot_explain() -> None:
    """Only for streams: others are silent anyway."""
    desk = Desk()
    assert not desk.prefill.stalled(desk.ledger, 0.0)
    silent = desk.admit(100, 0.0, stream=False)
    assert not desk.prefill.stalled(desk.ledger, 9.0)
    desk.ledger.prefilled(silent)
    desk.admit(100, 0.0)
    assert not desk.prefill.stalled(desk.ledger, 0.2)
    assert desk.prefill.stalled(desk.ledger, 1.0)
    desk.learn(4_000.0)
    assert desk.prefill.stalled(desk.ledger, 3.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"share": 0.0},
        {"refuse_share": 2.0},
        {"initial_rate": 0.0},
        {"decay": 1.0},
        {"large_tokens": 0},
        {"over_slo_share": 0.0},
    ],
)
def test_impossible_settings_are_refused(bad: dict[str, Any]) -> None:
    """With their name."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        PrefillConfig(**bad)


def test_a_large_prompt_is_judged_by_what_a_cache_miss_costs() -> None:
    """Hits of a prefix cache are all or nothing: four in five make the mean rate say nothing about the fifth."""
    desk = Desk()
    for no in range(50):
        desk.first_token(desk.admit(8_000, 0.0), 4.0 if no % 4 == 0 else 0.1)
    assert desk.prefill.rate > 5_000
    assert desk.prefill.forecast(8_000, desk.ledger, 0.0)[0] == pytest.approx(4.0)
    assert desk.prefill.forecast(1_000, desk.ledger, 0.0)[0] == pytest.approx(1_000 / desk.prefill.rate)


def test_a_few_large_prompts_prove_nothing_yet() -> None:
    """Under five the mean has to do."""
    desk = Desk()
    for _ in range(4):
        desk.first_token(desk.admit(8_000, 0.0), 8.0)
    desk.learn(8_000.0, times=20)
    assert desk.prefill.rate_for(8_000, 8_000.0) == pytest.approx(8_000.0)


def test_a_restart_forgets_what_a_miss_costs() -> None:
    """The engine may come back with another cache."""
    desk = Desk()
    for _ in range(10):
        desk.first_token(desk.admit(8_000, 0.0), 8.0)
    assert desk.prefill.rate_for(8_000, 8_000.0) == pytest.approx(1_000.0)
    desk.prefill.forget()
    assert desk.prefill.rate_for(8_000, 8_000.0) == pytest.approx(8_000.0)
