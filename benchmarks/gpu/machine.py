"""Description of the machine as JSON, from a separate process that then releases the GPU.

python -m benchmarks.gpu.machine
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess

from trainers.run.processor import processor

PACKAGES = ("torch", "torchvision", "triton", "numba", "numpy", "hydra-core", "pytest")
DATASHEETS = {  # data-sheet memory bandwidth in 10^9 bytes per second, by a part of the GPU's name
    "H200": 4800,
    "H100 NVL": 3938,
    "H100 PCIe": 2039,
    "H100": 3352,
    "GH200": 4023,
    "B200": 8000,
    "A100-SXM4-80GB": 2039,
    "A100-PCIE-80GB": 1935,
    "A100 80GB PCIe": 1935,
    "A100": 1555,
    "L40S": 864,
    "V100": 900,
    "RTX 4090": 1008,
}


def datasheet_bandwidth(name: str) -> int | None:
    """Memory bandwidth in 10^9 bytes per second, None for an unknown GPU."""
    known = sorted((part for part in DATASHEETS if part in name), key=len)
    return DATASHEETS[known[-1]] if known else None


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, object]:
    found: dict[str, object] = {
        "versions": versions(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpus": [],
    }
    if importlib.util.find_spec("torch") is None:
        return found
    import torch

    found["torch_cuda"] = torch.version.cuda
    if not torch.cuda.is_available():
        return found
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    found["gpus"] = [
        {
            "name": own.name,
            "memory_gib": own.total_memory / 2**30,
            "multiprocessors": own.multi_processor_count,
            "capability": f"{own.major}.{own.minor}",
            "datasheet_gigabytes_per_second": datasheet_bandwidth(own.name),
        }
        for own in properties
    ]
    found["cudnn"] = torch.backends.cudnn.version()
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    found["convolutions_in_tf32"] = torch.backends.cudnn.allow_tf32
    found["driver"] = _driver()
    return found


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.splitlines()[0].strip() if said.strip() else None


if __name__ == "__main__":
    print(json.dumps(machine()))
