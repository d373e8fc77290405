"""The kernels compile for GPUs, which no interpreter shows and which needs no GPU: Triton brings the assemblers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed")
CODE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from evodrop.nn import gpu, tiles

for case in sys.argv[1:]:
    backend, arch, x, count, scale, d = case.split()
    target = GPUTarget(backend, int(arch) if arch.isdigit() else arch, 64 if backend == "hip" else 32)
    rows, units = gpu._tile(int(d))
    table = {"table": "*i64", "seed": "*i64", "k": "*i64", "passes": "*u8"}
    arrays = {"x": x, "counts": count, "scale": scale, "products": x}
    sizes = {"ROWS": rows, "UNITS": units}
    draws = {"BITS": gpu.table_bits(int(d)), "DRAWS": max(1, gpu.DRAWS // rows), "MULTIPLY": True}
    for kernel, pointers, constants in ((tiles.draw_tile, table, sizes | draws), (tiles.multiply_tile, {}, sizes)):
        types = pointers | {name: f"*{kind}" for name, kind in arrays.items()} | {"size": "i32", "d": "i32"}
        types |= dict.fromkeys(constants, "constexpr")
        signature = {name: types[name] for name in kernel.arg_names}
        made = triton.compile(ASTSource(kernel, signature=signature, constexprs=constants), target=target)
        binary = max(len(made.asm.get(kind, b"")) for kind in ("cubin", "hsaco"))
        print(kernel.__name__, binary, made.metadata.shared)
"""
CASES = [
    "cuda 80 fp32 i16 fp32 3000",
    "cuda 90 bf16 u8 fp32 5",
    "cuda 100 fp64 i32 fp64 1",
    "hip gfx942 fp16 u8 fp32 64",
]


def test_the_kernels_compile_to_machine_code(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-c", CODE, *CASES],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    kernels = [line.split() for line in run.stdout.splitlines()]
    assert [name for name, *_ in kernels] == ["draw_tile", "multiply_tile"] * len(CASES)
    assert all(int(binary) > 1000 for _, binary, _ in kernels)
    assert all(int(shared) <= 48 * 1024 for *_, shared in kernels)  # what every GPU grants a program
