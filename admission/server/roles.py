"""Who may call what: roles by certificate name or bearer token, read again when the file changes."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from admission.runtime.settings import Role, RolesConfig

LOG = logging.getLogger(__name__)
_IMPLIED: Mapping[Role, frozenset[Role]] = {
    # Who may change things may look at them.
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.VIEWER}),
}


class TokenFileError(ValueError):
    """A token file that cannot be used; the text names the line."""


def parse_tokens(text: str) -> dict[str, frozenset[Role]]:
    """Roles by token. TokenFileError naming the line, never the token."""
    tokens: dict[str, frozenset[Role]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise TokenFileError(f"line {number}: expected `role[,role] token`")
        try:
            tokens[words[1]] = frozenset(Role(role) for role in words[0].split(","))
        except ValueError as error:
            known = ", ".join(Role)
            raise TokenFileError(f"line {number}: unknown role; known are {known}") from error
    return tokens


class Roles:
    """Answers whether a caller has a role. A token file that turns bad keeps its last good tokens."""

    def __init__(self, config: RolesConfig) -> None:
        self._names = {name: frozenset(roles) for name, roles in config.names.items()}
        self._file = Path(config.token_file) if config.token_file else None
        self._stamp: tuple[int, int] | None = None
        self._tokens: dict[str, frozenset[Role]] = {}
        if self._file:
            self._tokens = parse_tokens(self._file.read_text())
            self._stamp = _stamp(self._file)

    @property
    def open(self) -> bool:
        """Nobody is named: whoever reaches a listener has that listener's roles."""
        return not self._names and self._file is None

    def refresh(self) -> None:
        """Read the token file again if it changed."""
        if self._file is None:
            return
        try:
            stamp = _stamp(self._file)
            if stamp != self._stamp:
                self._tokens = parse_tokens(self._file.read_text())
                self._stamp = stamp
        except (OSError, TokenFileError) as error:
            LOG.warning("token_file_bad", extra={"file": str(self._file), "error": str(error)})

    def check(self, context: Any, role: Role) -> str:
        """Why the caller may not; empty when it may."""
        if role in self._of_certificate(context) or role in self._of_token(context):
            return ""
        return f"needs role {role.value}: show a certificate or a bearer token that carries it"

    def _of_certificate(self, context: Any) -> frozenset[Role]:
        found: frozenset[Role] = frozenset()
        if not self._names:
            return found
        auth = context.auth_context()
        for key in ("x509_subject_alternative_name", "x509_common_name"):
            for name in auth.get(key, ()):
                found |= _with_implied(self._names.get(name.decode(errors="replace"), frozenset()))
        return found

    def _of_token(self, context: Any) -> frozenset[Role]:
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and value.startswith("Bearer "):
                return self._of(value.removeprefix("Bearer ").strip())
        return frozenset()

    def _of(self, shown: str) -> frozenset[Role]:
        found: frozenset[Role] = frozenset()
        for token, roles in self._tokens.items():
            # Every token is compared, each in constant time: how long it takes tells nothing.
            if hmac.compare_digest(token.encode(), shown.encode()):
                found = _with_implied(roles)
        return found


def _with_implied(roles: frozenset[Role]) -> frozenset[Role]:
    return roles.union(*(_IMPLIED.get(role, frozenset()) for role in roles))


def _stamp(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_ino
