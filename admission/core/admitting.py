"""How one ticket gets in: decided on arrival, queued, taken from the head, shed."""

from __future__ import annotations

from admission.core.budgets import Block, Forecast
from admission.core.cost import Cost
from admission.core.gates.base import Hold, Refuse
from admission.core.holding import Holding
from admission.core.model import GateChanged, Queued, Rejected, ShadowDecided, Shed, Ticket, TicketId, Why
from admission.core.queueing.queue import Waiter
from admission.vocabulary import Mode, Reason, Source, Verdict


class Admitting(Holding):
    """The way from submit to grant."""

    # Arrival

    def _submit(self, ticket: Ticket, now: float) -> None:
        if self.mode is Mode.SHADOW:
            self._submit_in_shadow(ticket, now)
        else:
            self._decide(ticket, now)

    def _submit_in_shadow(self, ticket: Ticket, now: float) -> None:
        before = len(self._events)
        self._decide(ticket, now)
        if ticket.id in self.target.ledger.permits:
            return
        index = next(i for i in range(before, len(self._events)) if self._answers(i, ticket))
        event = self._events.pop(index)
        assert isinstance(event, Queued | Rejected)  # noqa: S101 - narrows a type
        self._grant(ticket, self.target.cost.predict(ticket), 0.0, now, counted=False, shadow=event)

    def _answers(self, index: int, ticket: Ticket) -> bool:
        event = self._events[index]
        return isinstance(event, Queued | Rejected) and event.ticket is ticket

    def _decide(self, ticket: Ticket, now: float) -> None:
        cost = self.target.cost.predict(ticket)
        never = self.budgets.never_fits(cost, now)
        if never is not None:
            self._emit(Rejected(ticket, Reason.NEVER_FITS, None, never))
            return
        answer = self.budgets.gate(ticket, now) if self._shut else None
        if isinstance(answer, Refuse):
            self._emit(Rejected(ticket, answer.reason, self._jittered(answer.retry_after_s), answer.why))
            return
        forecast = self.budgets.forecast(ticket, cost, ticket.waited_s, now)
        if forecast is not None and self.budgets.hopeless(forecast, now):
            self._reject(ticket, Reason.TTFT_FORECAST, _forecast_why(forecast), now)
        elif not self._admit_at_once(ticket, cost, answer, forecast, now):
            self._enqueue(ticket, cost, now)

    def _admit_at_once(
        self, ticket: Ticket, cost: Cost, held: Hold | None, forecast: Forecast | None, now: float
    ) -> bool:
        if held is not None or len(self.target.queue) or ticket.id.owner in self._stalled:
            return False
        if self._silent:
            self._settle_silent(now)
        block = self.budgets.block(ticket, cost, forecast, now)
        if block is not None:
            self._note(block)
            return False
        self._grant(ticket, cost, ticket.waited_s, now, counted=True, over_slo=_over_slo(forecast))
        return True

    def _enqueue(self, ticket: Ticket, cost: Cost, now: float) -> None:
        full = self._queue_is_full(ticket, cost)
        if full is not None:
            self._reject(ticket, full[0], full[1], now)
            return
        patience_s = self._patience_s(ticket)
        arrived_at = now - ticket.waited_s
        if arrived_at + patience_s <= now:
            why = Why("its patience is over", ticket.waited_s, patience_s, "s")
            self._reject(ticket, Reason.DEADLINE, why, now)
            return
        position = self.target.queue.ahead_of(ticket.priority)[0] + 1
        expected_wait_s = min(self._expected_wait_s(ticket), patience_s)
        self.target.queue.add(Waiter(ticket, cost, arrived_at, arrived_at + patience_s))
        self._pump(now)
        if ticket.id in self.target.queue:
            self._emit(Queued(ticket, position, expected_wait_s))

    def _queue_is_full(self, ticket: Ticket, cost: Cost) -> tuple[Reason, Why] | None:
        queue, settings = self.target.queue, self.target.class_config(ticket.priority)
        count = queue.count[ticket.priority]
        if count >= settings.queue_tickets:
            detail = f"{count} {ticket.priority.label} tickets wait"
            return Reason.QUEUE_FULL, Why(detail, count, settings.queue_tickets, "tickets")
        tokens = queue.prompt_tokens[ticket.priority] + cost.prompt
        bound = settings.queue_rate_s * self.target.prefill.rate
        if count and tokens > bound:
            detail = f"{tokens} prompt tokens would wait"
            return Reason.QUEUE_TOKENS, Why(detail, tokens, bound, "tokens")
        return None

    def _patience_s(self, ticket: Ticket) -> float:
        longest = self.target.class_config(ticket.priority).patience
        return longest if ticket.patience_s is None else min(ticket.patience_s, longest)

    def _expected_wait_s(self, ticket: Ticket) -> float:
        """Cost that waits before it, over the cost that finishes per second."""
        ahead = self.target.queue.ahead_of(ticket.priority)[1]
        drained = self.target.drained.per_second
        return ahead / drained if drained > 0 else 1.0

    def _reject(self, ticket: Ticket, reason: Reason, why: Why, now: float) -> None:
        expected_s = self._expected_wait_s(ticket)
        position = self.target.queue.ahead_of(ticket.priority)[0] + 1
        self._emit(Rejected(ticket, reason, self._jittered(expected_s), why, position, expected_s))

    def _jittered(self, seconds: float) -> float:
        """Retry-After: bounded, and spread so that those refused together do not come back together."""
        bounds = self.config.retry_after
        spread = 1.0 - bounds.jitter + 2.0 * bounds.jitter * self._random.random()
        return min(max(seconds, bounds.min_s) * spread, bounds.max_s)

    # The queue

    def _pump(self, now: float) -> None:
        """Bring the queue to rest: admit from its head while there is room."""
        if self._silent:
            self._settle_silent(now)
        queue = self.target.queue
        while len(queue):
            waiter = queue.pick(lambda waiting: self._passes(waiting, now), now)
            if waiter is None or not self._try_head(waiter, now):
                return

    def _passes(self, waiter: Waiter, now: float) -> bool:
        waiter.held_for = None
        if not self._shut:
            return True
        if waiter.ticket.id.owner in self._stalled:
            return False
        answer = self.budgets.gate(waiter.ticket, now)
        if answer is None:
            return True
        waiter.held_for, waiter.held_why = answer.reason, answer.why
        return False

    def _try_head(self, waiter: Waiter, now: float) -> bool:
        waited_s = now - waiter.arrived_at
        forecast = self.budgets.forecast(waiter.ticket, waiter.cost, waited_s, now)
        if forecast is not None and self.budgets.hopeless(forecast, now):
            self.target.queue.remove(waiter.ticket.id)
            self._shed(waiter, Reason.TTFT_FORECAST, _forecast_why(forecast), now)
            return True
        block = self.budgets.block(waiter.ticket, waiter.cost, forecast, now)
        if block is not None:
            # Stop here: a smaller ticket slipping past would starve large ones and turn priority round.
            self._note(block)
            return False
        self.target.queue.remove(waiter.ticket.id)
        self._admit_waiter(waiter, _over_slo(forecast), now)
        return True

    def _admit_waiter(self, waiter: Waiter, over_slo: bool, now: float) -> None:
        permit = self.target.ledger.permits.get(waiter.ticket.id)
        waited_s = now - waiter.arrived_at
        if permit is None:
            self._grant(waiter.ticket, waiter.cost, waited_s, now, counted=True, over_slo=over_slo)
            return
        self.target.ledger.count(permit)
        self._emit(ShadowDecided(waiter.ticket, Verdict.ADMITTED, None, waited_s))

    def _shed(
        self, waiter: Waiter, reason: Reason, why: Why, now: float, retry_s: float | None = None
    ) -> None:
        waited_s = now - waiter.arrived_at
        if waiter.ticket.id in self.target.ledger.permits:
            self._emit(ShadowDecided(waiter.ticket, Verdict.SHED, reason, waited_s))
            return
        base_s = self._expected_wait_s(waiter.ticket) if retry_s is None else retry_s
        retry_after_s = None if reason is Reason.CANCELLED else self._jittered(base_s)
        self._emit(Shed(waiter.ticket, reason, retry_after_s, why, waited_s))

    def _shed_expired(self, waiter: Waiter, now: float) -> None:
        if waiter.held_for is not None:
            self._shed(waiter, waiter.held_for, waiter.held_why, now)
            return
        waited_s, patience_s = now - waiter.arrived_at, waiter.deadline_at - waiter.arrived_at
        why = Why(f"waited {waited_s:.2f} s of {patience_s:.2f} s", waited_s, patience_s, "s")
        self._shed(waiter, Reason.DEADLINE, why, now)

    def _cancel_waiter(self, id: TicketId, now: float) -> bool:
        waiter = self.target.queue.remove(id)
        if waiter is None:
            return False
        self._shed(waiter, Reason.CANCELLED, Why("its caller left"), now)
        return True

    def _sweep(self, now: float) -> None:
        """A gate changed: waiters that it refuses leave at once, rather than at their deadline."""
        for waiter in self.target.queue.waiters():
            answer = self.budgets.gate(waiter.ticket, now)
            if isinstance(answer, Refuse) and answer.reason is not Reason.OUTAGE:
                self.target.queue.remove(waiter.ticket.id)
                self._shed(waiter, answer.reason, answer.why, now, answer.retry_after_s)

    def _note(self, block: Block) -> None:
        if block is Block.LIMIT:
            self.target.refused_for_limit = True
        else:
            self.target.refused_for_other = True

    def _gate_changed(self, name: str, before: str, now: float) -> None:
        views = {gate.name: gate.view() for gate in self.target.gates.values()}
        self._gates_shut = any(view.state != "open" for view in views.values())
        self._emit(GateChanged(name, before, views[name].state, views[name].why))
        self._sweep(now)
        self._pump(now)

    def _stop_enforcing(self, now: float) -> None:
        for waiter in self.target.queue.waiters():
            self.target.queue.remove(waiter.ticket.id)
            if waiter.ticket.id not in self.target.ledger.permits:
                self._grant(waiter.ticket, waiter.cost, now - waiter.arrived_at, now, counted=True)


def _over_slo(forecast: Forecast | None) -> bool:
    return forecast is not None and forecast.over_slo


def _forecast_why(forecast: Forecast) -> Why:
    detail = f"TTFT forecast {forecast.ttft_s:.2f} s, at most {forecast.allowed_s:.2f} s"
    return Why(detail, forecast.ttft_s, forecast.allowed_s, "s", Source.OWN)
