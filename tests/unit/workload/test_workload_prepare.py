import json
import struct
from hashlib import sha256
from math import prod
from pathlib import Path

import numpy
import pytest

from rlmbench.workload import prepare
from rlmbench.workload.shapes import find_shape


def read_safetensors(path: Path) -> tuple[dict, bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def floats(data: bytes, dtype: str) -> numpy.ndarray:
    """Values of BF16 (the upper half of a float32) or F32 data."""
    if dtype == "F32":
        return numpy.frombuffer(data, "<f4")
    return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")


@pytest.mark.parametrize(("dtype", "size", "name"), [("bfloat16", 2, "BF16"), ("float32", 4, "F32")])
def test_tiny_is_written_with_every_parameter(tmp_path: Path, dtype: str, size: int, name: str) -> None:
    shape = find_shape("tiny")
    prepare.write_weights(tmp_path, [list(tensor) for tensor in shape.tensors()], dtype, seed=0)
    header, data = read_safetensors(tmp_path / "model.safetensors")
    assert header.pop("__metadata__") == {"format": "pt"}
    assert sum(prod(entry["shape"]) for entry in header.values()) == shape.parameters
    assert len(data) == shape.parameters * size
    end = 0
    for tensor in shape.tensors():
        entry = header[tensor.name]
        assert (entry["dtype"], entry["shape"], entry["data_offsets"][0]) == (name, list(tensor.dims), end)
        start, end = entry["data_offsets"]
        values = floats(data[start:end], name)
        if tensor.init != "normal":
            assert set(values) == {1.0 if tensor.init == "ones" else 0.0}
    embedding = floats(data[: 1024 * 128 * size], name)
    assert embedding.std() == pytest.approx(0.02, rel=0.01) and abs(embedding.mean()) < 2e-4


def test_weights_depend_on_the_seed_and_tensors_differ(tmp_path: Path) -> None:
    tensors = [["a", [64, 8], "normal"], ["b", [64, 8], "normal"]]
    written = []
    for number, seed in enumerate((0, 0, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare.write_weights(folder, tensors, "float32", seed)
        written.append(read_safetensors(folder / "model.safetensors")[1])
    assert written[0] == written[1] != written[2]
    assert written[0][: 64 * 8 * 4] != written[0][64 * 8 * 4 :]


def test_weights_are_the_same_on_every_machine() -> None:
    # numpy's PCG64, keyed by the first 16 bytes of sha256("0:w:0")
    key = int(sha256(b"0:w:0").hexdigest()[:32], 16)
    expected = numpy.random.Generator(numpy.random.PCG64(key)).standard_normal(4, dtype=numpy.float32) * numpy.float32(0.02)
    assert prepare.chunk_bytes((0, "w", 0, 4, "normal", "float32")) == expected.tobytes()


def test_bfloat16_rounds_to_nearest() -> None:
    exact = floats(prepare.chunk_bytes((0, "w", 0, 4096, "normal", "float32")), "F32")
    rounded = floats(prepare.chunk_bytes((0, "w", 0, 4096, "normal", "bfloat16")), "BF16")
    # bfloat16 keeps 8 significant bits, so rounding to nearest is off by at most 2^-9 of the power of two above
    assert numpy.max(numpy.abs(rounded - exact) / 2.0 ** numpy.ceil(numpy.log2(numpy.abs(exact)))) <= 2.0**-9
    assert abs(numpy.mean((rounded - exact) / exact)) < 1e-4, "cutting instead of rounding would show as a bias"


def test_large_models_are_written_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "SHARD_BYTES", 100)
    monkeypatch.setattr(prepare, "CHUNK_VALUES", 7)
    prepare.write_weights(tmp_path, [["a", [20], "normal"], ["b", [5], "ones"], ["c", [30], "normal"]], "float32", seed=0)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 55 * 4
    assert index["weight_map"] == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors",
    }
    header, data = read_safetensors(tmp_path / "model-00001-of-00002.safetensors")
    assert set(header) == {"__metadata__", "a", "b"} and len(data) == 25 * 4
    assert set(floats(data[80:], "F32")) == {1.0}
    assert len(set(floats(data[:80], "F32"))) == 20, "chunks of one tensor are drawn apart"


def test_unused_tokens_hold_no_digits_and_never_repeat() -> None:
    names = [prepare.letters(number) for number in range(3000)]
    assert names[:2] == ["a", "b"] and names[26] == "ba"
    assert len(set(names)) == 3000 and all(name.isalpha() for name in names)
