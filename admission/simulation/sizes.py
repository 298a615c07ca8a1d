"""Who gets served by size: shares of the smallest to the largest quarter of the offered requests, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from admission.simulation.histogram import Histogram

PARTS = 4


@dataclass(frozen=True, slots=True)
class Shares:
    """Per quarter, the smallest first; None where nothing was offered."""

    served: tuple[float | None, ...]
    good: tuple[float | None, ...]


@dataclass(slots=True)
class _Bucket:
    offered: int = 0
    served: int = 0
    good: int = 0


class Sizes:
    """Counts offered, served and good requests by their tokens."""

    def __init__(self) -> None:
        self._bucket = Histogram().bucket
        self._buckets: dict[int, _Bucket] = {}
        self._offered = 0

    def add(self, tokens: int, *, served: bool, good: bool) -> None:
        """Count one offered request."""
        no = self._bucket(tokens)
        bucket = self._buckets.get(no)
        if bucket is None:
            bucket = self._buckets[no] = _Bucket()
        bucket.offered += 1
        bucket.served += served
        bucket.good += good
        self._offered += 1

    def shares(self) -> Shares:
        """Quarters of equally many requests; sizes that share a bucket at a border are dealt out in proportion."""
        if not self._offered:
            return Shares((None,) * PARTS, (None,) * PARTS)
        quarter = self._offered / PARTS
        served, good = [0.0] * PARTS, [0.0] * PARTS
        for no, bucket, weight in self._dealt(quarter):
            served[no] += weight * bucket.served / quarter
            good[no] += weight * bucket.good / quarter
        return Shares(tuple(served), tuple(good))

    def _dealt(self, quarter: float) -> Iterator[tuple[int, _Bucket, float]]:
        """Quarter, bucket, and which share of the bucket's requests falls into that quarter."""
        seen = 0
        for _, bucket in sorted(self._buckets.items(), key=itemgetter(0)):
            for no in range(PARTS):
                inside = min(seen + bucket.offered, (no + 1) * quarter) - max(seen, no * quarter)
                if inside > 0:
                    yield no, bucket, inside / bucket.offered
            seen += bucket.offered
