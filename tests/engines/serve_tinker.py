"""A real server of the Tinker API on loopback: SkyRL with its JAX backend on a CPU.

`serve_tinker.py MODEL PORT FOLDER`.

It runs in the environment that `make engines` builds, and imports nothing of Groupwise. The server starts its engine by
`uv run`, which would install packages; here the same interpreter runs it.
"""

import runpy
import sys
import typing
from pathlib import Path

import typing_extensions

# Python 3.11: pydantic refuses `typing.TypedDict`, which skyrl 0.3 uses.
typing.TypedDict = typing_extensions.TypedDict  # pyright: ignore

if sys.argv[1] == "engine":
    sys.argv = ["engine", *sys.argv[2:]]
    runpy.run_module("skyrl.tinker.engine", run_name="__main__")
    sys.exit()

import uvicorn  # pyright: ignore  # noqa: E402
from skyrl.tinker import api  # pyright: ignore  # noqa: E402
from skyrl.tinker.config import EngineConfig, config_to_argv  # pyright: ignore  # noqa: E402

model, port, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).resolve()
folder.mkdir(parents=True, exist_ok=True)
api._build_uv_run_cmd_engine = lambda parent, config: [sys.executable, __file__, "engine", *config_to_argv(config)]
api.app.state.engine_config = EngineConfig(
    base_model=model,
    backend="jax",
    # Batches of one size: this backend compiles a program for every number of sequences that happen to come together.
    backend_config={
        "max_lora_adapters": 4,
        "max_lora_rank": 16,
        "sample_max_num_sequences": 64,
        "train_micro_batch_size": 64,
    },
    checkpoints_base=str(folder / "checkpoints"),
    database_url=f"sqlite:///{folder / 'tinker.db'}",
)
uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")
