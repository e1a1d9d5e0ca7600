"""Makes the gRPC stubs of `wire/proto` from its .proto file: `python -m lab.stubs [FOLDER]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What imports see, and where it lies: the folder is that of the protobuf package, the modules are ours.
PACKAGE = "wire/proto"
SOURCE = "wire/proto/sco/compute/v1"


def generate(folder: Path) -> None:
    """Write the stubs below `folder`, as `wire/proto/control_pb2.py` and the like."""
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python")]
    outputs += [f"--{kind}_out=quiet:{folder}" for kind in ("mypy", "mypy_grpc")]
    plugins = [
        f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"
        for name in ("mypy", "mypy_grpc")
    ]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PACKAGE}={SOURCE}", *outputs, *plugins]
    subprocess.run([*command, f"{SOURCE}/control.proto"], cwd=ROOT, check=True)


if __name__ == "__main__":
    generate(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT)
