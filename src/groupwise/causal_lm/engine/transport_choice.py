"""The choice of the weights' way to the servers."""

from __future__ import annotations

from typing import Any

from groupwise.causal_lm.config import SyncFromPath, VllmEngine
from groupwise.causal_lm.engine.transport import FolderTransport, LoraTransport, Transport
from groupwise.causal_lm.engine.user_transport import UserTransport
from groupwise.config import ConfigError


def open_transport(config: VllmEngine, model: Any, tokenizer: Any) -> Transport | None:
    """Returns the transport that a configuration names; `None` where the servers are not sent weights.

    Raises:
        ConfigError: `lora` without an adapter, or a user's class that cannot be made.
    """
    sync, has_adapter = config.sync, hasattr(model, "peft_config")
    if isinstance(sync, SyncFromPath):
        return UserTransport(sync, model, tokenizer, config.folder, config.timeout_seconds)
    if sync == "lora" and not has_adapter:
        raise ConfigError(
            'domain.engine.sync = "lora": the run trains whole weights and has no adapter; write sync = "folder", or'
            " domain.model.lora.r = 16"
        )
    if sync == "none":
        return None
    kind = LoraTransport if sync == "lora" or (sync == "auto" and has_adapter) else FolderTransport
    return kind(model, tokenizer, config.folder)
