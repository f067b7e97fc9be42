"""Everything a bit-exact resume needs, in safetensors and JSON, written whole or not at all."""

from groupwise.checkpoint.atomic import StorageError, clear_torn, is_empty, new_folder, remove_folder, torn, write_file
from groupwise.checkpoint.cache import Cache, cache_folder, code_version, content_key
from groupwise.checkpoint.code import imported_code, named_code
from groupwise.checkpoint.config import CheckpointConfig
from groupwise.checkpoint.store import Checkpoint, CheckpointStore, natural
from groupwise.checkpoint.tree import load_tree, save_tree

__all__ = [
    "Cache",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointStore",
    "StorageError",
    "cache_folder",
    "clear_torn",
    "code_version",
    "content_key",
    "imported_code",
    "is_empty",
    "load_tree",
    "named_code",
    "natural",
    "new_folder",
    "remove_folder",
    "save_tree",
    "torn",
    "write_file",
]
