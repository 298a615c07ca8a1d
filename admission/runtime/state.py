"""Keeps limits and learned values in `state_dir`, so that a restart does not begin from nothing."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from admission.core.saved import SavedState

FILE = "limits.json"
VERSION = 1
MAX_BYTES = 16 << 20
KEY_BYTES = 32


class StateStore:
    """One file, replaced as a whole. What cannot be written stays in memory: `problem` says why, nothing is raised."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.problem = "" if directory else "state_dir is none: limits are kept in memory only"
        self._lock: IO[bytes] | None = None
        self._written: dict[str, Any] = {}
        if directory is not None:
            self._open(directory)

    @property
    def writable(self) -> bool:
        """Whether this process owns the directory."""
        return self._lock is not None

    def _open(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (directory / "lock").open("ab")
        except OSError as error:
            self._memory_only(error.strerror or str(error))
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            self._memory_only("another sidecar uses it")
        else:
            self._lock = lock

    def _memory_only(self, reason: str) -> None:
        self.problem = f"state_dir {self.directory} cannot be used ({reason}): memory only"

    def load(self) -> dict[str, SavedState]:
        """What was saved for each target; empty when there is nothing, or nothing readable (it is set aside)."""
        if self.directory is None or not self.writable:
            return {}
        path = self.directory / FILE
        try:
            return _decoded(path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            self.problem = f"{path} cannot be read ({_first_line(error)}): starting without it"
            self._set_aside(path)
            return {}

    def _set_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_suffix(".unreadable"))
        except OSError as error:
            self._memory_only(error.strerror or str(error))

    def save(self, saved: Mapping[str, SavedState]) -> bool:
        """Writes everything anew, atomically; False when it could not. Blocks on the disk: call it off the loop."""
        if self.directory is None or not self.writable:
            return False
        path = self.directory / FILE
        targets = _encoded(saved)
        if targets == self._written and not self.problem and path.exists():
            return True
        fresh = path.with_suffix(".new")
        document = {"version": VERSION, "saved_unix_s": time.time(), "targets": targets}
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            self._memory_only(error.strerror or str(error))
            return False
        self.problem, self._written = "", targets
        return True

    def key(self, name: str) -> bytes:
        """32 random bytes that stay the same over restarts, in a file of this user; fresh ones when memory only."""
        if self.directory is None or not self.writable:
            return secrets.token_bytes(KEY_BYTES)
        path = self.directory / name
        try:
            known = path.read_bytes() if path.exists() else b""
            if len(known) == KEY_BYTES:
                return known
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(fresh := secrets.token_bytes(KEY_BYTES))
        except OSError as error:
            self._memory_only(error.strerror or str(error))
            return secrets.token_bytes(KEY_BYTES)
        return fresh

    def close(self) -> None:
        """Lets another process have the directory. May be called twice."""
        if self._lock:
            self._lock.close()
        self._lock = None


def _encoded(saved: Mapping[str, SavedState]) -> dict[str, Any]:
    return {name: asdict(state) for name, state in saved.items()}


def _decoded(path: Path) -> dict[str, SavedState]:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"not of version {VERSION}")
    return TypeAdapter(dict[str, SavedState]).validate_python(document.get("targets"))


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
