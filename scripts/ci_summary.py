"""Adds up the JUnit files of several pytest runs into one closing line."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path


def count(path: Path) -> Counter[str]:
    """What one run passed, failed and skipped."""
    total: Counter[str] = Counter()
    for suite in ET.parse(path).getroot().iter("testsuite"):  # noqa: S314 - as above
        wrong = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        total["failed"] += wrong
        total["skipped"] += skipped
        total["passed"] += int(suite.get("tests", 0)) - wrong - skipped
    return total


if __name__ == "__main__":
    sums = sum((count(Path(name)) for name in sys.argv[1:]), Counter())
    print(f"{sums['passed']} passed, {sums['failed']} failed, {sums['skipped']} skipped")
