"""Build a model and tokenize prompts, inside a framework's environment: ``python prepare.py REQUEST.json OUTPUT.json``.

Standard library, numpy, tokenizers, transformers and jinja2 (chat templates) only, all of which every framework's environment has; no import
of rlmbench. One start does everything, because starting is what takes the time. For the same reason PyTorch is hidden
from transformers (a tokenizer does without, and importing it takes several seconds) and weights are written by numpy.

REQUEST
    build     null, or what to build in `model.dir`: {config, dtype, seed, tensors: [[name, dims, init], ...], corpus:
              texts that the tokenizer is trained on}
    model     {"dir": path, "vocab_size": n or null} or {"hub": name}. `vocab_size` is given for a model of ours, whose
              tokenizer is then checked: it must reload to what was saved
    problems  {"questions": [...]} or {"hub": name or name:configuration, "split": ..., "count": n or null}
OUTPUT
    {"model_dir", "versions": {package: version}, "prompt_ids": [[..], ..], "records": [{question, answer}, ..] | null}
    `records` are the problems of a hub data set. The ids are those of the tokenizer as the framework will reload it,
    with the chat template and a generation prompt, which is not always the tokenizer that was saved.

Progress goes to stdout as lines that begin with ``progress: ``. A mistake that the user can fix is one line on stderr
that begins with ``error: ``, with exit code 2.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PAD_TOKEN, EOS_TOKEN = SPECIAL_TOKENS[0], SPECIAL_TOKENS[2]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# How Qwen2's tokenizer cuts text into words (its `tokenizer.json`). Beside a qwen2 configuration transformers 5 rebuilds
# any tokenizer as Qwen2Tokenizer, with this pattern and NFC whatever was saved; ours has both, so nothing changes.
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WEIGHT_STD = 0.02
DTYPE_NAMES = {"bfloat16": "BF16", "float32": "F32"}
DTYPE_BYTES = {"bfloat16": 2, "float32": 4}
SHARD_BYTES = 4 << 30
CHUNK_VALUES = 1 << 22
TOKENIZED_AT_ONCE = 512


class Mistake(Exception):
    """Something the user can fix, in one line."""


def main(request_path: str, output_path: str) -> None:
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    build, model, problems = request["build"], request["model"], request["problems"]
    if build:
        build_model(Path(model["dir"]), build)
    model_dir = Path(model["dir"]) if "dir" in model else download_model(model["hub"])
    records = download_records(problems) if "hub" in problems else None
    questions = [str(record["question"]) for record in records] if records is not None else problems["questions"]
    tokenizer = load_tokenizer(model_dir)
    if model.get("vocab_size"):
        check_reload(tokenizer, model_dir, model["vocab_size"], questions[:64])
    output = {
        "model_dir": str(model_dir),
        "versions": versions("transformers", "tokenizers"),
        "prompt_ids": tokenize(tokenizer, questions),
        "records": records,
    }
    Path(output_path).write_text(json.dumps(output), encoding="utf-8")


def progress(text: str) -> None:
    print(f"progress: {text}", flush=True)


def versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import version

    return {package: version(package) for package in packages}


# Model


def build_model(folder: Path, build: dict[str, Any]) -> None:
    """Write tokenizer, configuration and random weights to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    progress("training the tokenizer")
    token_ids = build_tokenizer(folder, build["config"]["vocab_size"], build["corpus"])
    ends = {"bos_token_id": None, "eos_token_id": token_ids[EOS_TOKEN], "pad_token_id": token_ids[PAD_TOKEN]}
    write_json(folder / "config.json", {**build["config"], **ends})
    # Neutral sampling, spelt out: frameworks and vLLM take their defaults from this file, and transformers' is top-k 50.
    write_json(folder / "generation_config.json", {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, **ends})
    write_weights(folder, build["tensors"], build["dtype"], build["seed"])


