"""Invalid config files: invalid YAML, too large, or with forbidden content."""

import json
from typing import Any

from bad_settings import SECTIONS, bad_settings, words
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import strategies as st

GOOD = "defaults:\n  - config\n  - _self_\nseed: 1\n"
NESTED = "seed: " + "[" * 500 + "]" * 500 + "\n"
TENFOLD = [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i in range(9)]
ALIAS_BOMB = "\n".join(["a0: &a0 x", *TENFOLD])
TEXT_BOMB = "\n".join(["a0: xxxxxxxxxx", *(f"a{i + 1}: " + f"${{a{i}}}" * 10 for i in range(9))])
LIST_BOMB = "\n".join(["a0: [x, x]", *(f"a{i + 1}:" + f"\n- ${{a{i}}}" * 10 for i in range(9))])

# Text that YAML or the config reader rejects
UNREADABLE = {
    "duplicate key": GOOD + "seed: 2\n",
    "duplicate key below": GOOD + "model: {hidden: [1], hidden: [2]}\n",
    "tab": GOOD + "model:\n\thidden: [1]\n",
    "NUL": GOOD + "name: a\0b\n",
    "escape": GOOD + "name: \x1b[31m\n",
    "python tag": GOOD + "name: !!python/object/apply:os.getcwd []\n",
    "path tag": GOOD + "name: !!python/object/apply:pathlib.Path [x]\n",
    "binary tag": GOOD + "name: !!binary eA==\n",
    "set tag": GOOD + "name: !!set {a, b}\n",
    "own tag": GOOD + "name: !x y\n",
    "empty number": GOOD + "seed: !!int ''\n",
    "500 nested lists": GOOD.replace("seed: 1\n", NESTED),
    "500 nested mappings": GOOD + "x: " + "{a: " * 500 + "1" + "}" * 500,
    "500 indented lists": GOOD + "x:\n" + " - " * 500 + "1\n",
    "a list in itself": GOOD + "x: &x [*x]\n",
    "a mapping in itself": GOOD + "x: &x {a: *x}\n",
    "alias bomb": GOOD + ALIAS_BOMB,
    "merge bomb": GOOD + ALIAS_BOMB.replace("[", "{<<: [").replace("]", "]}").replace("x\n", "{b: 1}\n"),
    "unknown alias": GOOD + "x: *x\n",
    "key 1": GOOD + "1: 2\n",
    "key true": GOOD + "true: 2\n",
    "key 1.5": GOOD + "1.5: 2\n",
    "key null": GOOD + "null: 2\n",
    "key list": GOOD + "? [a]\n: 2\n",
    "key below": GOOD + "model: {1: 2}\n",
    "key of a default": "defaults:\n  - config\n  - 1: x\n  - _self_\n",
    "long": GOOD + "#" * 100_000,
    "long text": GOOD + "name: " + "x" * 100_000,
    "many values": GOOD + "x: [" + "1," * 20_000 + "]",
    "long number": GOOD.replace("seed: 1", "seed: " + "9" * 5000),
    "two documents": GOOD + "---\na: 1\n",
    "open list": GOOD + "x: [1,\n",
    "open quote": GOOD + "x: 'a\n",
    "a number": "5\n",
    "a text": "x\n",
    "a list": "[1, 2]\n",
    "percent": "%x\n",
    "header": "# @package\n" + GOOD,
    "long header": "# @package a b\n" + GOOD,
}
# Defaults lists that are endless, are invalid or have missing entries
DEFAULTS = {
    "itself": "defaults:\n  - nice\n",
    "itself among others": "defaults:\n  - config\n  - nice\n  - _self_\nseed: 1\n",
    "itself in other places": "defaults:\n" + "".join(f"  - nice@a{i}\n" for i in range(9)),
    "a text": "defaults: config\n",
    "a number": "defaults: 5\n",
    "a mapping": "defaults: {model: mlp}\n",
    "null": "defaults: null\n",
    "a number in it": "defaults:\n  - config\n  - 5\n",
    "a list in it": "defaults:\n  - config\n  - [a]\n",
    "null in it": "defaults:\n  - config\n  - null\n",
    "a number for a choice": "defaults:\n  - config\n  - override model: 5\n  - _self_\n",
    "a mapping for a choice": "defaults:\n  - config\n  - override model: {a: b}\n  - _self_\n",
    "an unknown choice": "defaults:\n  - config\n  - override model: nothing\n  - _self_\n",
    "an unknown group": "defaults:\n  - config\n  - override nothing: mlp\n  - _self_\n",
    "an unknown file": "defaults:\n  - config\n  - nothing\n",
    "two keys": "defaults:\n  - config\n  - {a: b, c: d}\n",
    "no key": "defaults:\n  - config\n  - {}\n",
    "_self_ twice": "defaults:\n  - config\n  - _self_\n  - _self_\n",
    "missing": "defaults:\n  - config\n  - model: ???\n",
    "not _self_": "defaults:\n  - config\nseed: -1\n",
    "no interpolation": "defaults:\n  - config\n  - model: ${nothing}\n",
    "interpolation without end": "defaults:\n  - config\n  - model: ${\n",
    "a place in Hydra": "defaults:\n  - config\n  - model/mlp@hydra.launcher\n  - _self_\n",
    "a launcher": "defaults:\n  - config\n  - override hydra/launcher: joblib\n  - _self_\n",
    "/launcher": "defaults:\n  - config\n  - override /hydra/launcher: joblib\n  - _self_\n",
    "one more launcher": "defaults:\n  - config\n  - hydra/launcher/joblib\n  - _self_\n",
    "logging": "defaults:\n  - config\n  - override hydra/job_logging: default\n  - _self_\n",
    "Hydra's logging": "defaults:\n  - config\n  - override hydra/hydra_logging: disabled\n  - _self_\n",
    "a folder above": "defaults:\n  - config\n  - ../../../../../etc/passwd\n",
    "path": "defaults:\n  - config\n  - /etc/passwd\n",
    "nothing": "",
    "nothing of ours": "seed: 1\n",
}
# Keys of ``hydra`` that Hydra reads before it calls the program
HYDRAS = {
    "searchpath": {"searchpath": ["pkg://json.tool"]},
    "no searchpath": {"searchpath": []},
    "searchpath 5": {"searchpath": 5},
    "searchpath a": {"searchpath": "ftp://x"},
    "run": {"run": {"dir": "/tmp/x"}},
    "run 5": {"run": 5},
    "sweep": {"sweep": None},
    "5": 5,
    "a text": "x",
    "a list": [1],
    "null": None,
    "interpolation": "${nothing}",
    "launcher": {"launcher": {"_target_": "os.system"}},
    "launcher 5": {"launcher": 5},
    "launcher null": {"launcher": None},
    "sweeper": {"sweeper": {"params": 5}},
    "sweeper null": {"sweeper": None},
    "sweeper of hydra": {"sweeper": {"params": {"+hydra.callbacks": "{}"}}},
    "sweeper of Hydra ": {"sweeper": {"params": {" hydra.run.dir": "x"}}},
    "callbacks": {"callbacks": {"x": {"_target_": "os.system"}}},
    "callbacks null": {"callbacks": None},
    "job": {"job": {"env_set": {"A": "b"}}},
    "job 5": {"job": 5},
    "mode": {"mode": "MULTIRUN"},
    "mode x": {"mode": "x"},
    "logging": {"job_logging": {"version": 1, "root": {"level": "INFO"}}},
    "logging null": {"job_logging": None},
    "verbose": {"verbose": True},
    "runtime": {"runtime": {"cwd": "/"}},
    "overrides": {"overrides": {"task": ["seed=1"]}},
    "unknown": {"unknown": 1},
    "help": {"help": 5},
    "output_subdir": {"output_subdir": "x"},
}
INTERPOLATIONS = {
    "of itself": GOOD + "name: ${name}\n",
    "in a circle": GOOD + "name: ${output}\noutput: ${name}\n",
    "of mappings in a circle": GOOD + "a: {b: '${c}'}\nc: {d: '${a}'}\n",
    "of its parent": GOOD + "a: {b: '${a}'}\n",
    "of the config": GOOD + "a: ${.}\n",
    "of lists in a circle": GOOD + "a: ['${b}']\nb: ['${a}']\n",
    "text bomb": GOOD + TEXT_BOMB + "\nname: ${a9}\n",
    "list bomb": GOOD + LIST_BOMB,
    "nested": GOOD + "name: " + "${" * 300 + "name" + "}" * 300 + "\n",
    "created": GOOD + "name: \"${oc.create:'a: !!python/object/apply:os.getcwd []'}\"\n",
    "the environment": GOOD + "name: ${oc.env:HOME}\n",
    "unknown": GOOD + "name: ${oc.nothing:x}\n",
    "open": GOOD + "name: ${\n",
    "Hydra's": GOOD + "name: ${hydra:nothing}\n",
    "decoded": GOOD + "workers: ${oc.decode:'['}\n",
}
ONLY_PRIMARY = ("nothing", "nothing of ours")  # an experiment may be empty
SMALL = {"model": "mlp", "data": "digits", "compressor": "top_k"}
SETTINGS = {"workers": 2, "trainer": {"steps": 2, "batch_size": 8}}
SECTIONS_OF_HYDRA = (
    *(
        "mode",
        "searchpath",
        "run",
        "sweep",
        "hydra_logging",
        "job_logging",
        "sweeper",
        "launcher",
        "callbacks",
    ),
    *("help", "hydra_help", "output_subdir", "overrides", "job", "runtime", "verbose", "env"),
)


