"""Imports point inward, the core is pure, and the client is a light guest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import PACKAGES, ROOT, imported, relative, sources

CORE_MAY_IMPORT = (sys.stdlib_module_names | {"numpy", "admission"}) - {
    "asyncio",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "threading",
    "time",
}
GUEST_MAY_LOAD = sys.stdlib_module_names | {"admission", "grpc", "google", "typing_extensions"}
# What grpc brings: its runtime, and sister packages that it loads where the sidecar's are installed too.
BROUGHT_BY_GRPC = ("_cython_", "cython_runtime", "grpc_")

LOAD_CLIENT = """
import json, sys
before = {name.partition(".")[0] for name in sys.modules}
import admission.client.aio, admission.client.asgi
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} - before)))
print(json.dumps(sorted(name for name in sys.modules if name.startswith("admission."))))
"""


def test_every_import_contract_holds() -> None:
    """The layers of the design are only real while a machine checks them."""
    # In a process of its own: in ours it would switch off every logger that exists.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"]

    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert run.returncode == 0, run.stdout


def test_the_core_imports_nothing_that_can_surprise_it() -> None:
    """A core without clock, I/O, locks and randomness is what makes replay and simulation exact."""
    wrong = [
        f"{relative(path)}:{line} imports {module}"
        for path in [*sources("admission/core"), ROOT / "admission/vocabulary.py"]
        for line, module in imported(path)
        if module.partition(".")[0] not in CORE_MAY_IMPORT
    ]

    assert wrong == []


def test_every_folder_of_a_package_is_a_package() -> None:
    """Import rules skip namespace packages in silence: a missing __init__.py would switch them off."""
    folders = {path.parent for path in sources(*PACKAGES)}

    missing = [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()]

    assert missing == []


def test_the_client_loads_grpc_protobuf_and_the_standard_library_only(tmp_path: Path) -> None:
    """It runs inside other people's servers: what it drags in can break or slow them."""
    run = subprocess.run(
        [sys.executable, "-P", "-c", LOAD_CLIENT],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    roots, ours = map(json.loads, run.stdout.splitlines())

    assert [r for r in roots if r not in GUEST_MAY_LOAD and not r.startswith(BROUGHT_BY_GRPC)] == []
    allowed = ("admission.client", "admission.v1", "admission.vocabulary")
    assert [name for name in ours if not name.startswith(allowed)] == []
