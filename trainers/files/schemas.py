"""Schemas of the files of a run folder: types and bounds of every field."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[Finite, Field(ge=0)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]  # blake2b
Word = Annotated[str, Field(min_length=1, max_length=4096)]


class Strict(BaseModel):
    """Model without type conversion and without other fields: no string for a number, no true for 1."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Open(Strict):
    """Model that allows other fields."""

    model_config = ConfigDict(extra="allow")


class Part(Open):
    target: str = Field(alias="_target_", pattern=r"^\w+(\.\w+)+$")


class Config(Open):
    seed: Count
    name: Word
    compressor: Part
    feedback: Part
    model: Part
    data: Part
    trainer: dict[str, object]
    workers: Annotated[int, Field(ge=1)] = 1
    diagnostics: dict[str, object] = {}
    optimizer: dict[str, object] = {}
    schedule: dict[str, object] = {}
    wire: dict[str, object] = {}
    budget: dict[str, object] = {}


class Layer(Open):
    elements: Count
    total_error: float = 0.0
    total_input_norm_squared: float = 0.0
    density_mean: float = 0.0


class Checksums(Strict):
    records: Digest = Field(alias="metrics.jsonl")
    summary: Digest = Field(alias="summary.json")


class Summary(Open):
    __pydantic_extra__: dict[str, float]
    status: Literal["finished", "failed"]
    id: Word
    seed: Count
    wall_seconds: NotNegative
    origin: str | None = None  # checkpoint of another run at which this run began
    origin_group: str | None = None  # ``Origin.group`` of that checkpoint
    error: str = ""
    step: Count = 0
    epoch: NotNegative = 0.0
    best: dict[str, float] = {}
    layers: dict[str, Layer] = {}
    data: dict[str, object] = {}
    problem: dict[str, object] = {}
    checksums: Checksums


class Environment(Open):
    command: list[str] = []
    overrides: list[str] | None = None  # of this job alone, if the command is that of a sweep
    started: str = ""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    commit_is_modified: bool = False
    untracked_code: list[str] = []
    code: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""  # digest of the project's code
    packages: dict[str, str] = {}
    processes: Annotated[int, Field(ge=1)] = 1
    outside_packages: dict[str, str] = {}  # packages whose code the config names
    gpus: list[str] = []
    resumed_at_step: Count = 0
    earlier: list[dict[str, object]] = []


class Job(Strict):
    number: Count
    overrides: list[str]
    status: Literal["failed", "finished", "interrupted", "lost", "skipped"]
    reason: str
    folder: str
    seconds: NotNegative
    at_once: Count = 1
