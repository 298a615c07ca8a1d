"""Runs a stand-in: `python -m admission.simulation.standin --port 8000 --engine rtx4090-llama3.1-8b`."""

from __future__ import annotations

import argparse
import importlib
import resource
from dataclasses import fields
from typing import Any

import uvicorn

from admission.simulation.engines import CALIBRATIONS
from admission.simulation.standin.app import StandIn
from admission.simulation.standin.settings import StandInConfig


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    args = vars(_parser().parse_args())
    host, port, middlewares = args.pop("host"), args.pop("port"), args.pop("middleware")
    args["otlp_endpoint"] = args.pop("otlp_traces_endpoint")
    args["model"] = args.pop("served_model_name")
    args["step_tokens"] = args.pop("max_num_batched_tokens")
    config = StandInConfig(**args)
    app: Any = StandIn(config)
    for path in middlewares:
        app = _load(path)(app)
    _allow_files()
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="critical",
        access_log=False,
        lifespan="on",
        backlog=4096,
        timeout_graceful_shutdown=1,
    )


def _parser() -> argparse.ArgumentParser:
    default = {setting.name: setting.default for setting in fields(StandInConfig)}
    parser = argparse.ArgumentParser(prog="python -m admission.simulation.standin", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--middleware", action="append", default=[], help="ASGI class as module.Class, as in vLLM"
    )
    parser.add_argument("--engine", default=default["engine"], choices=sorted(CALIBRATIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="speed relative to the calibration")
    parser.add_argument("--kv-capacity-tokens", type=int, default=0)
    parser.add_argument("--max-num-seqs", type=int, default=0)
    parser.add_argument("--max-num-batched-tokens", type=int, default=0)
    parser.add_argument("--max-model-len", type=int, default=0)
    parser.add_argument("--max-num-queued-reqs", type=int, default=0)
    parser.add_argument("--served-model-name", default=default["model"])
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--noise-ratio", type=float, default=default["noise_ratio"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--otlp-traces-endpoint", default="", help="URL for spans by OTLP/gRPC")
    return parser


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _allow_files() -> None:
    """Thousands of streams are thousands of descriptors: raise the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
