"""No system to compare: writes the random weights that all sides load, as a Hugging Face folder, in
its own process."""

from pathlib import Path

from speed.serve import Round, serve
from speed.shapes import drawn
from speed.work import Spec
from whet.models.save import save_model


def prepare(spec: Spec) -> Round:
    assert spec.folder is not None, "a checkpoint needs a place"
    folder = Path(spec.folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(drawn(spec.work), folder, eos_tokens=[spec.vocab_size - 1])
    return lambda number: {"seconds": 0.0}


if __name__ == "__main__":
    serve(prepare)
