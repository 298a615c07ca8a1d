"""Which requests are guarded: an allow-list of routes, everything else passes untouched."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

GUARDED = frozenset(
    {
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v2/embed",
        "/pooling",
        "/classify",
        "/v1/score",
        "/score",
        "/generative_scoring",
        "/v1/rerank",
        "/rerank",
        "/v2/rerank",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/audio/speech",
        "/cohere/v2/chat",
        "/inference/v1/generate",
        "/invocations",
        "/generate",
        "/generate_stream",
    }
)


class Routes:
    """The guarded routes of one middleware. `prefix` is a path in front of all of them."""

    def __init__(self, more: list[str], prefix: str) -> None:
        self._guarded = GUARDED | frozenset(more)
        self._prefix = prefix.rstrip("/")

    def route(self, scope: MutableMapping[str, Any]) -> str:
        """The guarded route that an HTTP scope asks for, without root path and prefix; empty: not guarded."""
        if scope.get("method") != "POST":
            return ""
        path: str = scope["path"]
        if path in self._guarded:
            return path
        for front in (scope.get("root_path") or "", self._prefix):
            if front and path.startswith(front):
                path = path[len(front) :]
                if path in self._guarded:
                    return path
        return ""
