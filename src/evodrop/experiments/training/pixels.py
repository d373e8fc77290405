"""Images become what a network eats: cropped, centred and float32, once and for all."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evodrop.experiments.data import Images

__all__ = ["Pixels", "as_input", "prepare"]


class Pixels(NamedTuple):
    """Float32 images, (n, height, width, channels): convolutions are fastest with the channels last.

    ``fingerprint`` is a digest of the images and of how they were fed; records made from other pixels have another.
    Where the images are not the published ones, it says what they are besides.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    fingerprint: str


def as_input(x: Tensor) -> Tensor:
    """(n, height, width, channels) seen as torch's (n, channels, height, width); nothing is copied."""
    return x.permute(0, 3, 1, 2)


def prepare(images: Images, size: int | None = None, scale: float = 1.0) -> Pixels:
    """Crop the centre, take off the mean image of the training data and multiply by ``scale``.

    The paper's networks, with their weights from N(0, 0.01), learn from raw pixels of 0 to 255 less the mean image, as
    cuda-convnet fed them: scale 1.

    Args:
        images: pixels of uint8.
        size: of the crop, height and width; None takes the whole image.
        scale: factor.

    Examples:
        >>> x = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
        >>> pixels = prepare(Images("tiny", x, np.array([0, 1]), x[:1], np.array([0]), 2), size=2)
        >>> pixels.train_x.shape, float(pixels.train_x[0, 0, 0, 0])
        (torch.Size([2, 2, 2, 1]), -8.0)
    """
    _check(images)
    train, test = _crop(images.train_x, size), _crop(images.test_x, size)
    mean = train.mean(0, dtype=np.float64).astype(np.float32)
    labels = (torch.from_numpy(np.asarray(y, np.int64)) for y in (images.train_y, images.test_y))
    train_y, test_y = labels
    return Pixels(
        _feed(train, mean, scale), train_y, _feed(test, mean, scale), test_y, _fingerprint(images, size, scale)
    )


def _check(images: Images) -> None:
    for part in ("train", "test"):
        x, y = getattr(images, f"{part}_x"), getattr(images, f"{part}_y")
        if x.dtype != np.uint8 or x.ndim != 4:
            raise ValueError(
                f"{images.name}: {part}_x is {x.dtype} of shape {x.shape}, but images are uint8 of shape "
                "(n, channels, height, width)"
            )
        if len(x) == 0 or y.shape != (len(x),):
            raise ValueError(f"{images.name}: {part}_y has shape {y.shape}, but {len(x)} images need a label each")
        if y.min() < 0 or y.max() >= images.classes:
            raise ValueError(
                f"{images.name}: labels in {part}_y go from {y.min()} to {y.max()}, but there are "
                f"{images.classes} classes, counted from 0"
            )


def _crop(x: npt.NDArray[np.uint8], size: int | None) -> npt.NDArray[np.uint8]:
    height, width = x.shape[2:]
    if size is None:
        return x
    if not 1 <= size <= min(height, width):
        raise ValueError(f"a crop of {size} x {size} does not fit in images of {height} x {width}")
    top, left = (height - size) // 2, (width - size) // 2
    return x[:, :, top : top + size, left : left + size]


def _feed(x: npt.NDArray[np.uint8], mean: npt.NDArray[np.float32], scale: float) -> Tensor:
    fed = np.ascontiguousarray(x.transpose(0, 2, 3, 1), np.float32)
    fed -= mean.transpose(1, 2, 0)
    fed *= np.float32(scale)
    return torch.from_numpy(fed)


def _fingerprint(images: Images, size: int | None, scale: float) -> str:
    digest = hashlib.sha256(repr((size, scale, images.classes)).encode())
    for array in (images.train_x, images.train_y, images.test_x, images.test_y):
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16] + (f", {images.origin}" if images.origin else "")
