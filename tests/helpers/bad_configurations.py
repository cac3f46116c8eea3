"""Generators of invalid command lines of all kinds."""

from bad_settings import SECTIONS, bad_settings, typed, words
from hypothesis import strategies as st

SMALL = (
    "model=mlp",
    "data=digits",
    "compressor=top_k",
    "workers=2",
    "trainer.steps=2",
    "trainer.batch_size=8",
)
GROUPS = (*SECTIONS, "budget")
# Words outside Hydra's grammar, failing interpolations, unknown options
GARBAGE = r"""
=
a=[
workers==
+=1
seed=[1,
seed='
seed
---x
-x
--cfg=x
seed=${
seed=${nothing}
seed=${seed}
workers=${name}
seed=1,2
seed=range(3)
--multirum
--experimental-rerun=x.pickle
--resolve
--cfg=nothing
--config-path=/nowhere
--config-dir=/nowhere
--config-name=nothing
hydra.mode=x
hydra/launcher=nothing
name=../x
name=a/b
name=.hidden
output=/dev/null
output=/proc/nothing
compressor._target_=os.system
compressor._target_=compressors.top_k
+model.x={_target_: os.system}
+_target_=os.system
+model.num_classes=3
""".strip().splitlines()
# Settings that are valid alone but not together, and models with data of another kind
CONTRADICTIONS = r"""
model=lstm data=digits
model=neumf data=digits
model=bert data=digits
model=mlp data=python_docs
model=resnet18 data=breast_cancer
model=logistic_l2 data=digits
model=mlp data=synthetic_ratings
model=lstm data=synthetic_ratings
model=neumf data=python_docs
model=bert data=python_docs
model=bert data=breast_cancer
model=senet18 data=breast_cancer
model=googlenet data=breast_cancer
model=lstm data=python_docs data.objective=masked
model=vgg11 data=python_docs
model=mlp data=mnist data.root=/nowhere
data=cifar10 data.root=/nowhere
data=imagenet data.root=/nowhere
data=libsvm model=logistic_l2 data.root=/nowhere
data=sst2 model=bert data.root=/nowhere
data=movielens model=neumf data.root=/nowhere
data=wikitext2 model=lstm data.root=/nowhere
data=penn_treebank model=lstm data.root=/nowhere
data=image_folder data.name=x data.root=/nowhere
data=libsvm model=logistic_l2 data.name=../x
data=movielens model=neumf data.name=2m
processes=2 workers=3
workers=100000
optimizer.momentum=0
data.alpha=0.5
data.partition=dirichlet
trainer.epochs=3
trainer.bucket_megabytes=0 trainer.overlap=true workers=1
trainer.bucket_megabytes=1
trainer.overlap=true
trainer.overlap=true workers=1 trainer.clip_norm=1
trainer.overlap=true workers=1 scope=global
trainer.channels_last=true
trainer.micro_batch_size=3
compressor=none budget.density=0.1
compressor=none feedback.scale=step
compressor=none budget.schedule=exponential
compressor=hard_threshold budget.schedule=exponential
compressor=accordion budget.schedule=exponential
compressor=accordion compressor.k_low=0.1 compressor.k_high=0.01
compressor=accordion budget.density=0.1
compressor=accordion trainer.steps=200
compressor=accordion compressor.period=1 trainer.steps=200 schedule=cosine
compressor=top_k budget.schedule=step
compressor=top_k budget.schedule={kind:step,milestones:[2,1],factor:0.1}
compressor=top_k budget.schedule={kind:step,milestones:[1],factor:1000}
compressor=top_k budget.schedule={kind:step,milestones:[1],factor:1}
compressor=top_k budget.schedule={kind:exponential,start:0.0001}
compressor=top_k budget.schedule={kind:exponential,start:2}
compressor=top_k budget.schedule={kind:exponential,epochs:0}
compressor=top_k budget.schedule={kind:exponential,factor:2}
compressor=top_k budget.schedule={kind:linear}
compressor=top_k budget.schedule={start:0.3}
compressor=none wire.values=bf16
compressor=random_k wire.indices=auto
compressor=random_k compressor.shared_coordinates=false wire.indices=rice
budget.threshold=1
compressor=hard_threshold compressor.threshold=1 budget.density=0.1
feedback=none feedback.scale=step
trainer.batch_size=1 model=resnet18
trainer.batch_size=100000
trainer.batch_size=null trainer.micro_batch_size=2
schedule=linear schedule.warmup_epochs=1 schedule.warmup_share=0.3
feedback.scale=step schedule=linear
optimizer.lr=null
budget.density=1.5
budget.density=0
optimizer.lr=0
trainer.steps=0
trainer.steps=-1
data=synthetic_ratings model=neumf data.fewest=30 data.most=20
data=synthetic_ratings model=neumf data.fewest=600 data.most=700
data=python_docs model=lstm trainer.batch_size=100000
trainer.epochs=0 trainer.steps=null
trainer.steps=null trainer.epochs=null
data=libsvm model=logistic_l2 data.home=http://example.org data.download=true data.root=/dev/null
model=bert data=python_docs data.objective=masked model.positions=16
model=bert data=python_docs data.objective=masked model.pretrained=/nowhere
trainer.steps=1e400
schedule=cosine schedule.peak=1e38 optimizer.lr=1e3
schedule=warmup_step schedule.peak=1e30 schedule.decay=1e3 schedule.milestones=[1,2,3]
optimizer=adam optimizer.lr=1e38 optimizer.betas=[0.9,0.9]
workers=1400 model=vgg19
data=synthetic_ratings model=neumf data.users=10000000 data.items=10000000
trainer.epochs=1e7 trainer.steps=null
workers=99999999999999999999
""".strip().splitlines()


