"""One mutant, in a process of its own: ``python -m tests.mutation.probe MUTANT PROBES`` prints what tells it apart.

MUTANT: JSON, ``{"module", "path", "source"}``: the mutated text of a module, which is loaded in its place; PROBES: a
pickle of two lists of Probe, the golden and the generated ones. A line for each probe that comes out differently:
``golden NAME`` (the first ends it) or ``generated NUMBER``; at last ``done``.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.mutation.sessions import Probe


class Mutated(MetaPathFinder, InspectLoader):
    """Gives one module another text."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self.module = module
        self.path = path
        self.source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        return spec_from_loader(fullname, self, origin=self.path)

    def get_source(self, fullname: str) -> str:
        return self.source


def main(mutant: Path, probes: Path) -> None:
    sys.meta_path.insert(0, Mutated(**json.loads(mutant.read_text())))
    try:
        golden: list[Probe]
        generated: list[Probe]
        golden, generated = pickle.loads(probes.read_bytes())
    except Exception as error:  # a mutant may not even be imported
        print(f"golden import ({type(error).__name__})", flush=True)
        return
    for probe in golden:
        if not probe.same:
            print(f"golden {probe.name}", flush=True)
            return
    for number, probe in enumerate(generated):
        print(f"at {number}", flush=True)
        if not probe.same:
            print(f"generated {number}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
