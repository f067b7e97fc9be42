"""Configuration as layers of plain tables, validated strictly into frozen objects. Knows no other room of the
package.
"""

from __future__ import annotations

from groupwise.config.base import Config
from groupwise.config.defaults import fill_kinds, words_as_kinds
from groupwise.config.difference import difference, flatten
from groupwise.config.entry_points import installed_names, load_installed
from groupwise.config.errors import ConfigError, Problem, keys_under, nearest
from groupwise.config.from_path import CalledFromPath, FromPath, PieceError, PieceFromPath, same_kind
from groupwise.config.import_path import ImportPath, InModule, Named, import_paths
from groupwise.config.json_lines import read_json_lines
from groupwise.config.layers import merge, states
from groupwise.config.objects import held_object, holding, is_object, object_path
from groupwise.config.open_kinds import OpenKinds
from groupwise.config.overrides import parse_overrides, parse_value
from groupwise.config.plain import check_plain, why_unreadable
from groupwise.config.schema import attribute_docs, json_schema
from groupwise.config.toml import read_json, read_toml
from groupwise.config.user_module import may_run, raised_at, require_open, restrict_code, user_module, why_failed
from groupwise.config.user_object import call_user, check_arguments, check_class, user_callable, user_class, user_object
from groupwise.config.validation import validate

__all__ = [
    "CalledFromPath",
    "Config",
    "ConfigError",
    "FromPath",
    "ImportPath",
    "InModule",
    "Named",
    "OpenKinds",
    "PieceError",
    "PieceFromPath",
    "Problem",
    "attribute_docs",
    "call_user",
    "check_arguments",
    "check_class",
    "check_plain",
    "difference",
    "fill_kinds",
    "flatten",
    "held_object",
    "holding",
    "import_paths",
    "installed_names",
    "is_object",
    "json_schema",
    "keys_under",
    "load_installed",
    "may_run",
    "merge",
    "nearest",
    "object_path",
    "parse_overrides",
    "parse_value",
    "raised_at",
    "read_json",
    "read_json_lines",
    "read_toml",
    "require_open",
    "restrict_code",
    "same_kind",
    "states",
    "user_callable",
    "user_class",
    "user_module",
    "user_object",
    "validate",
    "why_failed",
    "why_unreadable",
    "words_as_kinds",
]
