"""Page of ``run.py --help``: groups, and the settings of the composed config with their explanations.

The explanation of a setting is its comment, after its value or in the lines above, in the file that sets it
first. The explanation of a group is the first line of the chosen file. A setting that refers to another one
has the explanation of the latter.
"""

import re
import shutil
import string
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hydra._internal.hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from trainers.config.installed import FOR_AGENTS

Key = tuple[str, ...]  # path of a setting
_REFERENCE = re.compile(r"\$\{([a-z_.]+)\}")
_LAST_COLUMN = 36  # last column at which explanations start; those of longer settings are in the next line
_FALLBACK_WIDTH = 100  # width of the page without a terminal


def install() -> None:
    """Replace Hydra's help page; once per process."""
    hydra._internal.hydra.Hydra.app_help = app_help  # type: ignore[method-assign]


def app_help(self: Any, config_name: str | None, args_parser: ArgumentParser, args: Namespace) -> None:
    """Print the page; replaces the method of ``hydra._internal.hydra.Hydra``."""
    config = self.compose_config(config_name, args.overrides, RunMode.RUN, with_log_configuration=True)
    HydraConfig.instance().set_config(config)
    width = shutil.get_terminal_size((_FALLBACK_WIDTH, 24)).columns
    sources = [source.path for source in config.hydra.runtime.config_sources if source.schema == "file"]
    listed = self.config_loader.compute_defaults_list(config_name, args.overrides, RunMode.RUN).defaults
    files = [(default.config_path, default.package or "") for default in listed]
    explained = explanations(files, [Path(path) for path in sources])
    template = string.Template(config.hydra.help.template)  # the next line removes it
    settings: Any = OmegaConf.to_container(self.get_sanitized_cfg(config, "job"), resolve=args.resolve)
    page = settings_page(settings, explained, width)
    print(
        template.safe_substitute(
            FLAGS_HELP=self.format_args_help(args_parser),
            APP_CONFIG_GROUPS="".join(f"{line}\n" for line in _groups(self, width)),
            CONFIG="".join(f"{line}\n" for line in page),
        )
    )


def explanations(files: Iterable[tuple[str, str]], folders: Iterable[Path]) -> dict[Key, str]:
    """Explanations by setting, from config ``files`` (name, package) in ``folders``; the first counts."""
    places = list(folders)
    found: dict[Key, str] = {}
    for name, package in files:
        file = next((path for place in places if (path := place / f"{name}.yaml").is_file()), None)
        if file is None:
            continue
        below: Key = tuple(package.split(".")) if package else ()
        text = file.read_text(encoding="utf-8")
        for key, comment in comments(text, name.rpartition("/")[2]).items():
            if key or below:  # a file of the whole config explains no single setting
                found.setdefault((*below, *key), comment)
    return found


def comments(text: str, name: str = "") -> dict[Key, str]:
    """The comments of a YAML file by the key that they explain.

    The first line explains the key ``name`` if the file has it, as in ``conf/diagnostics``; otherwise it
    explains the whole file, whose key is empty.
    """
    lines = text.splitlines()
    places = list(_places(yaml.compose(text, Loader=yaml.SafeLoader)))
    top = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    whole = (name,) if any(key == (name,) for key, _, _ in places) else ()
    found: dict[Key, str] = {whole: lines[0].removeprefix("#").strip()} if top else {}
    for key, first, (last, column) in places:
        above = first
        while above > top and lines[above - 1].lstrip().startswith("#"):
            above -= 1
        comment = [line.strip().removeprefix("#").strip() for line in lines[above:first]]
        behind = lines[last][column:].strip() if last < len(lines) else ""
        if behind.startswith("#"):
            comment.append(behind.removeprefix("#").strip())
        if comment:
            found[key] = " ".join(comment)
    return found


def _places(node: Any, before: Key = ()) -> Iterator[tuple[Key, int, tuple[int, int]]]:
    """Keys of a YAML file, each with its line and the end of its value, (line, column)."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        way = (*before, str(key.value))
        is_block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        end = key.end_mark if is_block else value.end_mark
        yield way, key.start_mark.line, (end.line, end.column + is_block)  # the colon behind the key
        if is_block:
            yield from _places(value, way)


def settings_page(settings: Mapping[str, Any], explained: Mapping[Key, str], width: int) -> Iterator[str]:
    """The settings as YAML, without names of classes, each with its explanation on the right."""
    lines = [(key if key in explained else _referred(settings, key), line) for key, line in _lines(settings)]
    column = 2 + max((len(line) for _, line in lines if len(line) + 2 <= _LAST_COLUMN), default=0)
    for key, line in lines:
        rows = textwrap.wrap(explained.get(key, ""), max(width - column - 2, 20), break_on_hyphens=False)
        if rows and len(line) + 2 <= column:
            line = f"{line:<{column}}# {rows.pop(0)}"
        yield line
        yield from (f"{'':{column}}# {rest}" for rest in rows)


def _referred(settings: Any, key: Key) -> Key:
    """The setting that the value of ``key`` refers to, as in ``${budget.density}``."""
    for name in key:
        settings = settings[name]
    found = _REFERENCE.fullmatch(settings) if isinstance(settings, str) else None
    return tuple(found[1].split(".")) if found else key


def _lines(settings: Mapping[str, Any], before: Key = ()) -> Iterator[tuple[Key, str]]:
    for name, value in settings.items():
        if str(name).startswith("_"):
            continue
        way = (*before, str(name))
        head = f"{'  ' * len(before)}{name}:"
        if isinstance(value, dict) and value:
            yield way, head
            yield from _lines(value, way)
        else:
            dumped = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
            yield way, f"{head} {dumped.splitlines()[0]}"  # a second line marks the end of the document


def _groups(hydras: Any, width: int) -> Iterator[str]:
    for line in hydras.format_config_groups(
        lambda name: name.split("/")[0] not in ("hydra", "exception") and name != FOR_AGENTS
    ).splitlines():
        yield from textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