def as_experiment(text: str) -> str:
    """The text of a primary config as an option of ``experiment``."""
    named = text.replace("- config\n", "- /experiment/quick\n").replace("- nice", "- /experiment/nice")
    return "# @package _global_\n" + named


def hydras(section: Any) -> str:
    return GOOD + json.dumps({"hydra": section})[1:-1].replace('"hydra": ', "hydra: ", 1) + "\n"


def named_files() -> dict[str, str]:
    """All named files of this module, as primary configs."""
    found = {f"hydra: {name}": hydras(section) for name, section in HYDRAS.items()}
    for kind in (UNREADABLE, DEFAULTS, INTERPOLATIONS):
        found |= kind
    return found


def damaged() -> st.SearchStrategy[str]:
    """A valid file with one forbidden part."""
    good = GOOD + "name: somewhere\nmodel: {hidden: [1, 2]}\n"

    def put(place: int, what: str) -> str:
        return good[:place] + what + good[place:]

    control = st.sampled_from(
        [chr(code) for code in range(32) if chr(code) not in "\t\n\r"] + ["\x7f", "\ufffe"]
    )
    names = st.text("abcdefgh", min_size=1, max_size=8)
    return st.one_of(
        st.builds(put, st.integers(0, len(good)), control),
        st.builds(lambda tag, value: f"{good}x: {tag} {json.dumps(value)}\n", tags(), words),
        st.builds(lambda key: f"{good}{key}: 1\n", st.sampled_from(["defaults", "seed", "name", "model"])),
        st.builds(lambda key: f"{good}{json.dumps(key)}: 1\n", st.integers() | st.floats() | st.booleans()),
        st.builds(lambda depth: good + "x: " + "[" * depth + "]" * depth, st.integers(21, 20_000)),
        st.builds(lambda depth: good + "x: " + "{a: " * depth + "b" + "}" * depth, st.integers(21, 10_000)),
        st.builds(lambda width: good + "x: &x [x]\ny: [" + "*x, " * width + "]", st.integers(5_000, 15_000)),
        st.builds(
            lambda name, times: good + f"{name}1: x\n{name}2: " + f"${{{name}1}}" * times,
            names,
            st.integers(11, 5_000),
        ),
        st.builds(lambda name: hydras({name: {"x": 1}}), st.sampled_from(SECTIONS_OF_HYDRA)),
    )


