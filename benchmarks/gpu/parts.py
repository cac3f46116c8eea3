"""The parts of `make gpu`, with their packages and time limits."""

from typing import NamedTuple

CONFIGS = ("hydra", "omegaconf", "pydantic", "rich", "filelock", "safetensors", "yaml")
MODELS = ("torchvision", "scipy")


class Part(NamedTuple):
    """One measurement, made by a function in its own process."""

    title: str
    entry: str  # module:function, called with ``Options`` and ``Record``
    seconds: float  # time limit; unused time of earlier parts is added
    needs: tuple[str, ...] = ()  # required modules beside torch and numpy


PARTS = {
    "tests": Part(
        "Tests of the kernels against the reference",
        "benchmarks.gpu.kernel_tests:measure",
        75,
        ("pytest", "triton", "numba"),
    ),
    "bandwidth": Part(
        "Speed of the kernels and memory bandwidth",
        "benchmarks.kernels_cuda:measure_kernels",
        80,
        ("triton", *MODELS),
    ),
    "step": Part("Steps with and without compression", "benchmarks.gpu.step:measure", 45, MODELS),
    "memory": Part("Peak memory of a step", "benchmarks.gpu.step:measure_memory", 25, MODELS),
    "job": Part(
        "The default job on the GPU and on the CPU",
        "benchmarks.gpu.job:measure",
        75,
        (*CONFIGS, "numba", "sklearn", *MODELS),
    ),
    "paper": Part(
        "The paper's ResNet-18 at its full batch", "benchmarks.gpu.paper:measure", 45, (*CONFIGS, *MODELS)
    ),
    "precision": Part(
        "bf16, channels_last and torch.compile", "benchmarks.gpu.step:measure_precision", 95, MODELS
    ),
    "nccl": Part("Collectives over NCCL", "benchmarks.gpu.nccl:measure", 30, MODELS),
    "methods": Part(
        "One reduction with every method",
        "benchmarks.gpu.methods:measure",
        50,
        ("pytest", "triton", *CONFIGS, *MODELS),
    ),
}
TOTAL_SECONDS = 525.0  # of all parts; below nine minutes including the rest
