"""proto/ is clean, compatible with what was released, and says the same as the vocabulary."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from admission import vocabulary
from admission.v1 import types_pb2
from tests.architecture.tree import PROTO, ROOT, relative

BUF = Path(sys.executable).with_name("buf")
BASELINE = PROTO / "baseline.binpb"
GENERATOR_PYTHON = ROOT / ".cache/venv-generator/bin/python"
STAMPED_PROTOBUF = "5.29.0"
STAMPED_GRPC = "1.71.2"

pairs = pytest.mark.parametrize(
    ("ours", "wire"),
    [
        (vocabulary.Verdict, types_pb2.Verdict),
        (vocabulary.Reason, types_pb2.Reason),
        (vocabulary.Outcome, types_pb2.Outcome),
        (vocabulary.Mode, types_pb2.Mode),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)


@pairs
def test_the_vocabulary_has_the_names_and_numbers_of_the_protocol(
    ours: type[IntEnum], wire: EnumTypeWrapper
) -> None:
    """A value crosses the wire as its number and reaches metrics as its name: both must agree."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", ours.__name__).upper() + "_"
    on_wire = {name.removeprefix(prefix): number for name, number in wire.items()}

    assert on_wire.pop("UNSPECIFIED") == 0
    assert {member.name: member.value for member in ours} == on_wire


def test_there_is_no_python_beside_the_protocol() -> None:
    """A package named `proto` would shadow proto-plus in the process of every guest."""
    python = [relative(path) for path in PROTO.rglob("*.py*")]

    assert python == []


def test_the_protocol_is_lint_clean() -> None:
    """Names and layout follow the rules that other languages' generators count on."""
    run = subprocess.run([BUF, "lint", PROTO], capture_output=True, text=True, check=False)

    assert run.stdout + run.stderr == ""


def test_the_protocol_breaks_no_released_client() -> None:
    """Client and sidecar one release apart work together: fields are added, never changed."""
    run = subprocess.run(
        [BUF, "breaking", PROTO, "--against", BASELINE], capture_output=True, text=True, check=False
    )

    assert run.stdout + run.stderr == ""


def test_generated_code_carries_the_stamp_of_the_pinned_generator() -> None:
    """A newer generator writes code that does not import beside the protobuf of the engines."""
    messages = [path.read_text() for path in (ROOT / "admission").glob("*/*_pb2.py")]
    services = [path.read_text() for path in (ROOT / "admission/v1").glob("*_service_pb2_grpc.py")]

    assert messages
    assert all(f"# Protobuf Python Version: {STAMPED_PROTOBUF}\n" in text for text in messages)
    assert services
    assert all(f"GRPC_GENERATED_VERSION = '{STAMPED_GRPC}'" in text for text in services)


generator = pytest.mark.skipif(
    not GENERATOR_PYTHON.exists() and "CI" not in os.environ,
    reason="no generator here: `make proto` installs it",
)


@generator
def test_generated_code_is_current() -> None:
    """What is imported is what proto/ says, byte for byte."""
    run = subprocess.run(
        [ROOT / "scripts/generate.sh", "--check"], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr


@generator
def test_the_client_imports_beside_the_oldest_protobuf() -> None:
    """Engines pin protobuf; the generator's own environment holds the oldest that we promise, 5.29."""
    script = "import google.protobuf as p, admission.client.aio, admission.client.asgi; print(p.__version__)"

    run = subprocess.run(
        [GENERATOR_PYTHON, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("5.29.")
