"""Checkpoints: everything that a bit-exact resume needs, in safetensors and JSON, written completely or not at all."""

# ruff: noqa: F401
from groupwise.checkpoint.atomic import (
    StorageError,
    clear_unfinished_writes,
    is_empty,
    new_folder,
    remove_folder,
    unfinished_writes,
    write_file,
)
from groupwise.checkpoint.config import CheckpointConfig
from groupwise.checkpoint.store import Checkpoint, CheckpointStore, natural, write_record
from groupwise.checkpoint.tree import Cache, content_key, load_tree, save_tree
from groupwise.config.files import cache_folder
