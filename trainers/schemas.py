"""What the files of a run folder must hold: types and bounds of every field that is read back."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[Finite, Field(ge=0)]
Quantity = float  # of a summary: finite and within its bounds where that is checked, by its name
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]  # blake2b
Word = Annotated[str, Field(min_length=1, max_length=4096)]


class Strict(BaseModel):
    """Values have the type that is declared: no text for a number, no true for 1."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Open(Strict):
    """May hold more than is declared."""

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
    trainer: dict[str, Any]
    workers: Annotated[int, Field(ge=1)] = 1
    diagnostics: dict[str, Any] = {}


class Layer(Open):
    elements: Count
    total_error: Quantity = 0.0
    density_mean: Quantity = 0.0


class Checksums(Strict):
    records: Digest = Field(alias="metrics.jsonl")
    summary: Digest = Field(alias="summary.json")


class Summary(Open):
    __pydantic_extra__: dict[str, Quantity]
    status: Literal["finished", "failed"]
    id: Word | None = None
    seed: Count | None = None
    wall_seconds: NotNegative = 0.0
    error: str = ""
    step: Count = 0
    epoch: NotNegative = 0.0
    best: dict[str, Quantity] = {}
    layers: dict[str, Layer] = {}
    data: dict[str, Any] = {}
    problem: dict[str, Any] = {}
    checksums: Checksums | None = None


class Environment(Open):
    command: list[str] = []
    started: str = ""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    commit_is_modified: bool = False
    packages: dict[str, str] = {}
    gpus: list[str] = []
    resumed_at_step: Count = 0
    earlier: list[dict[str, Any]] = []