def build_tokenizer(folder: Path, vocab_size: int, corpus: list[str]) -> dict[str, int]:
    """Train a byte-level BPE tokenizer on `corpus` and fill its vocabulary up; the ids of the special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    roles = ["system\nuser\nassistant\n"] * len(corpus)  # the template's words are in every prompt
    tokenizer.train_from_iterator(corpus + roles, trainer)
    content = json.loads(tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    # No merge leads to these, so no text encodes to them, yet every id the model can sample decodes to something.
    for number in range(len(vocabulary), vocab_size):
        vocabulary[f"<|unused_{letters(number)}|>"] = number
    write_json(folder / "tokenizer.json", content)
    settings = {
        # Named so that no class is guessed. Where transformers 5 sets it aside (it does for qwen2), see QWEN_SPLIT.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": EOS_TOKEN,
        "pad_token": PAD_TOKEN,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
        "chat_template": CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)
    return {token: vocabulary[token] for token in SPECIAL_TOKENS}


def letters(number: int) -> str:
    """`number` in letters, so that a verifier reads no number out of an unused token."""
    digits = ""
    while True:
        number, rest = divmod(number, 26)
        digits = chr(ord("a") + rest) + digits
        if not number:
            return digits


def write_weights(folder: Path, tensors: list[list[Any]], dtype: str, seed: int) -> None:
    """Write a safetensors checkpoint, in several files where it is large. Memory stays at a few chunks."""
    size = DTYPE_BYTES[dtype]
    shards: list[list[list[Any]]] = [[]]
    filled = 0
    for tensor in tensors:
        tensor_bytes = prod(tensor[1]) * size
        if shards[-1] and filled + tensor_bytes > SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor_bytes
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    if len(shards) == 1:
        names = ["model.safetensors"]
    for number, (name, shard) in enumerate(zip(names, shards, strict=True), start=1):
        progress(f"writing random weights, file {number} of {len(shards)}")
        with (folder / name).open("wb") as file:
            write_shard(file, shard, dtype, seed)
    if len(shards) > 1:
        total = sum(prod(tensor[1]) for tensor in tensors) * size
        where = {tensor[0]: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})


def write_shard(file: BinaryIO, tensors: list[list[Any]], dtype: str, seed: int) -> None:
    """One safetensors file: length of the header (8 bytes, little-endian), JSON header padded to 8 bytes, data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dims, _ in tensors:
        end = offset + prod(dims) * DTYPE_BYTES[dtype]
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": dims, "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    file.write(len(encoded).to_bytes(8, "little") + encoded)
    chunks = [
        (seed, name, start, min(CHUNK_VALUES, prod(dims) - start), init, dtype)
        for name, dims, init in tensors
        for start in range(0, prod(dims), CHUNK_VALUES)
    ]
    workers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers) as pool:
        for first in range(0, len(chunks), 2 * workers):  # in batches, or finished chunks would pile up in memory
            file.writelines(pool.map(chunk_bytes, chunks[first : first + 2 * workers]))


def chunk_bytes(chunk: tuple[int, str, int, int, str, str]) -> bytes:
    """A stretch of one tensor's values, a pure function of seed, tensor name and position."""
    import numpy

    seed, name, start, count, init, dtype = chunk
    if init == "normal":
        key = int.from_bytes(sha256(f"{seed}:{name}:{start}".encode()).digest()[:16], "big")
        values = numpy.random.Generator(numpy.random.PCG64(key)).standard_normal(count, dtype=numpy.float32)
        values *= numpy.float32(WEIGHT_STD)
    else:
        values = numpy.full(count, {"zeros": 0.0, "ones": 1.0}[init], dtype=numpy.float32)
    if dtype == "float32":
        return values.astype("<f4", copy=False).tobytes()
    bits = values.view(numpy.uint32)
    bits += ((bits >> 16) & 1) + numpy.uint32(0x7FFF)  # round to nearest, ties to even, then drop the low half
    return (bits >> 16).astype("<u2").tobytes()


# Tokenizer


