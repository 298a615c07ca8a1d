"""What we ship is what we tested: the wheel holds every package, and its client needs only grpcio and protobuf."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGES, ROOT, relative

SHIPPED = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES)

BARE_IMPORT = """
import sys

class OnlyTheBareInstall:
    allowed = sys.stdlib_module_names | {"admission", "grpc", "google", "typing_extensions"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"the bare install has no {name}")

sys.meta_path.insert(0, OnlyTheBareInstall())
import admission.client.aio, admission.client.asgi, admission.client.sync
print(admission.client.asgi.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the tree stays clean."""
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", out, source], check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_module_and_its_data(wheel: Path) -> None:
    """A module that setuptools did not find works in the tree and is missing at the user's."""
    shipped = set(zipfile.ZipFile(wheel).namelist())
    ours = {relative(path) for package in PACKAGES for path in (ROOT / package).rglob("*") if _belongs(path)}

    assert ours - shipped == set()


def test_the_bare_install_is_a_working_client(wheel: Path, tmp_path: Path) -> None:
    """The one line in the engine's command must not ask for the sidecar's dependencies."""
    zipfile.ZipFile(wheel).extractall(tmp_path)

    run = subprocess.run(
        [sys.executable, "-P", "-c", BARE_IMPORT],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(str(tmp_path))


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
