"""The gRPC stubs are those of the .proto file, which keeps the rules of its linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from lab.stubs import PACKAGE, ROOT, generate
from wire.proto import control_pb2 as pb

BUF = Path(sys.executable).parent / "buf"


def test_the_stubs_are_up_to_date(tmp_path: Path) -> None:
    """`make proto` writes them."""
    generate(tmp_path)
    made = {path.name: path.read_text() for path in (tmp_path / PACKAGE).iterdir()}
    assert len(made) == 4
    assert made == {name: (ROOT / PACKAGE / name).read_text() for name in made}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUF, "lint", folder], capture_output=True, text=True, timeout=60, check=False)


def test_the_proto_file_is_linted() -> None:
    ended = lint(ROOT / PACKAGE)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_linter_would_find_something(tmp_path: Path) -> None:
    folder = tmp_path / "sco/compute/v1"
    folder.mkdir(parents=True)
    (tmp_path / "buf.yaml").write_text((ROOT / PACKAGE / "buf.yaml").read_text())
    text = (ROOT / PACKAGE / "sco/compute/v1/control.proto").read_text()
    (folder / "control.proto").write_text(text.replace("string pool_id = 2;", "string PoolId = 2;"))
    assert "PoolId" in lint(tmp_path).stdout


def test_money_is_decimal_text_beside_its_currency() -> None:
    assert {field.name: field.type for field in pb.Money.DESCRIPTOR.fields} == {
        "amount": FieldDescriptor.TYPE_STRING,
        "currency": FieldDescriptor.TYPE_STRING,
    }
    inexact = {FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE}
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        assert inexact.isdisjoint(field.type for field in message.fields), message.name


def test_no_enum_has_a_meaning_for_what_was_left_out() -> None:
    for enum in pb.DESCRIPTOR.enum_types_by_name.values():
        assert enum.values_by_number[0].name.endswith("_UNSPECIFIED")