def load_tokenizer(model_dir: Path) -> Any:
    """The tokenizer as a framework reloads it."""
    progress("loading the tokenizer")
    sys.modules["torch"] = None  # type: ignore[assignment]  # not needed here, and seconds to import
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(model_dir))
    except (OSError, ValueError) as error:
        raise Mistake(f"{model_dir}: no tokenizer can be loaded: {first_line(error)}") from error
    if not tokenizer.chat_template:
        raise Mistake(f"{model_dir}: the tokenizer has no chat template, so prompts cannot be built; use a chat or instruct model")
    return tokenizer


def tokenize(tokenizer: Any, questions: list[str]) -> list[list[int]]:
    """Token ids of each question as the user's turn, ready for the assistant's."""
    ids: list[list[int]] = []
    for first in range(0, len(questions), TOKENIZED_AT_ONCE):
        progress(f"tokenizing prompts, {first} of {len(questions)}")
        conversations = [[{"role": "user", "content": question}] for question in questions[first : first + TOKENIZED_AT_ONCE]]
        ids += tokenizer.apply_chat_template(conversations, add_generation_prompt=True, tokenize=True, return_dict=False)
    return ids


def check_reload(tokenizer: Any, model_dir: Path, vocab_size: int, texts: list[str]) -> None:
    """Fail unless the reloaded tokenizer encodes as the saved one does, and decodes every id of the model."""
    from tokenizers import Tokenizer

    saved = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    conversations = [[{"role": "user", "content": text}] for text in texts]
    rendered = tokenizer.apply_chat_template(conversations, add_generation_prompt=True, tokenize=False)
    expected = [encoding.ids for encoding in saved.encode_batch(rendered, add_special_tokens=False)]
    if tokenize(tokenizer, texts) != expected:
        raise Mistake(
            f"{model_dir}: this version of transformers reloads the tokenizer as {type(tokenizer).__name__}, with other token ids"
        )
    if len(tokenizer) != vocab_size or not tokenizer.decode([vocab_size - 1]):
        raise Mistake(f"{model_dir}: the reloaded tokenizer has {len(tokenizer)} tokens, but the model's vocabulary has {vocab_size}")
    if tokenizer.eos_token != EOS_TOKEN or tokenizer.pad_token != PAD_TOKEN:
        raise Mistake(f"{model_dir}: the reloaded tokenizer ends with {tokenizer.eos_token!r} and pads with {tokenizer.pad_token!r}")


# Hub


def download_model(name: str) -> Path:
    """Folder of a hub model, downloaded where it is not in the hub's own cache."""
    from huggingface_hub import snapshot_download

    progress(f"fetching {name} from the hub")
    wanted = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # the hub library raises from many families: HTTP, validation, offline, missing files
        raise Mistake(f"model.hub: cannot fetch {name!r}: {first_line(error)}") from error


def download_records(problems: dict[str, Any]) -> list[dict[str, Any]]:
    """Records of a hub data set with GSM8K's columns. `name:configuration` picks one; `main` is the one assumed."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from datasets import load_dataset

    name, _, configuration = problems["hub"].partition(":")
    progress(f"fetching {name} from the hub")
    try:
        try:
            rows = load_dataset(name, configuration or None, split=problems["split"])
        except ValueError as error:
            if configuration or "Config name is missing" not in str(error):
                raise
            rows = load_dataset(name, "main", split=problems["split"])
    except Exception as error:  # as above
        raise Mistake(f"workload.prompts.hub: cannot fetch {problems['hub']!r}: {first_line(error)}") from error
    missing = {"question", "answer"} - set(rows.column_names)
    if missing:
        raise Mistake(
            f"workload.prompts.hub: {name!r} has no column {' and '.join(sorted(missing))}; it has {', '.join(rows.column_names)}"
        )
    count = problems["count"] or len(rows)
    return [{"question": row["question"], "answer": row["answer"]} for row in rows.select(range(min(count, len(rows))))]


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    # Our folder holds modules whose names others may import too; nothing here needs it on the path.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    try:
        main(sys.argv[1], sys.argv[2])
    except Mistake as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
