"""Generators of invalid command lines of all kinds."""

from bad_settings import SECTIONS, bad_settings, typed, words
from hypothesis import strategies as st

SMALL = ["model=mlp", "data=digits", "compressor=top_k", "workers=2"]
SMALL += ["trainer.steps=2", "trainer.batch_size=8"]
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
# Settings that are valid alone but not together, and models with data of another kind; those with a message
# of their own are in test_refusals.py
CONTRADICTIONS = r"""
model=mlp data=python_docs
model=mlp data=synthetic_ratings
model=lstm data=synthetic_ratings
model=neumf data=python_docs
model=bert data=python_docs
model=bert data=breast_cancer
model=senet18 data=breast_cancer
model=googlenet data=breast_cancer
model=lstm data=python_docs data.objective=masked
model=vgg11 data=python_docs
data=cifar10 data.root=/nowhere
data=imagenet data.root=/nowhere
data=libsvm model=logistic_l2 data.root=/nowhere
data=sst2 model=bert data.root=/nowhere
data=movielens model=neumf data.root=/nowhere
data=wikitext2 model=lstm data.root=/nowhere
data=penn_treebank model=lstm data.root=/nowhere
data=image_folder data.root=/nowhere
data=libsvm model=logistic_l2 data.name=../x
data=movielens model=neumf data.name=2m
processes=2 workers=3
nodes=0
nodes=two
nodes=3 workers=4
nodes=4 workers=12 processes=6
trainer.bucket_megabytes=0 compressor=none
trainer.micro_batch_size=3
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
compressor=random_k compressor.shared_coordinates=false wire.indices=rice
trainer.batch_size=null trainer.micro_batch_size=2
feedback.scale=step schedule=linear
optimizer.lr=0
data=synthetic_ratings model=neumf data.fewest=30 data.most=20
data=synthetic_ratings model=neumf data.fewest=600 data.most=700
data=python_docs model=lstm trainer.batch_size=100000
trainer.epochs=0 trainer.steps=null
trainer.steps=null trainer.epochs=null
data=libsvm model=logistic_l2 data.home=http://example.org data.download=true data.root=/dev/null
model=bert data=python_docs data.objective=masked model.positions=16
model=bert data=python_docs data.objective=masked model.pretrained=/nowhere
schedule=warmup_step schedule.peak=1e30 schedule.decay=1e3 schedule.milestones=[1,2,3]
optimizer=adam optimizer.lr=1e38 optimizer.betas=[0.9,0.9]
data=synthetic_ratings model=neumf data.users=10000000 data.items=10000000
trainer.epochs=1e7 trainer.steps=null
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


def bad_command_lines() -> st.SearchStrategy[list[str]]:
    """Command lines that run.py must refuse."""
    settings = st.one_of(*bad_settings())
    others = [
        unknown_names(),
        *(st.sampled_from([line.split() for line in lines]) for lines in (GARBAGE, CONTRADICTIONS)),
    ]
    return st.one_of(settings, settings, *others).map(with_small)


def with_small(bad: list[str]) -> list[str]:
    """The words of a small run, except for settings in ``bad``, and then the bad words."""
    given = {word.split("=")[0] for word in bad}
    return [word for word in SMALL if word.split("=")[0] not in given] + list(bad)
