"""Counts what a step of a restoration network costs, on images as the experiment cuts them."""

from __future__ import annotations

from typing import Any

import torch

from groupwise.domain.costs import ImageCosts
from groupwise.domain.pass_sizes import num_bytes, num_weights, pass_cost, timed
from groupwise.streams import Streams
from groupwise_images.restoration.config import RestorationConfig
from groupwise_images.restoration.policy import Gates


def image_costs(config: RestorationConfig, *, streams: Streams, checkpointing: bool) -> ImageCosts:
    """Counts the costs of a step; the network is made, and its images are read.

    Args:
        streams: of the run; fresh weights are drawn from it.
        checkpointing: whether activations are computed again.
    """
    from groupwise_images.restoration.domain import RestorationDomain

    domain = RestorationDomain(config.model_copy(update={"rewards": {}}), streams=streams)
    try:
        network: Any = domain.module.eval()
        if checkpointing and hasattr(network, "enable_gradient_checkpointing"):
            network.enable_gradient_checkpointing()
        image = domain.degraded_example()
        gates = isinstance(config.policy, Gates)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]

        def restore(rows: int) -> None:
            with torch.no_grad():
                network(image.expand(rows, -1, -1, -1))

        def differentiate(rows: int) -> None:
            images = image.expand(rows, -1, -1, -1)
            output = network.controls(images)[0] if gates else network(images)
            torch.autograd.grad(output.sum(), trained, allow_unused=True)

        channels, height, width = image.shape[1:]
        return ImageCosts(
            name=f"{type(network).__name__}, images of {height} x {width} pixels",
            parameters=num_weights(network),
            trained=num_weights(network, trained=True),
            weight_bytes=num_bytes(network),
            frozen_bytes=0.0,
            trained_bytes=num_bytes(network, trained=True),
            forward=timed(pass_cost(restore), restore),
            update=timed(pass_cost(differentiate), differentiate),
            decode=None,
            rows_of_model=1,
            sampled_a_prompt=1,
            sampled_a_member=int(gates),
            updated_a_prompt=1,
            updated_a_member=0,
            # What was drawn, its mean and what was given; pictures are bytes.
            member_bytes=image.element_size() * 3 * channels * height * width,
            stated_rows=None,
            is_counted=False,
        )
    finally:
        domain.close()
