"""Every number of the estimate in docs/scaling.md: formulas, and the rates in docs/scaling_rates.json.

    python docs/scaling.py            renew the page
    python docs/scaling.py --check    leave it alone; show what differs, and fail if anything does

``benchmarks/scaling.py --rates`` measures the rates. The name of a block is that of a function of ``scaling_blocks``;
see ``pages`` for the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import scaling_blocks
from pages import parser_for, renew

PAGE = Path(__file__).with_name("scaling.md")
BLOCKS = {name: getattr(scaling_blocks, name) for name in scaling_blocks.__all__}


def main() -> int:
    options = parser_for(PAGE).parse_args()
    return renew(options.page, BLOCKS, options.check)


if __name__ == "__main__":
    sys.exit(main())
