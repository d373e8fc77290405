"""The state of a run on disk. It is checked before it is trusted, and no code in it is ever run.

A digest of the contents goes first: torch's own format takes a flipped bit in a weight for a weight. The rest is read
by torch with ``weights_only=True``, so a file that somebody else made can hold numbers, not instructions.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch

from evodrop.durable import write_whole

__all__ = ["CheckpointError", "load_checkpoint", "save_checkpoint"]

DIGEST_BYTES = hashlib.sha256().digest_size


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a state made of tensors, numbers, strings, lists and dicts. The file is the old one or the new one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    contents = buffer.getvalue()
    write_whole(path, hashlib.sha256(contents).digest() + contents)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """The state that was saved, None if there is none, or a :class:`CheckpointError` that says what is wrong."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    digest, contents = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    if hashlib.sha256(contents).digest() != digest:
        raise CheckpointError(f"{path} is damaged: its contents do not fit its digest")
    return _loaded(path, contents)


def _loaded(path: Path, contents: bytes) -> dict[str, Any]:
    try:
        with warnings.catch_warnings(action="ignore"):  # torch may warn of what it then refuses
            state = torch.load(io.BytesIO(contents), map_location="cpu", weights_only=True)
    except Exception as error:  # torch documents no list of what a broken file may raise
        raise CheckpointError(f"{path} is no checkpoint of ours: {type(error).__name__}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, but a checkpoint is a dict")
    return state
