"""Beyond one process: whether results stay the same, and what it costs. One table of all that it must show.

* **exact**: what several gloo processes follow, learn and draw, against one process.
* **deep**: the cost of synchronised dropout in a step of the CIFAR-10 network, 1 and 2 processes.
* **linear**: DaskDropoutSGDClassifier on 1 and 2 workers: time, test error (``--data``), and workers that are killed.
* **gpu**: dropout layers on a GPU; without one, the same calls on the CPU.

Leave the machine alone meanwhile: a load above the number of processes makes the times mean nothing, and is printed.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from dropout import Row, claims_table, machine
from networks import write
from rich.console import Console

PARTS = ("exact", "deep", "linear", "gpu")


def parts_named(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    return names


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a look, small and with few rounds, in two or three minutes"
    )
    parser.add_argument("--only", type=parts_named, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--data", type=Path, help="folder with 20news: measures the test error too")
    parser.add_argument("--json", type=Path, default=Path("build/bench/scaling.json"), help="default: %(default)s")
    return parser.parse_args()


def main() -> None:
    asked, about, console = parsed(), machine(), Console(width=120, highlight=False)
    console.print(", ".join(f"{name} {value}" for name, value in about.items()))
    found: dict[str, Any] = {}
    claims: list[Row] = []
    for name in asked.only:
        own, claimed, shown = import_module(f"scaling_{name}").measure(asked)  # a part may need what others do not
        console.print(*shown)
        found[name] = own
        claims += claimed
    if claims:
        console.print(claims_table(claims, "1 thread a process"))
    write(asked.json, {"machine": about, "quick": asked.quick, "found": found, "claims": claims})


if __name__ == "__main__":
    main()
