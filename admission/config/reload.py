"""What a changed file changes in a sidecar that runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from admission.config.bind import fields_of
from admission.config.effective import Name, values
from admission.config.schema import Settings
from admission.core.settings import ControllerConfig


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths of settings that differ: those that take effect now, and those that wait for a restart."""

    applied: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did. With errors nothing was changed."""

    errors: tuple[str, ...] = ()
    changes: Changes = Changes()

    @property
    def applied(self) -> bool:
        """Whether the file could be used."""
        return not self.errors

    @property
    def changed(self) -> tuple[str, ...]:
        """What took effect."""
        return self.changes.applied

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """What waits for a restart."""
        return self.changes.needs_restart


def compare(old: Settings, new: Settings) -> Changes:
    """The settings that differ."""
    before, after = values(old), values(new)
    kept = {target.name for target in old.targets} & {target.name for target in new.targets}
    changed = sorted(name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...))
    live = [name for name in changed if _live(name, kept)]
    return Changes(
        tuple(".".join(name) for name in live),
        tuple(".".join(name) for name in changed if name not in live),
    )


def merged(old: Settings, new: Settings) -> Settings:
    """What is in force after the reload: the new values that can change live, the old ones elsewhere."""
    fresh = {target.name: target for target in new.targets}
    targets = tuple(
        dataclasses.replace(
            target, controller=fresh[target.name].controller, own_slo=fresh[target.name].own_slo
        )
        if target.name in fresh
        else target
        for target in old.targets
    )
    return dataclasses.replace(old, targets=targets, log=new.log)


def _live(name: Name, kept: Collection[str]) -> bool:
    if name[0] == "targets":
        return name[1] in kept and name[2] in fields_of(ControllerConfig)
    return name[0] == "log"
