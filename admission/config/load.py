"""File and environment in, checked settings out; every mistake is reported at once."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from admission.config.bind import WRONG, Binder, fields_of
from admission.config.document import Document, parse_document
from admission.config.environment import overlay
from admission.config.mistakes import BadConfigurationError, Mistake, Path, unknown_key
from admission.config.schema import GIVEN_APART, ROOTS, SECTIONS, Settings, TargetSettings, control_address
from admission.core.settings import ControllerConfig
from admission.vocabulary import PriorityClass
from telemetry.config import TargetBinding


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with the document that they came from."""

    settings: Settings
    document: Document
    file: pathlib.Path | None = None


def load(file: pathlib.Path | None, environ: Mapping[str, str]) -> Loaded:
    """Reads the file, if any, lays the environment over it, checks all. BadConfigurationError: every mistake found."""
    document = parse_document(read_text(file), str(file)) if file else Document()
    mistakes = overlay(document, environ, ROOTS)
    settings, more = bind_settings(document)
    if settings is None or mistakes:
        raise BadConfigurationError([*mistakes, *more])
    return Loaded(settings, document, file)


def read_text(file: pathlib.Path) -> str:
    """The file's text. BadConfigurationError: it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadConfigurationError([Mistake("", "", f"cannot be read: {reason}", str(file))]) from error


def bind_settings(document: Document) -> tuple[Settings | None, list[Mistake]]:
    """The document as settings, or None with every mistake."""
    binder = Binder(document)
    raw = document.value
    for key in [key for key in raw if key not in ROOTS]:
        binder.wrong((key,), unknown_key(key, ROOTS), raw[key])
    sections = {
        name: _section(binder, name, kind, raw[name]) for name, kind in SECTIONS.items() if name in raw
    }
    if "state_dir" in raw:
        sections["state_dir"] = binder.bind(str, raw["state_dir"], ("state_dir",))
    targets = _targets(binder, document)
    if binder.mistakes:
        return None, binder.mistakes
    return _joined(Settings(targets=targets, **sections)), []


def _joined(settings: Settings) -> Settings:
    """Gives each component what users say once for all of them."""
    listen = settings.listen
    server = dataclasses.replace(
        settings.server,
        listeners=tuple(listen.listener(address) for address in listen.grpc),
        control=listen.listener(control_address(settings)),
        roles=listen.roles,
    )
    bindings = tuple(target.binding for target in settings.targets)
    telemetry = dataclasses.replace(settings.telemetry, targets=bindings)
    return dataclasses.replace(settings, telemetry=telemetry, server=server)


def _section(binder: Binder, name: str, kind: type[Any], raw: object) -> Any:
    apart = GIVEN_APART.get(name, {})
    if isinstance(raw, Mapping):
        for key in [key for key in raw if key in apart]:
            binder.wrong((name, key), f"unknown key, set it in {apart[key]}", raw[key])
        raw = {key: raw[key] for key in raw if key not in apart}
    return binder.bind(kind, raw, (name,))


def _targets(binder: Binder, document: Document) -> tuple[TargetSettings, ...]:
    raw = document.value.get("targets") or [{}]
    if not isinstance(raw, list):
        binder.wrong(("targets",), "expected a list", raw)
        return ()
    targets = [_target(binder, document, item, at) for at, item in enumerate(raw)]
    seen: dict[str, int] = {}
    for at, target in enumerate(targets):
        if target is not None and seen.setdefault(target.name, at) != at:
            binder.wrong(("targets", at, "name"), f"targets[{seen[target.name]}] has this name", target.name)
    return tuple(target for target in targets if target is not None)


def _target(binder: Binder, document: Document, raw: object, at: int) -> TargetSettings | None:
    path = ("targets", at)
    raw = {} if raw is None else raw
    if not isinstance(raw, Mapping):
        binder.wrong(path, "expected keys and values", raw)
        return None
    raw = dict(raw)
    own_slo = _move_slo(binder, document, raw, at)
    kinds = (TargetBinding, ControllerConfig)
    known = {"slo"}.union(*(fields_of(kind) for kind in kinds))
    for key in [key for key in raw if key not in known]:
        binder.wrong((*path, key), unknown_key(key, known), raw[key])
    parts = [
        binder.bind(kind, {key: raw[key] for key in raw if key in fields_of(kind)}, path) for kind in kinds
    ]
    if WRONG in parts:
        return None
    return TargetSettings(binding=parts[0], controller=parts[1], own_slo=own_slo)


def _move_slo(binder: Binder, document: Document, raw: dict[str, Any], at: int) -> frozenset[PriorityClass]:
    """Users write `slo: {interactive: ...}`; the core keeps an SLO in its class."""
    slo = raw.pop("slo", None) or {}
    classes = raw.get("classes") or {}
    if not isinstance(slo, Mapping) or not isinstance(classes, Mapping):
        if not isinstance(slo, Mapping):
            binder.wrong(("targets", at, "slo"), "expected a class and its SLO", slo)
        return frozenset()
    merged = {name: dict(entry) if isinstance(entry, Mapping) else entry for name, entry in classes.items()}
    for name, value in slo.items():
        entry = merged.get(name)
        entry = merged[name] = {} if entry is None else entry
        if not isinstance(entry, dict):
            continue
        if "slo" in entry:
            binder.wrong(("targets", at, "slo", name), f"classes.{name}.slo says it too: keep one")
        entry["slo"] = value
        _rename(document, ("targets", at, "slo", name), ("targets", at, "classes", name))
    if merged:
        raw["classes"] = merged
    return frozenset(
        member
        for member in PriorityClass
        if isinstance(entry := merged.get(member.label), dict) and entry.get("slo")
    )


def _rename(document: Document, old: Path, new: Path) -> None:
    """Values keep the name that the user wrote, in messages, and are found under the SLO of the class."""
    for path in [path for path in document.origins if path[: len(old)] == old]:
        document.origins[(*new, "slo", *path[len(old) :])] = document.origins.pop(path)
    document.origins.setdefault(new, document.origins[(*new, "slo")])
