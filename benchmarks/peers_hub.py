"""Small models, a tokenizer and data under the names that TRL's tests ask the hub for, made here.

The tests of tools write token ids of Qwen's vocabulary, so the tokenizer of the model that they use has its texts at
those ids; all other models have a vocabulary of 8,192, with which a step takes a tenth of the time. Every id stands for
a text of its own, so that different answers earn different rewards. Models have two layers of a few hundred weights
beside their embeddings. The data are what the checkout's own script makes.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
import trl
from datasets import DatasetDict, disable_progress_bars
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PretrainedConfig, PreTrainedTokenizerFast

OWNER = "trl-internal-testing"
QWEN_TEXTS, FEW_TEXTS = 151_643, 8_192
QWEN_IDS = ("Qwen3MoeForCausalLM",)
"""Classes whose tokenizer has Qwen's ids."""
SPECIAL = {
    151_643: "<|endoftext|>",
    151_644: "<|im_start|>",
    151_645: "<|im_end|>",
    151_657: "<tool_call>",
    151_658: "</tool_call>",
    151_665: "<tool_response>",
    151_666: "</tool_response>",
    151_667: "<think>",
    151_668: "</think>",
}
TEXTS = {
    293: " b", 314: " {", 330: ' "', 411: "out", 450: "dec", 497: '",', 606: "name", 788: '":', 894: " any",
    927: "sh", 944: "'t", 1318: "text", 1414: " know", 1513: " don", 2765: " won", 4913: '{"', 5212: ' {"',
    5392: " tool", 6023: "hi", 7692: "async", 9520: "step", 11248: "}}\n", 13477: "rement", 16252: " increment",
    16370: "arguments", 17453: "Done", 22785: "ly_tool", 35744: "increment", 64648: "multip", 93054: "_multip",
    95642: '"}}\n',
}  # fmt: skip
"""Id -> text of the tokens that the tests write by their ids, in Qwen's vocabulary."""
WIDTHS = {
    "hidden_size": 8,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.1,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
# Class -> its configuration beside `WIDTHS`, and the file of its chat template in TRL.
FAMILIES: dict[str, tuple[dict[str, Any], str]] = {
    "Cohere2ForCausalLM": ({"head_dim": 2}, "cohere2"),
    "Gemma2ForCausalLM": ({"head_dim": 2}, "gemma"),
    "Glm4MoeForCausalLM": (
        {"head_dim": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        | {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
        "glm4moe",
    ),
    "GptOssForCausalLM": ({"head_dim": 2, "num_local_experts": 4, "num_experts_per_tok": 2}, "gptoss"),
    "LlamaForCausalLM": ({}, "llama3_2"),
    "LlamaForSequenceClassification": ({}, "llama3_2"),
    "MistralForCausalLM": ({}, "qwen2_5"),
    "Qwen2ForCausalLM": ({}, "qwen2_5"),
    "Qwen2ForSequenceClassification": ({}, "qwen2_5"),
    "Qwen3ForCausalLM": ({"head_dim": 2}, "qwen3"),
    "Qwen3ForSequenceClassification": ({"head_dim": 2}, "qwen3"),
    "Qwen3MoeForCausalLM": ({"head_dim": 2, **EXPERTS}, "qwen3"),
}


def make_hub(
    folder: Path, checkout: Path, test_file: Path, num_rows: int | None = None, qwen_ids: bool = False
) -> list[str]:
    """Writes a cache of the hub into `folder/hub` and the data into `folder/data`.

    Args:
        folder: an empty folder.
        checkout: a checkout of TRL.
        test_file: its tests, for the names of the models.
        num_rows: rows that stay of every data set; `None` for all.
        qwen_ids: every tokenizer has Qwen's ids.

    Returns:
        the names that the tests ask for and that are not made here, sorted.
    """
    transformers.utils.logging.disable_progress_bar()
    tokenizers = {num_texts: make_tokenizer(num_texts) for num_texts in (QWEN_TEXTS, FEW_TEXTS)}
    missing = []
    for name in sorted(set(re.findall(rf"{OWNER}/(tiny-[\w.-]+)", test_file.read_text(encoding="utf-8")))):
        family = re.match(r"tiny-(\w+)", name)
        if family is None or family[1] not in FAMILIES:
            missing.append(name)
            continue
        root = folder / "hub" / f"models--{OWNER}--{name}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text("made-here", encoding="utf-8")
        num_texts = QWEN_TEXTS if qwen_ids or family[1] in QWEN_IDS else FEW_TEXTS
        make_model(root / "snapshots" / "made-here", family[1], tokenizers[num_texts])
    make_data(folder / "data", checkout / "scripts" / "generate_zen_dataset.py", num_rows)
    return missing


def make_tokenizer(num_texts: int) -> PreTrainedTokenizerFast:
    """Makes a tokenizer: bytes below 256, then the texts above and fillers, then the special tokens, which have Qwen's
    ids where the number of texts is Qwen's.
    """
    letters = byte_letters()
    texts = [*letters.values(), *(f"w{place}." for place in range(256, num_texts))]
    for place, text in TEXTS.items():
        if place < num_texts:
            texts[place] = "".join(letters[byte] for byte in text.encode())
    model = Tokenizer(BPE({text: place for place, text in enumerate(texts)}, []))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    places = range(QWEN_TEXTS, max(SPECIAL) + 1) if num_texts == QWEN_TEXTS else SPECIAL
    tool_calls = ("<tool_call>", "</tool_call>")
    names = [SPECIAL.get(place, f"<|reserved_{place}|>") for place in places]
    model.add_tokens([AddedToken(name, special=name not in tool_calls) for name in names])
    return PreTrainedTokenizerFast(
        tokenizer_object=model, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )


def byte_letters() -> dict[int, str]:
    """Returns byte -> the letter that stands for it in a byte-level vocabulary, in the order of their ids."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


def make_model(folder: Path, family: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """Writes a model of the class `family` with random weights, and its tokenizer with TRL's template of that class."""
    keys, template = FAMILIES[family]
    kind = getattr(transformers, family)
    head = {"num_labels": 1} if "Sequence" in family else {}
    config: PretrainedConfig = kind.config_class(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **WIDTHS | keys | head,
    )
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    path = Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja"
    tokenizer.chat_template = path.read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)


def make_data(folder: Path, script: Path, num_rows: int | None) -> None:
    """Runs the checkout's script that makes its test data, and saves each data set where it would upload it."""
    spec = importlib.util.spec_from_file_location("generate_zen_dataset", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def save(splits: Any, repo_id: str, config_name: str, **options: Any) -> None:
        shortened = {name: rows.select(range(min(len(rows), num_rows or len(rows)))) for name, rows in splits.items()}
        DatasetDict(shortened).save_to_disk(str(folder / repo_id / config_name))

    disable_progress_bars()
    with mock.patch("datasets.DatasetDict.push_to_hub", save):
        module.main(test_size=0.1, push_to_hub=True, repo_id=f"{OWNER}/zen")
