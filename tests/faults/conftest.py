"""Results of runs without a fault, with which the tests compare."""

from typing import Any

import pytest
from faults import LONG, METHODS, SMALL, uninterrupted


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return uninterrupted(tmp_path_factory.mktemp("reference"), *SMALL, METHODS["gathered"], *LONG)


@pytest.fixture(scope="session")
def short_reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return uninterrupted(tmp_path_factory.mktemp("short"), *SMALL, METHODS["gathered"], "trainer.steps=60")
