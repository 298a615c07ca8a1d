"""The cycle collector leaves the loop alone, and can still be asked."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from admission.runtime.collector import calm_collector


@pytest.fixture
def as_before() -> Iterator[None]:
    """The collector is of the whole process."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("as_before")
def test_what_was_loaded_is_never_walked_again() -> None:
    """Modules, classes and caches are half a million objects: walking them takes a third of a second."""
    calm_collector()

    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < gc.get_freeze_count()
    assert gc.isenabled()


@pytest.mark.usefixtures("as_before")
def test_full_collections_become_rare() -> None:
    """Young garbage is still found."""
    calm_collector()

    young, middle, old = gc.get_threshold()
    assert young * middle * old > 10**8