def unknown_names() -> st.SearchStrategy:
    """Unknown groups, options and settings."""
    letters = st.text("abcxyz_é", min_size=8, max_size=30)
    return st.one_of(
        st.builds(lambda group, name: [f"{group}={name}"], st.sampled_from(GROUPS), letters),
        st.builds(lambda name, value: [f"{name}={typed(value)}"], letters, words),
        st.builds(lambda plus, name: [f"{plus}{name}=1"], st.sampled_from(["+", "++"]), letters),
        st.builds(lambda section, name: [f"+{section}.{name}=1"], st.sampled_from(SECTIONS), letters),
        st.builds(lambda section, name: [f"{section}.{name}=1"], st.sampled_from(SECTIONS), letters),
        st.sampled_from([[f"{group}=null"] for group in GROUPS] + [[f"~{group}"] for group in GROUPS]),
        st.sampled_from(
            [["~seed"], ["~workers"], ["~output"], ["~name"], ["~optimizer.lr"], ["~budget.density"]]
        ),
        st.sampled_from([["~trainer.epochs"], ["~model._target_"], ["~optimizer._partial_"]]),
    )


def garbage() -> st.SearchStrategy:
    """One word of ``GARBAGE``."""
    return st.sampled_from([[word] for word in GARBAGE])


def contradictions() -> st.SearchStrategy:
    """Words of which each is valid, but not all together or with the data."""
    return st.sampled_from([line.split() for line in CONTRADICTIONS])


def bad_command_lines() -> st.SearchStrategy[list[str]]:
    """Command lines that run.py must refuse."""
    settings = st.one_of(*bad_settings())
    others = [unknown_names(), garbage(), contradictions()]
    return st.one_of(settings, settings, *others).map(with_small)


def with_small(bad: list[str]) -> list[str]:
    """The words of a small run, except for settings in ``bad``, and then the bad words."""
    given = {word.split("=")[0] for word in bad}
    own_model = given & {"model", "data"} and "model.hidden" not in given
    dropped = given | ({"model"} if own_model and "model" in given else set())
    return [word for word in SMALL if word.split("=")[0] not in dropped] + list(bad)
