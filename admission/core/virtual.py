"""Shadow: how what enforcing would admit would go on an engine that holds nothing else."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf

from admission.core.ledger import Course, Permit
from admission.core.lengths import Lengths
from admission.core.pace import LIVE_WINDOW_S, MIN_LEFT, Excess, Pace, Streaming, streaming
from admission.core.plant import Plant
from admission.core.stats import Rate
from admission.core.target import Target
from admission.vocabulary import Outcome, PriorityClass

EXCEEDS = 1.1
"""More in flight than so many times what is counted: then reality says nothing about enforcing any more."""
MIN_WATCHED = 4
"""Streams that got tokens within a tick: fewer tell little of what a step takes."""
GOLDEN = 0.6180339887498949
"""Its multiples, taken modulo 1, are spread evenly however many there are: draws without randomness."""
PROMPTS_S = 3.0
LEAST_S = 0.001
"""Nothing takes less: what is planned lies in the future."""
LEFT_S = 10.0
"""So long after a caller left unserved the plant learns nothing: prompts read in vain would pass for slow steps."""


class Virtual:
    """While reality exceeds the virtual ledger, what is counted goes by a clock of its own: see `Plant`.

    Prompts are read one after the other at the rate measured before, answers are drawn from those seen lately, and their
    tokens come at the pace that the plant would have with what is counted alone.
    """

    def __init__(self, target: Target, now: float) -> None:
        self._target = target
        self.plant = Plant(target.prefill.rate)
        self.pace = Pace()
        self.excess: Excess | None = None
        """What the law would see: 1 - TPOT/SLO of the counted."""
        self._due: list[tuple[float, int, Permit, Course]] = []
        self._no = self._drawn = 0
        self._lengths = [Lengths() for _ in PriorityClass]
        self._read_until = -inf
        self._prompts_done = 0
        """Prompt tokens whose first token came, in reality, since the last tick."""
        self._read = Rate(PROMPTS_S, now)
        self._pace_s = LEAST_S
        self._left_at = -inf
        """When a caller last left before its first token: how much of its prompt was read is not known."""
        self._ticked_at = now
        self._tick_s = 1.0

    # What happens

    def on_counted(self, permit: Permit, now: float) -> None:
        """A permit is counted from now on."""
        if self._target.ledger.exceeded:
            self._start(permit, now)

    def on_first_token(self, permit: Permit) -> None:
        """A first token came in reality."""
        self._prompts_done += permit.cost.prompt

    def on_answer(self, permit: Permit, output_tokens: float | None) -> None:
        """A whole answer came in reality."""
        if output_tokens is not None and permit.ticket.stream:
            each = self._each(permit)
            before = 0.0 if permit.marks is None else permit.marks[-1][1] * each
            tokens = output_tokens / max(1, permit.ticket.n)
            lengths = self._lengths[permit.ticket.priority]
            lengths.made(min(before, tokens), tokens)
            lengths.ended(tokens)

    def _each(self, permit: Permit) -> float:
        """Tokens of one answer in a chunk."""
        return self._target.cost.tokens(permit.ticket.flow.model, 1) / max(1, permit.ticket.n)

    def on_finished(self, permit: Permit, tpot_s: float, slo_s: float, now: float) -> None:
        """A permit ended in reality, and told its pace."""
        if permit.counted and permit.course is None:
            self.pace.on_finished(permit, tpot_s, slo_s, now)

    def on_end(self, permit: Permit, outcome: Outcome, now: float) -> bool:
        """A permit ended in reality. True: as foretold it runs on, and stays counted.

        So do those that ended well, and those whose callers lost patience with a real overload; whoever leaves while
        it streams leaves on purpose.
        """
        impatient = outcome is Outcome.ABORTED and permit.first_token_at is None
        if impatient:
            self._left_at = now
        if permit.course is None or not permit.counted:
            return False
        return outcome is Outcome.OK or impatient

    def run(self, now: float) -> None:
        """Virtual first tokens and ends that are due."""
        while self._due and self._due[0][0] <= now:
            at, _, permit, course = heapq.heappop(self._due)
            if permit.course is not course or not self._target.ledger.counts(permit):
                continue
            if course.began_at is None:
                self._begin(permit, course, at)
            else:
                self._end(permit, (at - course.began_at) / max(1.0, course.ends_after - 1.0), at)

    def next_at(self) -> float | None:
        """When the next is due."""
        return self._due[0][0] if self._due else None

    def _start(self, permit: Permit, now: float) -> None:
        each = max(1, permit.ticket.n)
        made = 0.0 if permit.first_token_at is None else self._target.tokens(permit) / each
        course = permit.course = Course(self._length(permit, made), tokens=made)
        if permit.first_token_at is not None:
            # What it has made would have come at the foretold pace as well.
            course.began_at = max(permit.first_token_at, now - made * self._pace_s)
            return
        prefill, prompt = self._target.prefill, permit.cost.prompt
        self._read_until = max(now, self._read_until) + max(LEAST_S, prompt / prefill.rate)
        self._at(self._read_until, permit, course)

    def _length(self, permit: Permit, made: float) -> float:
        self._drawn += 1
        most = permit.ticket.max_tokens or inf
        length = self._lengths[permit.ticket.priority].draw(made, self._drawn * GOLDEN % 1.0)
        if length is None:
            length = made + permit.cost.output / max(1, permit.ticket.n)
        return max(1.0, min(length, most))

    def _at(self, at: float, permit: Permit, course: Course) -> None:
        self._no += 1
        heapq.heappush(self._due, (at, self._no, permit, course))

    def _begin(self, permit: Permit, course: Course, at: float) -> None:
        target = self._target
        course.began_at = at
        self._read.add(permit.cost.prompt)
        prefill = target.prefill
        prefill.last_first_token_at = max(at, prefill.last_first_token_at)
        if permit.over_slo:
            prefill.ration(at - permit.counted_at, at)
        target.ledger.prefilled(permit)
        target.ledger.in_time(permit)
        self._end_soon(permit, course, at)

    def _end_soon(self, permit: Permit, course: Course, now: float) -> None:
        """Plan its end when that comes before the next tick, which will know a newer pace."""
        at = now + max(LEAST_S, (course.ends_after - course.tokens) * self._pace_s)
        if at < self._ticked_at + self._tick_s:
            self._at(at, permit, course)

    def _end(self, permit: Permit, tpot_s: float, at: float) -> None:
        target = self._target
        self.pace.on_finished(permit, tpot_s, target.class_config(permit.ticket.priority).slo.tpot_s, at)
        target.drained.add(permit.cost.total)
        target.ledger.release(permit)

    # Once a second

    def watch(self, now: float) -> None:
        """Learn what the engine's time went to since the last tick; before streams get their new marks."""
        target = self._target
        tokens = stream_s = kv_tokens = 0.0
        streams = 0
        for permit in target.ledger.permits.values():
            if permit.first_token_at is None:
                continue
            kv_tokens += permit.cost.prompt + target.tokens(permit)
            each = self._each(permit)
            since, before = (-inf, 0) if permit.marks is None else permit.marks[-1]
            self._lengths[permit.ticket.priority].made(before * each, permit.chunks * each)
            if permit.marks is not None and permit.last_chunk_at is not None:
                passed_s = permit.last_chunk_at - target.stillness.total_s - since
                if passed_s > 0:
                    tokens += (permit.chunks - before) * each
                    stream_s += passed_s
                    streams += 1
        if not target.ledger.exceeded:
            self.plant.prefill_rate = target.prefill.rate
        seconds = now - self._ticked_at
        told = not self.plant.known or now - self._left_at > LEFT_S
        if streams >= MIN_WATCHED and seconds > 0 and told:
            self.plant.watch(seconds, tokens / stream_s * seconds, kv_tokens, self._prompts_done)

    def tick(self, tick_s: float, now: float) -> None:
        """Advance what is counted, see whether reality exceeds it, and how the law would see it."""
        ledger = self._target.ledger
        if not ledger.exceeded:
            self._read.add(self._prompts_done)
        self._prompts_done = 0
        self._read.fold(now)
        self._advance(now)
        ledger.exceeded = self.exceeds and self.plant.known
        self._ticked_at, self._tick_s = now, tick_s
        self._set_pace()
        if ledger.exceeded:
            for permit in [one for one in ledger.counted_permits() if one.course is None]:
                self._start(permit, now)
        for permit, course, _ in list(self._begun()):
            self._end_soon(permit, course, now)
        self.excess = self.pace.excess(self._live(now), now)
        if self.excess is not None and ledger.exceeded:
            why = self.excess.why
            self.excess = self.excess._replace(why=why._replace(detail=f"as foretold, {why.detail}"))

    @property
    def exceeds(self) -> bool:
        """Is more in flight than enforcing would have?"""
        ledger = self._target.ledger
        return ledger.used_really > EXCEEDS * ledger.used

    def _advance(self, now: float) -> None:
        for _, course, began_at in self._begun():
            course.tokens += (now - max(began_at, self._ticked_at)) / self._pace_s
            course.marks.append((now, course.tokens))
        ledger = self._target.ledger
        for permit in ledger.beyond.values():
            ledger.expect_kv(permit, self._target.expected_kv(permit))

    def _begun(self) -> Iterator[tuple[Permit, Course, float]]:
        for permit in self._target.ledger.counted_permits():
            course = permit.course
            if course is not None and course.began_at is not None:
                yield permit, course, course.began_at

    def _set_pace(self) -> None:
        """The plant's pace with the KV and the prompts of what is counted."""
        if not self.plant.known:
            return
        target = self._target
        kv_tokens = sum(
            target.begun_kv(permit)
            for permit in target.ledger.counted_permits()
            if (permit.first_token_at if permit.course is None else permit.course.began_at) is not None
        )
        self._pace_s = max(LEAST_S, self.plant.pace_s(kv_tokens, self._read.per_second))

    def _live(self, now: float) -> Iterator[Streaming]:
        target = self._target
        for permit in target.ledger.counted_permits():
            slo_s = target.class_config(permit.ticket.priority).slo.tpot_s
            course = permit.course
            if course is not None:
                stream = _on_course(permit, course, slo_s, now)
            else:
                each = target.cost.tokens(permit.ticket.flow.model, 1)
                stream = streaming(permit, each, slo_s, target.stillness.total_s, now)
            if stream is not None:
                yield stream

    def forget(self, now: float) -> None:
        """The mode changes: only what is real counts, and what was learned stays."""
        ledger = self._target.ledger
        for permit in list(ledger.beyond.values()):
            ledger.release(permit)
        for permit in ledger.permits.values():
            if permit.course is not None and permit.counted:
                # What it holds will be counted anew, as it is in reality.
                ledger.release(permit)
            permit.course = None
        ledger.exceeded = False
        self._ticked_at, self._prompts_done = now, 0
        self._due.clear()
        self._read_until = -inf
        self.excess = None


def _on_course(permit: Permit, course: Course, slo_s: float, now: float) -> Streaming | None:
    """How it would stream; None: too little of it to tell."""
    if course.began_at is None:
        return None
    since, before = course.marks[0] if course.marks else (course.began_at, 0.0)
    tokens, elapsed_s = course.tokens - before, now - since
    if elapsed_s <= 0 or (elapsed_s < 0.5 and tokens < 8):
        return None
    left = max(MIN_LEFT, permit.cost.output / max(1, permit.ticket.n) - course.tokens)
    return Streaming(
        permit.ticket.priority,
        slo_s,
        elapsed_s / max(tokens, 1.0),
        min(1.0, elapsed_s / LIVE_WINDOW_S),
        now - course.began_at,
        max(1.0, course.tokens),
        left,
    )
