"""What the demo plays and where: the engine, the piece of the trace, the ports, the sidecar's configuration."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path

from admission.simulation.traces import Arrival, shipped, window

ENGINE = "h100-llama3-8b"
TRACE_START_S = 12.0
TRACE_SPEED = 4.0
FULL_S = 40.0
QUICK_S = 12.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoPlan:
    """What to play: `length_s` seconds of the Azure code burst, `speed` times as fast as it was recorded."""

    engine: str = ENGINE
    start_s: float = TRACE_START_S
    length_s: float = FULL_S
    speed: float = TRACE_SPEED
    dashboard: bool = True
    keep: bool = False

    def arrivals(self) -> list[Arrival]:
        """The requests, at the moments when they leave."""
        return window(shipped(), self.start_s, self.length_s, self.speed)

    def story(self, arrivals: list[Arrival]) -> str:
        """One honest sentence on the input."""
        recorded = self.length_s * self.speed
        tokens = sum(arrival.prompt_tokens + arrival.output_tokens for arrival in arrivals)
        return (
            f"{len(arrivals)} requests ({tokens / 1e6:.1f} M tokens) of the Azure code-completion trace: "
            f"{recorded:.0f} recorded seconds with their bursts, played {self.speed:g} times as fast. "
            f"The engine is a model of {self.engine} in real time at its measured speed, no GPU."
        )


@dataclass(frozen=True, slots=True)
class Ports:
    """Where everything listens, on 127.0.0.1."""

    bare: int
    engine: int
    grpc: int
    otlp_grpc: int
    otlp_http: int
    http: int
    dashboard: int


USUAL = Ports(bare=8001, engine=8000, grpc=50051, otlp_grpc=4317, otlp_http=4318, http=9464, dashboard=8501)


def choose_ports() -> tuple[Ports, list[str]]:
    """The usual ports, or free ones where they are taken; and a line for each that moved."""
    chosen: dict[str, int] = {}
    moved: list[str] = []
    for name in Ports.__slots__:
        usual = int(getattr(USUAL, name))
        port = usual if _is_free(usual) and usual not in chosen.values() else _free_port()
        if port != usual:
            moved.append(f"port {usual} is taken: {name} uses {port}")
        chosen[name] = port
    return Ports(**chosen), moved


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def control_address(folder: Path) -> str:
    """The control socket of the demo's sidecar."""
    return f"unix:{folder / 'control.sock'}"


def write_config(folder: Path, ports: Ports) -> Path:
    """The sidecar's configuration: enforce, everything else as it comes. JSON is YAML too."""
    path = folder / "tidegate.yaml"
    document = {
        "state_dir": str(folder / "state"),
        "listen": {
            "grpc": [f"127.0.0.1:{ports.grpc}"],
            "control": control_address(folder),
            "http": f"127.0.0.1:{ports.http}",
        },
        "telemetry": {
            "otlp_grpc": f"127.0.0.1:{ports.otlp_grpc}",
            "otlp_http": f"127.0.0.1:{ports.otlp_http}",
        },
        "targets": [
            {
                "name": "default",
                "mode": "enforce",
                "metrics_urls": [f"http://127.0.0.1:{ports.engine}/metrics"],
            }
        ],
    }
    path.write_text(json.dumps(document, indent=2))
    return path
