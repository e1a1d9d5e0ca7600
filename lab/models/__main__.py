"""`python -m lab.models --port P --vram-gb N`: a model server as a process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from pydantic import SecretStr, ValidationError

from lab.models.memory import ModelSettings
from lab.models.server import RunningModels


def main() -> int:
    """Serve until SIGTERM or SIGINT; 2 when the start is refused."""
    options = _parser().parse_args()
    try:
        token = None if options.token_file is None else SecretStr(options.token_file.read_text().strip())
        settings = ModelSettings(
            port=options.port,
            vram_gb=options.vram_gb,
            seconds_per_gb=options.seconds_per_gb,
            failure_rate=options.failure_rate,
            seed=options.seed,
            token=token,
        )
        running = RunningModels(settings)
    except (ValidationError, OSError) as error:
        sys.stderr.write(f"lab.models: {error}\n")
        return 2
    sys.stdout.write(f"lab.models: {running.base_url}, {settings.vram_gb} GB\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(running.serve())
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = ModelSettings()
    parser = argparse.ArgumentParser(
        prog="python -m lab.models", description="Model server of the laboratory, on loopback."
    )
    parser.add_argument("--port", type=int, default=defaults.port, help="loopback port, 0 for any free one")
    parser.add_argument("--vram-gb", type=int, default=defaults.vram_gb, help="memory for models")
    parser.add_argument(
        "--seconds-per-gb", type=float, default=defaults.seconds_per_gb, help="how slowly models load"
    )
    parser.add_argument(
        "--failure-rate", type=float, default=defaults.failure_rate, help="share of loads that fail"
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="decides which loads fail")
    parser.add_argument("--token-file", type=Path, help="file with the token that requests must bring")
    return parser


if __name__ == "__main__":
    sys.exit(main())
