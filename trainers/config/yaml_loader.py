"""YAML of config files, with bounds on the memory and time that a file can take.

It replaces OmegaConf's loader of YAML, which reads all config files. It refuses tags, keys that are not
texts, and files with too many values, including those behind aliases.
"""

from functools import cache
from typing import Any

import omegaconf._utils
import yaml
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.base import Container
from omegaconf.errors import InterpolationResolutionError

LONGEST = 2**16  # characters of a file
DEEPEST = 20  # nesting of lists and mappings
MOST = 5_000  # values of a file; those behind an alias count each time
MOST_INTERPOLATIONS = 500  # of a file
MOST_INSIDE = 10  # interpolations in one text
MOST_RESOLVED = 2_000  # results of interpolations in a config: a value, and 64 characters of text, count as 1
_KEYS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
_resolve = Container.resolve_parse_tree
_resolved: int | None = None  # results so far, between the load of a config and its resolution


def install() -> None:
    """Replace OmegaConf's loader of YAML and its resolution of interpolations; once per process."""
    omegaconf._utils.get_yaml_loader = bounded_loader
    Container.resolve_parse_tree = resolve_parse_tree


@cache
def bounded_loader() -> Any:
    """OmegaConf's loader, which is safe and refuses duplicate keys, with bounds; raises ``YAMLError``."""

    class BoundedLoader(get_yaml_loader()):
        def __init__(self, stream: Any) -> None:
            text = stream.read(LONGEST + 1) if hasattr(stream, "read") else stream
            if len(text) > LONGEST:
                raise yaml.YAMLError(f"must have at most {LONGEST} characters")
            if text.count("${") > MOST_INTERPOLATIONS:
                raise yaml.YAMLError(f"must have at most {MOST_INTERPOLATIONS} interpolations")
            super().__init__(text)
            self.depth = self.count = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if getattr(event, "tag", None) is not None:
                raise _error(f"must have no tags, got {event.tag}", event)
            self.count += 1
            self.depth += 1
            _require(self.count, self.depth, event)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_document(self, node: Any) -> Any:
            _count(node, 0, 1)
            return super().construct_document(node)

    return BoundedLoader


def _count(node: Any, count: int, depth: int) -> int:
    """The number of values up to the end of ``node``, with ``count`` before it."""
    count += 1
    _require(count, depth, node)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag not in _KEYS:
                got = key.value if isinstance(key.value, str) else f"a {key.id}"
                raise _error(f"must have strings as keys, got {got[:80]}", key)
            count = _count(value, count, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            count = _count(value, count, depth + 1)
    elif node.value.count("${") > MOST_INSIDE:
        raise _error(f"must have at most {MOST_INSIDE} interpolations in a string", node)
    return count


def _require(count: int, depth: int, where: Any) -> None:
    if count > MOST:
        raise _error(f"must have at most {MOST} values, including those of aliases", where)
    if depth > DEEPEST:
        raise _error(f"must have at most {DEEPEST} levels of nested lists and mappings", where)


def _error(rule: str, where: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=rule, problem_mark=where.start_mark)


def message_of(error: yaml.YAMLError) -> str:
    """The error and its position in the file, in one line."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    mark = error.problem_mark or error.context_mark
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    return " ".join(f"{error.problem or error.context}{place}".split())


def begin() -> None:
    """Start to count the results of interpolations, for a new config."""
    global _resolved
    _resolved = 0


def end() -> None:
    """Stop counting: the config is resolved, and later interpolations are those of this program."""
    global _resolved
    _resolved = None


def resolve_parse_tree(self: Container, *arguments: Any, **named: Any) -> Any:
    """OmegaConf's function, with a limit on texts and lists that grow by many references to one another."""
    global _resolved
    value = _resolve(self, *arguments, **named)
    if _resolved is None:
        return value
    _resolved += 1
    if isinstance(value, Container):
        _resolved += size(value)
    else:
        content = value._value() if hasattr(value, "_value") else value
        _resolved += len(content) // 64 if isinstance(content, str) else 0
    if _resolved > MOST_RESOLVED:
        rule = f"must give at most {MOST_RESOLVED} values or strings of 64 characters"
        raise InterpolationResolutionError(f"the interpolations of a config {rule}")
    return value


def size(config: Container) -> int:
    """Number of values of a config before interpolation."""
    return _size(OmegaConf.to_container(config, resolve=False))


def _size(value: Any) -> int:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, entries))
