"""Configuration as layers of plain tables, validated strictly into frozen objects. Knows no other room of the
package.
"""

# ruff: noqa: F401
from groupwise.config.base import Config as Config
from groupwise.config.errors import ConfigError as ConfigError
from groupwise.config.errors import Problem, keys_under, nearest
from groupwise.config.files import read_json, read_json_lines, read_rows, read_toml
from groupwise.config.from_path import (
    CalledFromPath,
    FromPath,
    PieceError,
    PieceFromPath,
    call_user,
    check_arguments,
    check_class,
    same_kind,
    user_callable,
    user_class,
    user_object,
)
from groupwise.config.import_path import (
    ImportPath,
    InModule,
    Named,
    held_object,
    holding,
    import_paths,
    is_object,
    may_run,
    object_path,
    raised_at,
    require_open,
    restrict_code,
    user_module,
    why_failed,
)
from groupwise.config.open_kinds import OpenKinds, installed_names, load_installed
from groupwise.config.shape import attribute_docs, json_schema, merge
from groupwise.config.tables import check_plain, difference, flatten, parse_overrides, parse_value
from groupwise.config.validation import validate
