"""Every dataset of conf/data implements ``data.protocols``."""

import inspect
import re
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import hydra.utils
import pytest
import torch
from configs import CONF, resolved
from data_formats import FORMATS, IMAGES

from compressors.core.randomness import generator
from data.protocols import Dataset, Loader, Task, tokens_per_step

OPTIONS = sorted(path.stem for path in CONF.glob("data/*.yaml"))
SMALL = {  # command-line settings, and the function that writes the files, by option
    **{option: ((f"data={option}",), None) for option in ("breast_cancer", "digits", "python_docs")},
    "masked": (("data=python_docs", "data.objective=masked"), None),
    "windows": (("data=python_docs", "data.objective=windows"), None),
    "least_squares": (("data=least_squares",), None),
    "synthetic_ratings": (("data=synthetic_ratings", "data.users=40"), None),
    "imagenet": ((*IMAGES, "data.image_size=8"), FORMATS["images png"].write),  # as a folder of two classes
    **{
        FORMATS[name].words[0].removeprefix("data="): (FORMATS[name].words, FORMATS[name].write)
        for name in (
            *("idx", "idx.gz", "cifar10", "cifar100", "images png", "libsvm", "wikitext"),
            *("penn treebank", "text", "sst-2", "movielens 100k"),
        )
    },
}


def settings_of(protocol: type) -> dict[str, list[str]]:
    """The methods of a protocol with the names of their arguments; a property has none."""
    members = {name: member for name, member in vars(protocol).items() if not name.startswith("_")}
    return {
        name: list(inspect.signature(member).parameters) if inspect.isfunction(member) else []
        for name, member in members.items()
    }


def check(part: object, protocol: type) -> None:
    for name, arguments in settings_of(protocol).items():
        member = getattr(part, name)
        if arguments:
            assert list(inspect.signature(member).parameters) == arguments[1:], f"{type(part)}.{name}"


@cache
def classes_of(option: str) -> tuple[type, ...]:
    """The declared return type of an option's factory."""
    target = re.findall(r"^_target_: (\S+)", (CONF / f"data/{option}.yaml").read_text(), re.MULTILINE)[0]
    returned = get_type_hints(hydra.utils.get_method(target))["return"]
    return get_args(returned) or (returned,)


def build(option: str, root: Path) -> Dataset:
    words, write = SMALL[option]
    if write is not None:
        write(root)
        words += (f"data.root={root}",)
    return hydra.utils.instantiate(resolved(*words)["data"], _convert_="all")


def test_every_choice_is_tried() -> None:
    assert set(OPTIONS) == SMALL.keys() - {"masked", "windows"}
    assert len({kind for option in OPTIONS for kind in classes_of(option)}) == 8


@pytest.mark.parametrize("option", SMALL)
def test_a_dataset_keeps_to_the_protocol(option: str, tmp_path: Path) -> None:
    dataset: Any = build(option, tmp_path)
    assert type(dataset) in classes_of("python_docs" if option in ("masked", "windows") else option)
    check(dataset, Dataset)
    if dataset.task is None:
        assert not dataset.held_out and option in ("least_squares", "libsvm")
    else:
        check(dataset.task, Task)
    told = get_type_hints(type(dataset).model_arguments)["return"]
    assert dataset.model_arguments().keys() == get_type_hints(told).keys()
    assert len(dataset.train) > 0 and type(dataset.to(torch.device("cpu"))) is type(dataset)
    places = (range(2), range(1, 2))
    loaders = [dataset.loader(2, local_workers, 1, partial(generator, 7)) for local_workers in places]
    for loader in loaders:
        check(loader, Loader)
        assert 0 < loader.epochs_per_step <= 1
    if option in ("masked", "windows", "digits"):  # text in samples of equal length, and other data
        tokens = None if option == "digits" else loader.batches(0)[0][0].numel()
        assert tokens_per_step(loader) == tokens
    for step in (3, 0, 5, 2):  # a worker's batch depends on the step alone, not on the process
        both, second = (loader.batches(step) for loader in loaders)
        if isinstance(both, list):
            assert len(both) == 2 and len(second) == 1
            for one, other in zip(both[1], second[0], strict=True):
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    if option not in ("libsvm", "least_squares"):  # drawn with replacement
        with pytest.raises(
            ValueError, match=r"trainer\.batch_size must be at most the \d+ (samples|tokens) of"
        ):
            dataset.loader(2, range(1), 10**7, partial(generator, 7))
    for split, samples in dataset.held_out.items():
        assert split in ("validation", "test") and len(samples) > 0
        batch = dataset.held_out_batch(split, torch.tensor([0]))
        assert all(len(part) == 1 for part in batch if isinstance(part, torch.Tensor))


def test_a_part_that_lacks_something_is_noticed() -> None:
    class Loaderless:
        def model_arguments(self) -> dict[str, int]:
            return {}

        def to(self, where: torch.device) -> "Loaderless":
            return self

    with pytest.raises(AssertionError, match="Loaderless"):
        check(Loaderless(), type("Part", (), {"to": Dataset.to}))
    with pytest.raises(AttributeError, match="loader"):
        check(Loaderless(), type("Part", (), {"loader": Dataset.loader}))
