"""Reading of batches in several processes, of which the last fails."""

from types import SimpleNamespace

from trainers.comm.communicator import Communicator
from trainers.step.reading import UnreadableDataError, read_together


def read_where_the_last_process_fails(process: int, processes: int) -> str:
    """The error message in this process, or "nothing"."""

    def read() -> None:
        if process == processes - 1:
            raise OSError("b.png is no image")

    communicator = Communicator(processes, rank=process, world_size=processes)
    try:
        read_together(communicator, SimpleNamespace(reads_files=True), read)
    except UnreadableDataError as error:
        return str(error)
    return "nothing"