def tags() -> st.SearchStrategy[str]:
    known = [
        "!!str",
        "!!int",
        "!!float",
        "!!binary",
        "!!set",
        "!!omap",
        "!!timestamp",
        "!!python/name:os.system",
    ]
    return st.sampled_from(known) | st.builds(lambda name: f"!{name}", st.text("abc", min_size=1))


def written(bad: list[str]) -> str:
    """The config file with the settings of a small run and of these command-line words."""
    parser = OverridesParser.create()
    chosen, settings = dict(SMALL), json.loads(json.dumps(SETTINGS))
    for override in parser.parse_overrides(bad):
        key, value = override.key_or_group, override.value()
        if key in SECTIONS and isinstance(value, str):
            chosen[key] = value
            continue
        *path, last = key.split(".")
        inside = settings
        for name in path:
            inside = inside.setdefault(name, {})
        inside[last] = value
    defaults = ["config", "_self_", *({f"override {group}": name} for group, name in chosen.items())]
    return json.dumps({"defaults": defaults, **settings}, ensure_ascii=False)


def bad_files() -> st.SearchStrategy[tuple[str, bool]]:
    """The text of a file, and whether it is the primary config or an experiment."""
    named = st.sampled_from(sorted(named_files().items()))
    texts = named.map(lambda item: (item[1], item[0] in ONLY_PRIMARY))
    either = st.booleans()
    broken = st.builds(lambda text, primary: (text[0], primary or text[1]), texts, either)
    settings = st.one_of(*bad_settings()).filter(lambda found: "{" not in found[-1][:1])
    return st.one_of(
        broken,
        st.tuples(damaged(), either),
        settings.map(lambda found: (written(found), True)),
    )
