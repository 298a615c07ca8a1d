"""HTTP server spans of the guarded routes, by the old and the new semantic conventions."""

from __future__ import annotations

from admission.core.model import Sample
from admission.wire.otlp_pb2 import Span
from telemetry.spans import Rank
from telemetry.spans.reading import (
    KIND_SERVER,
    STATUS_ERROR,
    count,
    http_outcome,
    request_key,
    text,
    whole_s,
)

ROUTES = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/embeddings",
    "/score",
    "/rerank",
    "/audio/transcriptions",
    "/audio/translations",
    "/audio/speech",
    "/generate",
    "/generate_stream",
)
PATHS = ("http.route", "url.path", "http.target")
STATUSES = ("http.response.status_code", "http.status_code")


class Http:
    """The edge's view: it ends when the last chunk was sent, and does not know a first token."""

    name = "http"
    rank = Rank.EDGE

    def claims(self, scope: str) -> bool:
        """Any scope but those of engines, whose own spans say more."""
        return not scope.startswith("vllm.") and scope != "sglang server"

    def wants(self, span: Span) -> bool:
        """The server's span: not the one INTERNAL span that ASGI instrumentation makes of every chunk."""
        return span.kind == KIND_SERVER and span.name.startswith("POST")

    def read(self, span: Span, at: float) -> Sample | None:
        """The request; None on a route that no model serves."""
        attributes = span.attributes
        path = text(attributes, *PATHS, longest=512) or span.name.removeprefix("POST").strip()
        if not path.partition("?")[0].rstrip("/").endswith(ROUTES):
            return None
        e2e_s = whole_s(span)
        failed = span.status.code == STATUS_ERROR
        return Sample(
            at=at,
            outcome=http_outcome(count(attributes, *STATUSES), e2e_s, failed=failed),
            emitter=self.name,
            request_key=request_key(span),
            model=text(attributes, "gen_ai.request.model"),
            e2e_s=e2e_s,
        )


def emitter() -> Http:
    """For discovery."""
    return Http()
