"""Perceptual similarity (LPIPS) as a reward: distances between the activations of a network trained to
classify images.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, final

from groupwise.reward.base import Reward, RewardError, RewardFunction, Value
from groupwise.reward.completions import Text
from groupwise.reward.image import as_array

Network = Literal["alex", "vgg", "squeeze"]

_FILES: dict[Network, tuple[str, int]] = {
    "alex": ("alexnet-owt-7be5be79.pth", 233),
    "vgg": ("vgg16-397923af.pth", 528),
    "squeeze": ("squeezenet1_1-b8a52dc0.pth", 5),
}
"""File names of each network's weights in torchvision, and their size in MB."""

_INDEX = " --index-url https://download.pytorch.org/whl/cpu (beside a torch without CUDA; PyPI's is built for CUDA)"


@final
class Lpips(Reward):
    """`R = -LPIPS(image, target)`, at most 0.

    Computed by torchmetrics, which needs torchvision for the network and the network's ImageNet weights in torch's hub
    folder; neither comes with Groupwise. The linear layers on top are inside torchmetrics. Networks halve an image
    several times: sides below 32 pixels are too small for them.

    Source: Zhang et al. 2018, The Unreasonable Effectiveness of Deep Features as a Perceptual Metric, arXiv 1801.03924.
    """

    kind: Literal["lpips"] = "lpips"
    network: Network = "alex"
    column: str = "clean"
    """The data column with the target image."""

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    def open(self) -> RewardFunction:
        _import_torchvision(self.network)
        measure = _measure(self.network)

        def score(prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[Value]:
            import torch

            def tensor(image: Any) -> torch.Tensor:
                return torch.from_numpy(as_array(image).copy()).permute(2, 0, 1)[None].float() / 255

            with torch.no_grad():
                return [
                    None if target is None else -float(measure(tensor(image), tensor(target)))
                    for image, target in zip(completions, columns[self.column], strict=True)
                ]

        return score

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts=prompts, completions=completions, **columns)


def _import_torchvision(network: Network) -> None:
    """Imports torchvision; raises an error where it is missing or was built for another version of torch."""
    file, size = _FILES[network]
    try:
        import_module("torchvision")
    except (ImportError, OSError, RuntimeError) as error:
        raise RewardError(
            f'kind = "lpips" needs a torchvision that fits the installed torch ({type(error).__name__}: {error}), and'
            f" the weights of network = {network!r} ({file}, {size} MB, fetched at first use into"
            f" {_weights(network).parent}); write pip install --force-reinstall --no-deps torchvision{_INDEX}, or use"
            ' kind = "ssim"'
        ) from error


def _weights(network: Network) -> Path:
    """Returns the path at which torchvision looks for a network's weights before it downloads them."""
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / _FILES[network][0]


def _measure(network: Network) -> Any:
    from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

    path = _weights(network)
    try:
        return LearnedPerceptualImagePatchSimilarity(net_type=network, normalize=True)
    except Exception as error:
        # A missing network, a truncated file and a file with other contents raise different exceptions.
        why = f"{type(error).__name__}: {error}"
        raise RewardError(
            f'kind = "lpips": the weights {path} could not be read or fetched ({why}); put the file there, or use kind'
            ' = "ssim"'
        ) from error
