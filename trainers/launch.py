"""Start the processes of one run on this machine, with the launcher behind torchrun."""

import uuid
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def launch(entry: Callable[[Any], None], argument: Any, processes: int) -> bool:
    """Run ``entry(argument)`` in ``processes`` fresh processes that can find each other.

    ``entry`` has to be importable by name. Returns False when one of them fails, after the others
    were stopped.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
    )
    try:
        elastic_launch(config, entry)(argument)
    except ChildFailedError:
        return False
    return True
