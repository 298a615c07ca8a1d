"""Roles come from certificates and tokens, and only from those."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from admission.runtime.settings import Role, RolesConfig
from admission.server.roles import Roles, TokenFileError, parse_tokens
from tests.admission.server.desk import Context


def bearer(token: str) -> Context:
    """A caller with a token."""
    return Context(metadata=(("user-agent", "x"), ("authorization", f"Bearer {token}")))


def certificate(name: str) -> Context:
    """A caller with a certificate."""
    return Context(auth={"x509_subject_alternative_name": (b"other", name.encode())})


def roles(tmp_path: Path, text: str) -> Roles:
    """From a token file."""
    file = tmp_path / "tokens"
    file.write_text(text)
    return Roles(RolesConfig(token_file=str(file)))


def test_a_token_gives_its_roles_and_no_others(tmp_path: Path) -> None:
    """A client's token must not open the control service."""
    known = roles(tmp_path, "# people\n\nclient abc\nviewer,telemetry def\n")

    assert known.check(bearer("abc"), Role.CLIENT) == ""
    assert "needs role operator" in known.check(bearer("abc"), Role.OPERATOR)
    assert known.check(bearer("def"), Role.VIEWER) == ""
    assert known.check(bearer("def"), Role.TELEMETRY) == ""


@pytest.mark.parametrize("context", [bearer("wrong"), bearer(""), Context(), certificate("anyone")])
def test_without_a_known_token_there_is_no_role(tmp_path: Path, context: Context) -> None:
    """Configured means closed."""
    assert roles(tmp_path, "client abc\n").check(context, Role.CLIENT)


def test_an_operator_may_look(tmp_path: Path) -> None:
    """Who changes the mode must see what it did."""
    known = roles(tmp_path, "operator abc\n")

    assert known.check(bearer("abc"), Role.VIEWER) == ""
    assert known.check(bearer("abc"), Role.CLIENT)


def test_a_certificate_name_gives_its_roles() -> None:
    """Subject alternative names, as issued by the mesh."""
    known = Roles(RolesConfig(names={"spiffe://a/gateway": (Role.CLIENT,)}))

    assert known.check(certificate("spiffe://a/gateway"), Role.CLIENT) == ""
    assert known.check(certificate("spiffe://a/other"), Role.CLIENT)


def test_nothing_configured_is_open() -> None:
    """Loopback and file permissions are the default's protection."""
    assert Roles(RolesConfig()).open
    assert not Roles(RolesConfig(names={"a": (Role.CLIENT,)})).open


def test_a_changed_file_is_read_again_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    """Tokens rotate without a restart; a slip of the pen must not lock everybody out."""
    known = roles(tmp_path, "client abc\n")
    file = tmp_path / "tokens"

    file.write_text("client new\n")
    os.utime(file, ns=(1, 1))
    known.refresh()
    assert known.check(bearer("new"), Role.CLIENT) == ""
    assert known.check(bearer("abc"), Role.CLIENT)
    file.write_text("nonsense\n")
    os.utime(file, ns=(2, 2))
    known.refresh()
    assert known.check(bearer("new"), Role.CLIENT) == ""
    file.unlink()
    known.refresh()
    assert known.check(bearer("new"), Role.CLIENT) == ""


@pytest.mark.parametrize("line", ["client", "client a b", "king secret-token"])
def test_a_bad_line_is_named_by_number_and_not_by_its_secret(line: str) -> None:
    """Error messages end up in logs."""
    with pytest.raises(TokenFileError, match="line 2") as error:
        parse_tokens(f"viewer ok\n{line}\n")

    assert "secret-token" not in str(error.value)
