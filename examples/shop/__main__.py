"""``python -m examples.shop``: the demo."""

import argparse
import sys
from pathlib import Path

from examples.shop.demo import PORT, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description="A shop, live.")
    parser.add_argument("--seconds", type=float, help="end by itself so long after all charts are there")
    parser.add_argument("--port", type=int, default=PORT, help="of the dashboard; 0 for a free one")
    parser.add_argument("--data", type=Path, help="keep everything here; else it goes with the demo")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic")
    parser.add_argument("--rate", type=float, default=1.0, help="how much traffic; 1 is a quiet shop")
    chosen = parser.parse_args()
    return run(chosen.seconds, chosen.port, chosen.data, chosen.seed, chosen.rate)


if __name__ == "__main__":
    sys.exit(main())
