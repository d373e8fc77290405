from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from evodrop.experiments.data import Images
from evodrop.experiments.training.pixels import as_input, prepare


def colours(n=6, height=5, width=7):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n, 3, height, width)).astype(np.uint8)
    return Images("colours", x, np.arange(n) % 2, x[:2] // 2, np.array([1, 0]), 2)


def test_crop_and_mean_by_their_definition():
    images = colours()
    pixels = prepare(images, size=4, scale=0.5)
    crop = images.train_x[:, :, 0:4, 1:5].astype(np.float64)  # of 5 rows the first is nearer to the centre
    mean = crop.mean(axis=0)
    np.testing.assert_allclose(as_input(pixels.train_x), (crop - mean) / 2, atol=1e-4)
    test = images.test_x[:, :, 0:4, 1:5].astype(np.float64)
    np.testing.assert_allclose(as_input(pixels.test_x), (test - mean) / 2, atol=1e-4)
    assert pixels.train_y.tolist() == [0, 1, 0, 1, 0, 1]


def test_float32_with_the_channels_last():
    pixels = prepare(colours())
    assert pixels.train_x.dtype == torch.float32
    assert as_input(pixels.train_x).shape == (6, 3, 5, 7)
    assert as_input(pixels.train_x).is_contiguous(memory_format=torch.channels_last)


def test_the_fingerprint_tells_data_and_feeding_apart():
    images = colours()
    changed = images.train_x.copy()
    changed[5, 2, 4, 6] ^= 1
    others = [
        prepare(images),
        prepare(images, 5),
        prepare(images, 4),
        prepare(images, scale=2.0),
        prepare(images._replace(train_x=changed)),
        prepare(images._replace(test_y=1 - images.test_y)),
        prepare(images._replace(classes=3)),
    ]
    assert len({pixels.fingerprint for pixels in others}) == len(others)
    assert prepare(images._replace(name="other")).fingerprint == prepare(images).fingerprint


def test_the_fingerprint_stays_as_it_was_and_names_data_that_were_not_published():
    x, y = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5), np.array([0, 1])
    images = Images("fixed", x, y, x[:1], y[:1], 2)
    assert prepare(images).fingerprint == "8666d1e653df0703"
    assert prepare(images._replace(origin="made again")).fingerprint == "8666d1e653df0703, made again"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_x": np.zeros((6, 3, 5, 7))}, "colours: train_x is float64 of shape"),
        ({"test_x": np.zeros((2, 5, 7), np.uint8)}, r"test_x is uint8 of shape \(2, 5, 7\), but images are"),
        ({"train_y": np.zeros(5, np.int64)}, r"train_y has shape \(5,\), but 6 images need a label each"),
        ({"test_y": np.array([0, 2])}, "labels in test_y go from 0 to 2, but there are 2 classes"),
        ({"test_x": np.zeros((0, 3, 5, 7), np.uint8), "test_y": np.zeros(0, np.int64)}, "but 0 images"),
    ],
)
def test_bad_images_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        prepare(colours()._replace(**change))


@pytest.mark.parametrize("size", [0, 6, -1])
def test_a_crop_has_to_fit(size):
    with pytest.raises(ValueError, match=f"a crop of {size} x {size} does not fit in images of 5 x 7"):
        prepare(colours(), size)


def test_the_images_themselves_stay_as_they_are():
    images = tiny.images()
    before = images.train_x.copy()
    prepare(images, 4)
    assert np.array_equal(images.train_x, before)
