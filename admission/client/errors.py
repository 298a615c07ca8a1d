"""What the client raises; nothing else leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.client.calls import Answer


class TidegateError(Exception):
    """Root of everything that the client raises."""


class SettingsError(TidegateError):
    """The settings are wrong; the text names every wrong one on one line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("tidegate: bad configuration: " + "; ".join(problems))
        self.problems = problems


class ForkedError(TidegateError):
    """gRPC had started before this process was forked, so that it cannot work here. The client catches it itself."""

    def __init__(self) -> None:
        super().__init__(
            "gRPC had started before this process was forked and cannot work in it; ask only after the fork, or start "
            "workers by spawn"
        )


class Refused(TidegateError):  # noqa: N818 - the word is the outcome's, and it is not a fault
    """The ticket was refused; `answer` says why and when to come back."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.text)
        self.answer = answer
