# `make run` in a container, on a CPU.
#
#     docker build --tag total-error .
#     docker run --rm total-error
#     docker run --rm --volume "$PWD/outputs:/app/outputs" total-error make run ARGS="compressor=top_k seed=1"
#
# The CUDA variant: torch's default build for Linux, which this installs, brings CUDA's libraries along. With NVIDIA's container
# toolkit on the host:
#
#     docker run --rm --gpus all total-error make run ARGS="device=cuda"
#
# Without a GPU, torch's build for CPUs is several GB smaller; torch's install page names its index:
#
#     docker build --build-arg TORCH_INDEX=URL --tag total-error:cpu .
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app

# Packages first, so that a change of the code installs none of them anew.
ARG TORCH_INDEX=
COPY constraints.txt ./
RUN python -m venv .venv \
    && grep -E '^torch(vision)?==' constraints.txt > torch.txt \
    && .venv/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --requirement torch.txt

COPY . .
RUN make .venv/installed
CMD ["make", "run"]
