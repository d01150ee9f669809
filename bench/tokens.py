"""How fast and how exact tokens are counted: the tokenizer against tiktoken, the estimate against the tokenizer.

tiktoken comes with the extra `llm`, but without its vocabulary, which it would download. llama-index-core has it:

    pip download --no-deps --dest /tmp/vocabulary llama-index-core
    unzip -j /tmp/vocabulary/*.whl '*/tiktoken_cache/*' -d /tmp/vocabulary
    TIKTOKEN_CACHE_DIR=/tmp/vocabulary make bench

Without it the tokenizer is held to a stated speed, and its exactness is not measured.
"""

import json
import os
import random
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from harness import Figure, at_least, at_most, best_of, best_of_each, main, sized
from remit.agents.token_count import token_counter
from remit.policy.budget import estimate

Encoding = Literal["o200k_base", "cl100k_base"]
Encode = Callable[[str], Sequence[int]]

# The names under which tiktoken keeps its vocabularies: the SHA-1 of where it would download them.
VOCABULARIES: dict[Encoding, str] = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
TIMES_TIKTOKEN = at_least(1.5)
# What is asked of the tokenizer where there is nothing to compare it with; a slow machine does more.
MB_PER_SECOND = at_least(4)
MISMATCHES = at_most(0)
ESTIMATE_US = at_most(10)
# In per cent, of the total of each kind of text; none of them is what the estimate was fitted to.
ESTIMATE_ERROR = at_most(12)
CHINESE_ERROR = at_most(15)

CHUNK = 2_000
MOST = sized(300_000, 4_000)
MESSAGE = 400

CHINESE = (
    "我们需要在星期五之前整理三月份的所有收据，并把它们分成三类。",
    "预算不能超过五百欧元，也不能修改任何配置文件。",
    "她昨天问我，为什么这个城市的冬天总是这么长。",
    "请先阅读说明书，然后按照步骤安装软件，最后重新启动电脑。",
    "科学家发现，这种材料在低温下的导电性能比预期的要好得多。",
    "老人坐在窗边，一边喝茶，一边看着外面的雨。",
    "会议将于下午三点在二楼的大会议室举行，请各部门负责人准时参加。",
    "如果您对结果不满意，可以在三十天内申请退款。",
    "市场上的水果种类很多，有苹果、香蕉、葡萄和西瓜，价格也很便宜。",
    "他用了整整两年时间才写完这本关于中国古代建筑的书。",
    "由于天气原因，飞往上海的航班推迟了两个小时。",
    "学生们正在图书馆里准备下个月的考试，大家都很紧张。",
)


def corpus() -> dict[str, list[str]]:
    """Some texts of four kinds, from what every checkout and every Python has."""
    here = Path(__file__).resolve().parents[1]
    library = Path(sysconfig.get_paths()["stdlib"])
    chance = random.Random(1)
    english = "".join(
        path.read_text(encoding="utf-8") for path in [*sorted(here.glob("docs/*/*.md")), here / "LICENSE"]
    )
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(library.glob("asyncio/*.py")))
    words = english.split()
    messages = [
        json.dumps(
            {
                "id": f"{chance.getrandbits(48):x}",
                "at": chance.randrange(10**12),
                "role": chance.choice(["user", "assistant"]),
                "text": " ".join(chance.choices(words, k=chance.randint(5, 60))),
                "score": round(chance.random(), 4),
            }
        )
        for _ in range(sized(600, 20))
    ]
    return {
        "English": cut(english),
        "Python": cut(code),
        "JSON": messages,
        "Chinese": ["".join(chance.choices(CHINESE, k=12)) for _ in range(sized(300, 20))],
    }


def cut(text: str) -> list[str]:
    return [text[start : start + CHUNK] for start in range(0, min(len(text), MOST), CHUNK)]


def odd_strings(count: int) -> list[str]:
    """Short strings of whatever there is, so that no rule of a tokenizer is left out."""
    chance = random.Random(2)
    parts = [
        " ",
        "\n",
        "\t",
        "'s",
        "'LL",
        "<|endoftext|>",
        "123456",
        "ß",
        "é",
        "e\u0301",
        "中",
        "😀",
        "\u200d",
        "{",
        "_a",
    ]
    kinds = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x370, 0x600), range(0x900, 0xE00), range(0x3040, 0x9FFF)]
    return [
        "".join(
            chance.choice(parts) if chance.random() < 0.4 else chr(chance.choice(chance.choice(kinds)))
            for _ in range(chance.randint(1, 30))
        )
        for _ in range(count)
    ]


