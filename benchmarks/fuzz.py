"""Feed mutated files to the readers of data without a published checksum, and count what happens.

    python benchmarks/fuzz.py [--mutations 10000] [--formats idx svmlight ...] [--memory 2000] [--seed 0]

A file may be read or refused with a DataError. Any other exception, a command that runs, a file that is written, a case
that takes more than 20 seconds, or memory beyond the limit is a failure: it is printed with the seed that repeats it,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "experiments"))
from mutations import TARGETS, Trial

SLOWEST = 20  # seconds that a case may take


def ring(*_):
    raise TimeoutError(f"a case took more than {SLOWEST} seconds")


def fuzz(kind, seeds):
    """Outcomes by kind, the slowest case in seconds, and the failures with their seeds."""
    outcomes, slowest, failures = collections.Counter(), 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(kind, Path(folder))
        for seed in track(seeds, kind):
            start = time.perf_counter()
            signal.alarm(SLOWEST)
            try:
                outcomes[trial.run(seed)] += 1
            except Exception as error:
                failures.append((seed, f"{type(error).__name__}: {error}"[:200]))
            signal.alarm(0)
            slowest = max(slowest, time.perf_counter() - start)
    return outcomes, slowest, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=10_000, help="of each format")
    parser.add_argument("--formats", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="FORMAT")
    parser.add_argument("--memory", type=int, default=2000, help="MB that may be taken in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first mutation")
    options = parser.parse_args()
    if options.mutations < 1 or options.seed < 0:
        parser.error("--mutations takes a number from 1 on, and --seed one from 0 on")
    for kind in options.formats:
        with tempfile.TemporaryDirectory() as folder:  # what is imported and compiled once counts before the limit
            Trial(kind, Path(folder)).run(0)
    resource.setrlimit(resource.RLIMIT_AS, (in_use() + options.memory * 1_000_000,) * 2)
    signal.signal(signal.SIGALRM, ring)
    table = Table("format", "mutations", "read", "refused", "failures", "slowest (s)", "peak memory (MB)")
    failed = []
    for kind in options.formats:
        outcomes, slowest, failures = fuzz(kind, range(options.seed, options.seed + options.mutations))
        counts = (options.mutations, outcomes["read"], outcomes["refused"], len(failures))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        table.add_row(kind, *map(str, counts), f"{slowest:.2f}", f"{peak:.0f}")
        failed += [(kind, *failure) for failure in failures]
    Console().print(table)
    for kind, seed, words in failed[:50]:
        print(f"--formats {kind!r} --seed {seed} --mutations 1: {words}")
    sys.exit(bool(failed))


def in_use():
    """Bytes of address space that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
