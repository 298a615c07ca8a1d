"""Who of a process group lives still."""

from __future__ import annotations

from pathlib import Path


def living(group: int) -> set[int]:
    """The living processes of a group, from /proc."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = path.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(of) == group and state != "Z":
            found.add(int(path.parent.name))
    return found