def tiktoken_encoders() -> dict[Encoding, Encode]:
    """tiktoken's, for each encoding whose vocabulary is here; nothing is downloaded."""
    folder = Path(os.environ.get("TIKTOKEN_CACHE_DIR", ""))
    files: dict[Encoding, Path] = {
        name: folder / file for name, file in VOCABULARIES.items() if (folder / file).is_file()
    }
    if not files:
        print("no vocabulary for tiktoken; the beginning of bench/tokens.py says how to get it", file=sys.stderr)
        return {}
    try:
        import tiktoken
    except ImportError:
        print("tiktoken is not installed", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory() as copies:
        # It deletes what it takes for damaged.
        for path in files.values():
            shutil.copy(path, copies)
        os.environ["TIKTOKEN_CACHE_DIR"] = copies
        try:
            return {name: tiktoken.get_encoding(name).encode_ordinary for name in files}
        finally:
            os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)


def over(texts: Sequence[str], count: Callable[[str], object]) -> Callable[[], None]:
    def run() -> None:
        for text in texts:
            count(text)

    return run


def megabytes(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def measure_speed(texts: Mapping[str, list[str]], tiktoken: Mapping[Encoding, Encode]) -> Iterator[Figure]:
    count = token_counter("o200k_base")
    yield Figure(name="loading the tokenizer", value=best_of(1, lambda: count("a")) * 1e3, unit="ms")
    other = tiktoken.get("o200k_base")
    for kind, some in texts.items():
        runs = {"exact": over(some, count)} | ({"tiktoken": over(some, other)} if other else {})
        best = best_of_each(5, runs)
        size = megabytes(some)
        yield Figure(
            name=f"exact: {kind}",
            value=size / best["exact"],
            floor=size / best["tiktoken"] if other else None,
            unit="MB/s",
            bound=TIMES_TIKTOKEN if other else MB_PER_SECOND,
        )
    message = texts["JSON"][0][:MESSAGE]
    for name, counter, bound in (("exact", count, None), ("estimate", estimate, ESTIMATE_US)):
        each = best_of(5, over([message] * 2_000, counter)) / 2_000
        yield Figure(name=f"{name}: a message of {MESSAGE} characters", value=each * 1e6, unit="us", bound=bound)
    everything = [text for some in texts.values() for text in some]
    yield Figure(name="estimate", value=megabytes(everything) / best_of(5, over(everything, estimate)), unit="MB/s")


def measure_exactness(texts: Mapping[str, list[str]], tiktoken: Mapping[Encoding, Encode]) -> Iterator[Figure]:
    everything = [*(text for some in texts.values() for text in some), *odd_strings(5_000)]
    for name, encode in tiktoken.items():
        count = token_counter(name)
        wrong = sum(count(text) != len(encode(text)) for text in everything)
        yield Figure(name=f"{name}: texts of {len(everything)} miscounted", value=wrong, unit="", bound=MISMATCHES)


def measure_estimate(texts: Mapping[str, list[str]]) -> Iterator[Figure]:
    count = token_counter("o200k_base")
    for kind, some in texts.items():
        right = [count(text) for text in some]
        guessed = [estimate(text) for text in some]
        each = sorted(abs(guess / true - 1) for guess, true in zip(guessed, right, strict=True))
        bound = CHINESE_ERROR if kind == "Chinese" else ESTIMATE_ERROR
        yield Figure(
            name=f"estimate: {kind}, error of the total",
            value=abs(sum(guessed) / sum(right) - 1) * 100,
            unit="%",
            bound=bound,
        )
        yield Figure(name=f"estimate: {kind}, 19 of 20 texts within", value=each[len(each) * 19 // 20] * 100, unit="%")


def measure() -> list[Figure]:
    texts, tiktoken = corpus(), tiktoken_encoders()
    return [*measure_speed(texts, tiktoken), *measure_exactness(texts, tiktoken), *measure_estimate(texts)]


if __name__ == "__main__":
    main(measure)
