"""YAML as settings are written in it: strict, so that a slip is an error and not a value."""

import re
import typing
from typing import Any

import yaml

from lostcities_jax.errors import UserError, shown


def parse_yaml(content: bytes) -> Any:
    """Plain values of a UTF-8 text.

    Raises:
      UserError: for text that is no YAML, or has duplicate keys or aliases.
    """
    try:
        return yaml.load(content.decode("utf-8"), _Loader)
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise UserError(f"not a YAML file of settings{where}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"not a YAML file of settings: {error}") from error
    except RecursionError as error:
        raise UserError("not a YAML file of settings: nested too deeply") from error


def dump_yaml(data: Any) -> str:
    """Text of plain values that `parse_yaml` reads back as equal values."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False)


def parse_scalar(text: str) -> int | float | bool | str:
    """The number or truth value that YAML reads in `text`, else the text itself."""
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    try:
        value = loader.construct_object(yaml.ScalarNode(tag, text))
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars, and neither duplicate keys nor aliases.

    YAML 1.1 reads 1e-3 as text, 010 as 8, 1:30 as 90 and `no` as false.
    """

    yaml_implicit_resolvers: typing.ClassVar = {}

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (LookupError, AttributeError, ArithmeticError) as error:
            # PyYAML trusts a tag that is written out, such as !!bool, to fit its text.
            tag = node.tag.rpartition(":")[2]
            problem = f"{shown(node.value)} is no {tag}"
            raise yaml.MarkedYAMLError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                problem = f"key {shown(name)} appears twice"
                raise yaml.MarkedYAMLError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `_Loader` or a YAML 1.1 reader would take for something else."""


for _tag, _pattern, _first in (
    ("null", r"(?:~|null|)$", ["~", "n", ""]),
    ("bool", r"(?:true|false)$", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)$", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$|[-+]?[0-9]+[eE][-+]?[0-9]+$"
        r"|[-+]?\.inf$|\.nan$",
        list("-+.0123456789"),
    ),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)
