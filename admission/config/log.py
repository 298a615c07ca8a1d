"""Log lines on standard error: key=value for people, JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from admission.config.schema import LogConfig

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUOTED = frozenset(' ="\n')
_LOGGERS = ("admission", "telemetry", "tidegate")


def set_up(config: LogConfig) -> None:
    """Sends our own loggers to standard error in the configured form; may be called again."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(config.level.upper())
        logger.propagate = False
    # It repeats every failed export; status shows the failure instead.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _USUAL}


def _when(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z info started grpc=127.0.0.1:50051`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback under it where there is one."""
        line = f"{_when(record)} {record.levelname.lower()} {record.getMessage()}"
        for key, value in _extras(record).items():
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            line += f" {key}={json.dumps(text) if not text or _QUOTED & set(text) else text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The same fields as the text form, with the logger's name."""
        fields = {"at": _when(record), "level": record.levelname.lower(), "event": record.getMessage()}
        fields |= {"logger": record.name, **_extras(record)}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
