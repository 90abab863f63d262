"""The vocabulary of a Megatron-LM job, where its tokenizer decides."""

from trainwright.errors import BadInput, UnknownName
from trainwright.export.reading.known_settings import load_table
from trainwright.export.reading.launch_flags import Flags
from trainwright.model.load import load_entry

_GPT2 = "GPT2BPETokenizer"


def read_vocabulary(flags: Flags, tp: int, stated: int | None) -> tuple[int, tuple[str, ...]]:
    """Rows of the embedding, and what to say of them."""
    if stated:
        return stated, ()
    if flags.has("padded-vocab-size"):
        return flags.whole("padded-vocab-size"), ()
    size, note = _entries(flags)
    if flags.has("no-pad-vocab-size") or flags.has("disable-pad-vocab-size"):
        return size, (f"{note}.",) if note else ()
    unit = flags.whole("make-vocab-size-divisible-by", 128) * tp
    padded = -(-size // max(unit, 1)) * max(unit, 1)
    if padded == size and not note:
        return size, ()
    what = note or f"Vocabulary: {size:,}"
    return padded, (f"{what}, padded to {padded:,}, as Megatron-LM does with tp {tp} (see --vocab).",)


def _entries(flags: Flags) -> tuple[int, str]:
    """Entries of the vocabulary before padding, and where they are from if the text does not say them."""
    if flags.has("vocab-size"):
        return flags.whole("vocab-size") + flags.whole("vocab-extra-ids", 0), ""
    kind, known = flags.word("tokenizer-type", ""), load_table("tokenizers")
    name = flags.word("tokenizer-model", "") if _is_known(flags, "tokenizer-model") else ""
    model = _catalog_model(name)
    if model is not None:
        return model[1], f"Vocabulary: {model[1]:,}, of {model[0]}, by tokenizer {name}"
    if kind in known:
        return int(known[kind]["vocab"]), f"Vocabulary: {known[kind]['vocab']:,}, of {kind}"
    if not kind and not flags.has("tokenizer-model"):
        size = int(known[_GPT2]["vocab"])
        return size, f"Vocabulary is not in the text: GPT-2's {size:,} is assumed"
    rule = f"decides the vocabulary ({kind or 'tokenizer'}), which is not in the text"
    raise BadInput(f"{flags.source}: tokenizer", name or kind, rule, "state --vocab N")


def _is_known(flags: Flags, name: str) -> bool:
    words = flags.values.get(name, ())
    return bool(words) and words[0].text is not None


def _catalog_model(name: str) -> tuple[str, int] | None:
    """The model of the catalog that a tokenizer's name or path ends with, and its vocabulary."""
    last = name.rstrip("/").rpartition("/")[2]
    if last.endswith((".model", ".json", ".txt", ".bpe", ".tiktoken")):
        last = name.rstrip("/").rpartition("/")[0].rpartition("/")[2]
    try:
        return (found := load_entry(last).architecture).name, found.vocab
    except UnknownName:
        return None
