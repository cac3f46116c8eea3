"""Communication hook of DistributedDataParallel that runs a reducer, for your own script.

    state = CompressionState(reducer, ddp_model.module)
    ddp_model.register_comm_hook(state, compression_hook)

One worker per process, one segment per parameter; each bucket is compressed and communicated during the
backward pass. DDP regroups its buckets after the first step, so persistent state is keyed by parameter, never
by bucket.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor, nn

from compressors.api import Codec, Reduced, Reducer, Step, inputs_of
from trainers.comm.communicator import Communicator
from trainers.layout import Layout


class CompressionState:
    """State between buckets and steps: residuals, the step number, the charged bytes.

    A reducer in units of the step (``scale="step"``) needs ``learning_rate``: set the attribute anew before
    each backward pass in which the rate has changed. Set ``epoch``, fractional, if the reducer depends on
    epochs (density schedules, ACCORDION, which takes both). ``inspect`` is called with every bucket's result,
    before the mean replaces the gradient. Raises ``ValueError`` for a codec, and for a missing rate.
    """

    def __init__(
        self,
        reducer: Reducer | Codec,
        module: nn.Module,
        *,
        seed: int = 0,
        learning_rate: float | None = None,
        communicator: Communicator | None = None,
        inspect: Callable[[Reduced], None] = lambda reduced: None,
    ) -> None:
        if isinstance(reducer, Codec):
            name = type(reducer).__name__
            raise ValueError(
                f"CompressionState.reducer must be a reducer, got the method {name}: "
                f"wrap it by compressors.build.build_reducer({name}(...), D), D being the model's parameters"
            )
        if reducer.uses_learning_rate and learning_rate is None:
            raise ValueError(
                "CompressionState.learning_rate must be given with feedback in units of the step "
                "(scale='step'), and set before each backward pass in which it has changed"
            )
        self.reducer = reducer
        self.seed = seed
        self.step = 0
        self.learning_rate = 1.0 if learning_rate is None else learning_rate
        self.epoch = 0.0
        self.inspect = inspect
        self.layout = Layout(dict(module.named_parameters()), "layer")
        self.communicator = communicator or Communicator(
            dist.get_world_size(),
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            device=self.layout.device,
        )
        self.communicator.declare_kinds(reducer.kinds)
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in self.layout.parameters.items()
        }
        shapes = [p.detach().reshape(1, -1) for p in self.layout.parameters.values()]
        self.state = reducer.init(
            [self.layout.segment_of(name, rows) for name, rows in zip(self.layout.names, shapes, strict=True)]
        )
        self.thread = ThreadPoolExecutor(1, "compression") if self.layout.device.type == "cpu" else None

    def reduce(self, gradients: dict[str, Tensor], *, last: bool) -> None:
        """Replace gradients, views of one bucket by parameter name, by their reduced means."""
        segments = [self.layout.segment_of(name, g.view(1, -1)) for name, g in gradients.items()]
        step = Step(self.seed, self.step, self.learning_rate, self.epoch)
        reduced, self.state = self.reducer.reduce(inputs_of(segments), self.state, step, self.communicator)
        self.inspect(reduced)
        for name, gradient in gradients.items():
            mean = reduced.mean[name]
            if mean.data_ptr() != gradient.data_ptr():  # otherwise it is already there
                gradient.copy_(mean.view_as(gradient))
        self.step += last


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Reduce ``bucket``: on a CPU in a thread during the backward pass, in bucket order."""
    names = [state.names[parameter] for parameter in bucket.parameters()]
    gradients = dict(zip(names, bucket.gradients(), strict=True))
    buffer, last = bucket.buffer(), bucket.is_last()
    if state.thread is None:  # kernels and NCCL are asynchronous already
        future: torch.futures.Future[Tensor] = torch.futures.Future(devices=[buffer.device])
        state.reduce(gradients, last=last)
        future.set_result(buffer)
        return future
    future = torch.futures.Future()

    def work() -> None:
        try:
            state.reduce(gradients, last=last)
            future.set_result(buffer)
        except BaseException as error:  # the backward pass waits for this future
            future.set_exception(error)  # type: ignore[arg-type]  # torch's stub asks for a result

    state.thread.submit(work)
    return future
