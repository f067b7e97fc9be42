"""The network to train: one with fresh weights, or one from a folder; whole or through an adapter. Imports no torch."""

from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError, read_json, validate
from groupwise.config.errors import Seed, Width
from groupwise_images.restoration.network import NetworkConfig

NETWORK = "network.json"
WEIGHTS = "model.safetensors"


@final
class LoraConfig(Config):
    """An adapter of peft on convolutions and linear maps; only it is trained.

    Args:
        r: rank of the update.
        alpha: the adapter's output is scaled by `alpha / r`.
        target_modules: a regular expression for whole names of layers, of which those that can have an adapter get one;
            or a list of endings of names, as peft matches them. Unset takes every convolution and linear map of
            torch.nn but those of several groups or with a computed weight (`weight_norm`, `spectral_norm`), into which
            peft cannot merge, and the last one of `MultiheadAttention`, which reads its weight without calling it.

    Source: Hu et al. 2021, arXiv 2106.09685.
    """

    r: Width = 8
    alpha: Width = 16
    target_modules: str | tuple[str, ...] | None = None


@final
class Network(Config):
    """An architecture with fresh weights, or with those of a checkpoint.

    Args:
        network: the architecture.
        checkpoint: weights as safetensors, or a `.pt` file of tensors alone; a folder takes its newest checkpoint in
            natural order. A training script's file, with the weights under `state_dict`, `model`, `params` or the like
            next to its optimiser, is read too; so are names under a common beginning (`module.`, `model.`, ...) that
            the network's own lack, or the other way about.
        strict: every name must fit. False goes on, for a network that grew since: it lists the weights that stay as
            initialised and those that are left out. A weight of another shape is an error all the same, and so is a
            file of which no name fits.
        lora: an adapter; it is put in place before the checkpoint is read, so that its weights are read too.
        seed: the seed of fresh weights; unset takes the run's.
        dtype: the dtype of the weights.
    """

    kind: Literal["network"] = "network"
    network: NetworkConfig
    checkpoint: str | None = None
    strict: bool = True
    lora: LoraConfig | None = None
    seed: Seed | None = None
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"


@final
class Pretrained(Config):
    """A folder that Groupwise wrote: `network.json` holds the architecture, `model.safetensors` holds the weights.

    Args:
        lora: an adapter to train on top.
    """

    kind: Literal["pretrained"] = "pretrained"
    path: Annotated[str, Field(min_length=1)]
    lora: LoraConfig | None = None

    def configurations_beside(self) -> dict[Path, Network]:
        """Returns the file of the folder that is a configuration itself, and may name code."""
        file = Path(self.path) / NETWORK
        return {file: self.network()} if file.is_file() else {}

    def network(self) -> Network:
        """Reads the architecture and its weights from the folder.

        Raises:
            ConfigError: a folder without `network.json` or weights.
        """
        folder = Path(self.path)
        for name in (NETWORK, WEIGHTS):
            if not (folder / name).is_file():
                raise ConfigError(
                    f"model.path = {self.path!r}: no {name} in it; give a folder that Groupwise wrote (RUN/model), or"
                    " write model.kind = 'network' and model.checkpoint"
                )
        tree = read_json(folder / NETWORK)
        return validate(
            Network, {**tree, "checkpoint": str(folder / WEIGHTS), "lora": None}, str(folder / NETWORK)
        ).model_copy(update={"lora": self.lora})


ModelConfig = Annotated[Network | Pretrained, Field(discriminator="kind")]
"""Any network, chosen by `kind`."""
