"""The batch of an engine model: who shares a step, what KV they hold, who makes room and who is done."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from heapq import heappop, heappush

from admission.simulation.prefixes import Prefixes
from admission.simulation.sequences import EngineConfig, Phase, Sequence, StepResult


class Batch:
    """Waiting and running sequences, and counters that serve all that decode at once."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.preemptions_total = 0
        self.prompt_tokens_total = 0
        self.generation_tokens_total = 0
        self._prefixes = Prefixes()
        self._sequences: dict[Hashable, Sequence] = {}
        self._empty()

    def _empty(self) -> None:
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._running: dict[int, Sequence] = {}
        self._prefilling: dict[int, Sequence] = {}
        self._aborting: list[Sequence] = []
        self._ends: list[tuple[int, int, Sequence]] = []
        self._decoding = 0
        self.decode_steps = 0
        self._batches = 0
        self._held = 0
        self._written = 0

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a place or for KV, preempted ones included."""
        return len(self._waiting)

    @property
    def decoding(self) -> int:
        """Sequences past their prefill."""
        return self._decoding

    @property
    def kv_tokens(self) -> int:
        """KV tokens held; a prompt's are held from its admission."""
        return self._held

    @property
    def written_tokens(self) -> int:
        """KV tokens that hold something: what the attention of a step reads, and its cost counts."""
        return self._written

    @property
    def kv_usage_ratio(self) -> float:
        """KV held over capacity."""
        return self._held / self.config.kv_capacity_tokens

    def generated(self, sequence: Sequence) -> int:
        """Output tokens that have left the engine so far."""
        if sequence.phase is Phase.DECODE:
            return sequence.generated_before + self.decode_steps - sequence.joined
        return sequence.generated_before

    def _make_room(self) -> list[Sequence]:
        """Preempt the last admitted until each decoding sequence can take one more token."""
        preempted = []
        while self._held + self._decoding > self.config.kv_capacity_tokens:
            victim = next(reversed(self._running.values()))
            generated = self.generated(victim)
            self._release(victim, Phase.WAITING)
            victim.generated_before = generated
            victim.to_prefill = victim.prompt_tokens + generated
            victim.prefilled = 0
            victim.preemptions += 1
            self._sequences[victim.id] = victim
            self._waiting[victim.no] = victim
            self._waiting.move_to_end(victim.no, last=False)
            self.preemptions_total += 1
            preempted.append(victim)
        return preempted

    def _continue_prefill(self, budget: int, chunks: list[Sequence]) -> int:
        for sequence in self._prefilling.values():
            if budget == 0:
                break
            budget = self._prefill(sequence, budget, chunks)
        return budget

    def _admit(self, budget: int, chunks: list[Sequence], now: float) -> int:
        while budget and self._waiting and len(self._running) < self.config.max_num_seqs:
            head = next(iter(self._waiting.values()))
            needs = self._prefixes.needs(head) if head.shared_tokens else head.to_prefill
            if not self._fits(head, needs) or (chunks and self._splits(head, budget)):
                break
            del self._waiting[head.no]
            head.phase = Phase.PREFILL
            self._running[head.no] = head
            self._prefilling[head.no] = head
            self._held += needs
            if head.cached_tokens:
                self._hit(head)
            if head.scheduled_at is None:
                head.scheduled_at = max(now, head.arrived_at)
                head.hit_tokens = head.prefilled
            budget = self._prefill(head, budget, chunks)
        return budget

    def _splits(self, head: Sequence, budget: int) -> bool:
        """Where prompts are prefilled whole, one that does not fit into what is left of a step waits for the next."""
        return self.config.prefill_every > 0 and head.to_prefill - head.cached_tokens > budget

    def _fits(self, head: Sequence, needs: int) -> bool:
        if head.ready > self._batches and self._running:
            return False
        capacity = self.config.kv_capacity_tokens
        if self._held + needs > capacity:
            return False
        return not self.config.never_preempts or self._peak(head, needs) <= capacity

    def _peak(self, head: Sequence, needs: int) -> int:
        """A bound on the KV that the batch comes to hold with this one in it: the most is held when some sequence ends."""
        ends = self._ends_of_decodes() + self._ends_of_prefills(head, needs)
        return max(
            sum(min(final, tokens + step) for last, tokens, final in ends if last >= step)
            for step, _, _ in ends
        )

    def _ends_of_decodes(self) -> list[tuple[int, int, int]]:
        """For each that decodes: how many steps it goes on, the KV that it holds now, and holds in the end."""
        ends = []
        for one in self._running.values():
            if one.phase is Phase.DECODE:
                left, tokens = one.output_tokens - self.generated(one), self._holds(one)
                ends.append((left, tokens, tokens + left))
        return ends

    def _ends_of_prefills(self, head: Sequence, needs: int) -> list[tuple[int, int, int]]:
        """The same for those in prefill, as late as they may end: who shares the steps' budget with them is not known."""
        budget = self.config.step_tokens - self.config.max_num_seqs
        ahead, ends = 0, []
        for one in (*self._prefilling.values(), head):
            ahead += one.to_prefill - one.prefilled
            # The step that ends a prefill yields a token already.
            left = one.output_tokens - self.generated(one) - 1
            tokens = needs if one is head else self._holds(one)
            ends.append((1 - (-ahead // budget) + left, tokens, tokens + left))
        return ends

    def _hit(self, head: Sequence) -> None:
        """The prefix cache serves what it can; after a preemption only what others go on holding."""
        if not self._prefixes.is_warm(head.prefix):
            return
        head.shared = head.shared_tokens
        head.prefilled = head.shared_tokens if head.preemptions else head.cached_tokens
        self._written += head.prefilled
        if head.shared:
            self._prefixes.take(head)

    def _prefill(self, sequence: Sequence, budget: int, chunks: list[Sequence]) -> int:
        tokens = min(budget, sequence.to_prefill - sequence.prefilled)
        sequence.prefilled += tokens
        self._written += tokens
        chunks.append(sequence)
        return budget - tokens

    def _end_prefill(self, sequence: Sequence, result: StepResult) -> None:
        """A prefill yields one token: the first, or the next one of a sequence that was preempted."""
        del self._prefilling[sequence.no]
        self._prefixes.prefilled(sequence.prefix)
        sequence.phase = Phase.DECODE
        sequence.generated_before += 1
        sequence.joined = self.decode_steps
        sequence.ends = self.decode_steps + sequence.output_tokens - sequence.generated_before
        self._decoding += 1
        self.generation_tokens_total += 1
        if sequence.first_token_at is None:
            sequence.first_token_at = result.at
            self.prompt_tokens_total += sequence.prompt_tokens
            result.first.append(sequence)
        else:
            result.resumed.append(sequence)
        if sequence.ends == self.decode_steps:
            self._finish(sequence, result)
        else:
            heappush(self._ends, (sequence.ends, sequence.no, sequence))

    def _finish_decodes(self, result: StepResult) -> None:
        while self._ends and self._ends[0][0] <= self.decode_steps:
            ends, _, sequence = heappop(self._ends)
            # An entry outlives its sequence's abort or preemption: only the current one counts.
            if sequence.phase is Phase.DECODE and sequence.ends == ends:
                self._finish(sequence, result)

    def _finish(self, sequence: Sequence, result: StepResult) -> None:
        self._release(sequence, Phase.FINISHED)
        sequence.generated_before = sequence.output_tokens
        sequence.finished_at = result.at
        self._sequences.pop(sequence.id, None)
        result.finished.append(sequence)

    def _holds(self, sequence: Sequence) -> int:
        """KV tokens that a running sequence holds alone."""
        held = sequence.to_prefill - sequence.shared
        if sequence.phase is Phase.DECODE:
            held += self.decode_steps - sequence.joined
        return held

    def _release(self, sequence: Sequence, phase: Phase) -> None:
        """Take a running sequence out of the batch and give its KV back."""
        del self._running[sequence.no]
        self._held -= self._holds(sequence)
        if sequence.phase is Phase.DECODE:
            self._decoding -= 1
            self._written -= sequence.to_prefill + self.decode_steps - sequence.joined
        else:
            del self._prefilling[sequence.no]
            self._written -= sequence.prefilled
        if sequence.shared:
            self._held -= self._prefixes.give_back(sequence)
            sequence.shared = 0
        sequence.phase = phase
