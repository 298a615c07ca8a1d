"""What is wrong with a variable is said with its name."""

from __future__ import annotations

import pytest

from admission.config.load import load
from tests.admission.config.test_mistakes import refused


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TIDEGATE_LISTN__HTTP", "x", "listn = 'x': unknown key, did you mean listen?"),
        ("TIDEGATE_STATEDIR", "/x", "statedir = '/x': unknown key, did you mean state_dir?"),
        ("TIDEGATE_LISTEN__HTPP", "x", "listen.htpp = 'x': unknown key, did you mean http?"),
        ("TIDEGATE_LOG___LEVEL", "info", "log._level = 'info': unknown key, did you mean level?"),
        ("TIDEGATE_LOG__", "info", "TIDEGATE_LOG__ = 'info': an empty name between two underscores"),
        ("TIDEGATE_LOG__LEVEL", "[", "log.level = '[': not a YAML value"),
        ("TIDEGATE_LOG__LEVEL__X", "1", "log.level = {'x': 1}: expected one of debug, info, warning, error"),
        ("TIDEGATE_LOG__LEVEL", "loud", "log.level = 'loud': expected one of debug, info, warning, error"),
        ("TIDEGATE_TARGETS__CHAT__MODE", "off", "targets.chat.mode = 'off': targets has no entry chat: "),
        ("TIDEGATE_TARGETS__7__MODE", "off", "targets.7.mode = 'off': targets has no entry 7: "),
    ],
)
def test_a_mistake_names_its_variable(name: str, value: str, said: str) -> None:
    """In a container there is no line to point at."""
    (mistake,) = refused(None, {name: value})

    assert str(mistake).startswith(f"{name}: {said}")


def test_a_value_in_the_way_is_said() -> None:
    """Two variables may contradict each other."""
    environ = {"TIDEGATE_LISTEN": "5", "TIDEGATE_LISTEN__HTTP": "127.0.0.1:1"}
    mistakes = [str(mistake) for mistake in refused(None, environ)]

    assert (
        "TIDEGATE_LISTEN__HTTP: listen.http = '127.0.0.1:1': listen is a single value: it has no http"
        in mistakes
    )


def test_a_whole_section_and_a_part_of_it_go_together() -> None:
    """The more specific variable comes later in order of name, and wins."""
    environ = {"TIDEGATE_LOG": "{level: debug, format: json}", "TIDEGATE_LOG__LEVEL": "error"}
    log = load(None, environ).settings.log

    assert (log.level, log.format) == ("error", "json")


def test_a_list_is_written_as_yaml() -> None:
    """One syntax in the file and in the environment."""
    environ = {"TIDEGATE_LISTEN__GRPC": "[127.0.0.1:1, 'unix:/run/a.sock']"}

    assert load(None, environ).settings.listen.grpc == ("127.0.0.1:1", "unix:/run/a.sock")
