"""Files of conf/: composition, construction of their parts, comments, exceptions, initial weights."""

import re
from pathlib import Path

import hydra.utils
import pytest
import torch
import yaml
from building import built
from configs import CONF, in_use, resolved
from full_size import has_images, stub
from image_files import write_tree
from libsvm_files import write_rows
from speech import write_words

from contract.cases import configured
from trainers.config.checks import check
from trainers.config.destinations import DESTINATIONS
from trainers.identity.identity import compressor_name, identify, subject_of
from trainers.training import Training

CHOICES = [
    (p.relative_to(CONF).parts[0], str(p.relative_to(CONF).with_suffix("")).split("/", 1)[1])
    for p in sorted(CONF.glob("*/**/*.yaml"))
    if not {"sweeps", "exception", "hydra", "compressor"} & {*p.relative_to(CONF).parts}  # tested elsewhere
]
NEEDS_FILES = {"mnist", "fashion_mnist", "cifar10", "cifar100", "imagenet", "wikitext2", "penn_treebank"}
NEEDS_FILES |= {"movielens", "paper/neumf_ml20m", "paper/gpt124m", "sst2"}
NEEDS_FILES |= {"bert_sst2", "small/bert_sst2"}
NEEDS_FILES |= {
    f"autolrs/{name}" for name in ("resnet50_imagenet", "bert_wikitext2", "transformer_wikitext2")
}


# Of the experiments only quick and those in small/; test_paper_sweeps composes the paper's
QUICK = [own for own in CHOICES if own[0] != "experiment" or own[1].split("/")[0] in ("small", "quick")]
USUAL = "budget/default checkpoint/default data/digits feedback/ef local/none optimizer/sgd schedule/cosine"
USUAL += " trainer/default wire/default"  # with each of them the config is that of model/mlp
QUICK = [own for own in QUICK if "/".join(own) not in USUAL.split()]


@pytest.mark.parametrize(
    ("group", "option"),
    [pytest.param(*own, id="/".join(own), marks=[] if own in QUICK else pytest.mark.slow) for own in CHOICES],
)
def test_every_yaml_builds(group: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if group == "tracker" and option in DESTINATIONS:
        pytest.importorskip(option)
    config = resolved(*in_use(group, option))
    if config["data"]["_target_"] == "data.convex.libsvm.libsvm":
        write_rows(tmp_path, "few", rows=200, features=10)
        config["data"] |= {"name": "few", "root": str(tmp_path)}
    elif option == "text":
        (tmp_path / "a.txt").write_text("a b c\n" * 4000)
        config["data"]["root"] = str(tmp_path)
    elif config["data"]["_target_"] == "data.text.language_modelling.wikitext2" and option not in NEEDS_FILES:
        config["data"]["root"] = write_words(tmp_path, words=9000)
    elif config["data"]["_target_"] == "data.images.folder.image_folder":
        for split in ("train", "test"):
            write_tree(tmp_path / "few" / split, {"ant": 80, "bee": 80})
        config["data"]["root"] = str(tmp_path)
    elif group == "experiment" and has_images(config["data"]):
        stub(config["data"], monkeypatch)
    check(config)
    if option in NEEDS_FILES:
        factory = hydra.utils.get_method(config["data"]["_target_"])
        how = "no folder .*put the images" if "imagenet" in option else "no file .*data.download=true"
        with pytest.raises(FileNotFoundError, match=f"data={factory.__name__}: {how}"):
            factory(**{k: v for k, v in config["data"].items() if k != "_target_"} | {"root": "/nowhere"})
        return
    trainer = built(config)
    assert isinstance(trainer, Training)
    if group == "tracker":
        open_tracker = hydra.utils.instantiate(config["tracker"], _convert_="all")
        assert len(open_tracker(folder=Path(), name="x", config={}, facts={"group": "x"})) == (
            option != "none"
        )


def test_every_yaml_says_what_it_is_and_every_experiment_its_command() -> None:
    for path in CONF.glob("*/**/*.yaml"):
        assert path.read_text().startswith("# "), path
    for path in CONF.glob("experiment/**/*.yaml"):
        name = path.relative_to(CONF / "experiment").with_suffix("")
        assert f"python run.py experiment={name}" in path.read_text(), path


@pytest.mark.parametrize("name", [path.stem for path in sorted((CONF / "compressor").glob("*.yaml"))])
def test_every_method_has_its_own_name_and_trains_in_the_quick_experiment(name: str) -> None:
    config = resolved("experiment=quick", f"compressor={name}", "budget.density=0.005")
    settings = config["compressor"]
    assert settings.get("density", settings.get("k_low", 0.005)) == 0.005
    check(config)
    assert identify(config).method.compressor == compressor_name(config) == name
    assert subject_of(config) == "mlp-digits"
    built(config)  # raises if it cannot train


def test_exceptions_are_those_of_one_method_in_one_experiment() -> None:
    for path in (CONF / "exception").glob("*.yaml"):
        experiment, compressor = path.stem.split("-")
        config = resolved(f"experiment={experiment}", f"compressor={compressor}")
        own = yaml.safe_load(path.read_text())
        assert own.keys() == {"optimizer"} and own["optimizer"].items() <= config["optimizer"].items()
        others = resolved(f"experiment={experiment}"), resolved(f"compressor={compressor}")
        assert all(own["optimizer"]["lr"] != other["optimizer"]["lr"] for other in others)


def test_same_start_for_every_compressor() -> None:
    starts = []
    for name in ("top_k", "none"):
        config = resolved("model=mlp", f"compressor={name}")
        trainer = built(config)
        starts.append(torch.cat([p.flatten() for p in trainer.model.parameters()]))
    assert torch.equal(*starts)


@pytest.mark.parametrize("path", sorted((CONF / "compressor").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_script_has_the_feedback_of_the_yaml(path: Path) -> None:
    chosen = re.search(r"^  - override /feedback@_global_\.feedback: (\w+)", path.read_text(), re.M)
    assert configured(path, {}, density=0.01).usual_feedback == (chosen[1] if chosen else "ef")
