"""Configuration as layers of plain tables, validated strictly into frozen objects. Knows no room of the house."""

from __future__ import annotations

from groupwise.config.base import Config
from groupwise.config.defaults import fill_kinds
from groupwise.config.difference import difference, flatten
from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.import_path import ImportPath, InModule, Named, import_paths
from groupwise.config.json_lines import read_json_lines
from groupwise.config.layers import merge
from groupwise.config.open_kinds import OpenKinds
from groupwise.config.overrides import parse_overrides, parse_value
from groupwise.config.plain import check_plain, why_unreadable
from groupwise.config.schema import json_schema
from groupwise.config.toml import read_json, read_toml
from groupwise.config.user_module import may_run, only, raised_at, require_open, user_class, user_module
from groupwise.config.validation import validate

__all__ = [
    "Config",
    "ConfigError",
    "ImportPath",
    "InModule",
    "Named",
    "OpenKinds",
    "Problem",
    "check_plain",
    "difference",
    "fill_kinds",
    "flatten",
    "import_paths",
    "json_schema",
    "may_run",
    "merge",
    "nearest",
    "only",
    "parse_overrides",
    "parse_value",
    "raised_at",
    "read_json",
    "read_json_lines",
    "read_toml",
    "require_open",
    "user_class",
    "user_module",
    "validate",
    "why_unreadable",
]
