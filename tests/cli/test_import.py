"""``playhead import``: sessions of files and stores into a store, and the bytes of ids that came without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from replay import Replayer
from stages.events import PromptInput, TokensInput
from stages.opening import TokenizerFacts
from store import open_store, trace
from store.api import Mode, Trace
from tests.support.captures import captures
from tests.support.upstream_traces import relayed, with_opening, with_records
from tests.support.vocabularies import tokenizer_folder, vocabulary

Playhead = Callable[..., Result]

HERMES = "vllm_qwen3_hermes-tool_multitoken"
CODER = "vllm_qwen3_coder-tool_multitoken"


def bare(name: str, **fields: Any) -> Trace:
    """A relayed session of a capture, as it is recorded without a tokenizer: ids, and what the model's name tells."""
    found = relayed(captures()[name], parser="hermes", pieces=False, taken_out="null")
    return with_opening(found, tokenizer=TokenizerFacts(), stages={**found.opening.stages, "parser": "x@1"}, **fields)


def stored(path: Path, *traces: Trace) -> Path:
    store = open_store(str(path))
    store.save(traces)
    store.close()
    return path


def loaded(path: Path) -> dict[str, Trace]:
    store = open_store(str(path), create=False)
    try:
        return {info.session: store.load(info.session) for info in store.sessions()}
    finally:
        store.close()


def tokens(found: Trace) -> list[TokensInput]:
    return [event for event in found.events("input", "engine") if isinstance(event, TokensInput)]


def wrote(found: Trace) -> str:
    return b"".join(piece for event in tokens(found) for piece in event.pieces).decode()


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_folder("qwen3", tmp_path_factory.mktemp("qwen3"))


# --- copying --------------------------------------------------------------------------------------------------------


def test_a_store_and_files_into_one_store(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    one, other = bare(HERMES), bare(CODER)
    stored(Path("more.db"), one)
    trace.write(other, "other.jsonl.zst")
    result = playhead("import", recorded, "more.db", "other.jsonl.zst")
    assert (result.exit_code, result.stdout) == (0, f"{len(ids) + 2} new sessions in playhead.db\n")
    stored(Path("other.db"), other)
    sources = loaded(recorded) | loaded(Path("more.db")) | loaded(Path("other.db"))
    assert loaded(Path("playhead.db")) == sources
    again = playhead("import", recorded, "other.jsonl.zst")
    assert (again.exit_code, again.stdout) == (0, f"0 new sessions in playhead.db, {len(ids) + 1} already there\n")


def test_a_folder_of_both(playhead: Playhead) -> None:
    folder = Path("sources", "below")
    folder.mkdir(parents=True)
    stored(folder / "one.db", bare(HERMES))
    trace.write(bare(CODER), folder / "two.jsonl")
    assert playhead("import", "sources").stdout == "2 new sessions in playhead.db\n"


def test_a_session_that_is_there_with_other_records(playhead: Playhead) -> None:
    found = bare(HERMES)
    stored(Path("playhead.db"), found)
    before = loaded(Path("playhead.db"))
    trace.write(with_opening(found, model="another"), "changed.jsonl")
    trace.write(bare(CODER), "new.jsonl")
    result = playhead("import", "changed.jsonl", "new.jsonl")
    assert (result.exit_code, result.stdout) == (3, "1 new session in playhead.db\n")
    assert found.opening.session in result.stderr
    assert loaded(Path("playhead.db"))[found.opening.session] == before[found.opening.session]


def test_what_cannot_be_read_keeps_nothing_else_out(playhead: Playhead) -> None:
    Path("broken.jsonl").write_text('{"playhead": 1, "opening"\n')
    trace.write(bare(HERMES), "whole.jsonl")
    result = playhead("import", "broken.jsonl", "missing.jsonl", "whole.jsonl")
    assert (result.exit_code, result.stdout) == (3, "1 new session in playhead.db\n")
    assert "broken.jsonl" in result.stderr
    assert "missing.jsonl" in result.stderr


def test_a_session_that_is_still_recorded_is_left_out(playhead: Playhead) -> None:
    live = open_store("live.db")
    writer = live.writer(bare(HERMES).opening)
    live.flush()
    result = playhead("import", "live.db")
    assert (result.exit_code, result.stdout) == (0, "0 new sessions in playhead.db, 1 still being recorded\n")
    writer.close("closed")
    live.close()
    assert playhead("import", "live.db").stdout == "1 new session in playhead.db\n"


# --- joining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "lean"])
def test_ids_get_their_bytes(playhead: Playhead, qwen3: Path, mode: Mode) -> None:
    capture = captures()[HERMES]
    assert capture.engine is not None
    found = bare(HERMES)
    found.info = msgspec.structs.replace(found.info, mode=mode)
    source = stored(Path("source.db"), found)
    before = source.read_bytes()
    result = playhead("import", source, "--tokenizer", qwen3)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "1 new session in playhead.db\nthe ids of 1 have their bytes now\n"
    assert source.read_bytes() == before
    [made] = loaded(Path("playhead.db")).values()
    assert [event.ids for event in tokens(made)] == capture.steps_of(0)
    piece = vocabulary("qwen3").piece
    assert [event.pieces for event in tokens(made)] == [
        tuple(piece(token) for token in step) for step in capture.steps_of(0)
    ]
    facts = made.opening.tokenizer
    assert facts.joined
    assert facts.hash is not None
    assert facts.added["<tool_call>"] == 151657
    assert 151645 in facts.eos
    prompt = made.events("input", "engine")[0]
    assert isinstance(prompt, PromptInput)
    assert prompt.tail.endswith("<|im_start|>assistant\n")
    assert made.records["upstream", "frame"] == found.records["upstream", "frame"]
    assert Replayer().replay(made).verdict in ("same", "restyled")


def test_what_was_joined_is_there_the_second_time(playhead: Playhead, qwen3: Path) -> None:
    stored(Path("source.db"), bare(HERMES))
    playhead("import", "source.db", "--tokenizer", qwen3)
    again = playhead("import", "source.db", "--tokenizer", qwen3)
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "0 new sessions in playhead.db, 1 already there")
    plain = playhead("import", "source.db")
    assert plain.exit_code == 3
    assert "other records" in plain.stderr


def test_both_parses_are_there_after_it(playhead: Playhead, qwen3: Path) -> None:
    """The server lost the arguments of one; the tokens have them. In the other it left line breaks."""
    lost = captures()["vllm_hermes-tool_parameters_key"]
    stored(Path("source.db"), bare(lost.name), bare(HERMES))
    playhead("import", "source.db", "--tokenizer", qwen3, "--model", "*")
    made = loaded(Path("playhead.db"))
    verdicts = {session: found.info.shadows for session, found in made.items()}
    assert verdicts == {
        lost.name.replace("_", "-"): {"hermes": "changed"}, HERMES.replace("_", "-"): {"hermes": "restyled"},
    }  # fmt: skip
    assert all(found.events("shadow:hermes", "semantic") for found in made.values())


def test_shadows_look_again(playhead: Playhead, qwen3: Path) -> None:
    """What parsers made of ids without bytes is nothing; one that cannot be had any more is left out."""
    found = bare(HERMES)
    found.info = msgspec.structs.replace(found.info, shadows={"plain": "uncompared", "gone.py:Parser": "same"})
    stored(Path("source.db"), found)
    assert playhead("import", "source.db", "--tokenizer", qwen3).exit_code == 0
    [made] = loaded(Path("playhead.db")).values()
    assert made.info.shadows == {"plain": "changed", "hermes": "restyled"}


def test_the_tokenizer_tells_the_format(playhead: Playhead, tmp_path: Path) -> None:
    """The name of the model says hermes, its template another."""
    template = "{% if tools %}<tool_call><function=f><parameter=p>{% endif %}"
    where = tokenizer_folder("qwen3", tmp_path / "coder", template)
    stored(Path("source.db"), bare(CODER, model="Qwen/Qwen3-8B"))
    playhead("import", "source.db", "--tokenizer", where)
    [made] = loaded(Path("playhead.db")).values()
    assert made.opening.parser == made.info.parser == "qwen3-xml"
    assert made.opening.stages["parser"].startswith("parse.qwen3-xml@")


def test_a_format_that_was_set_stays(playhead: Playhead, qwen3: Path) -> None:
    stored(Path("source.db"), bare(CODER, parser="qwen3_coder"))
    playhead("import", "source.db", "--tokenizer", qwen3)
    [made] = loaded(Path("playhead.db")).values()
    assert made.opening.parser == "qwen3_coder"


def test_a_parser_that_is_named(playhead: Playhead, qwen3: Path) -> None:
    stored(Path("source.db"), bare(CODER))
    playhead("import", "source.db", "--tokenizer", qwen3, "--parser", "qwen3_coder")
    [made] = loaded(Path("playhead.db")).values()
    assert made.opening.parser == "qwen3_coder"
    assert made.info.shadows == {"qwen3_coder": "same"}
    assert Replayer().replay(made).verdict in ("same", "restyled")


def test_ids_of_another_vocabulary(playhead: Playhead, tmp_path: Path) -> None:
    """Steps with an id that the tokenizer does not have stay without bytes, and are told."""
    small = tokenizer_folder("llama31", tmp_path / "llama31")
    stored(Path("source.db"), bare(HERMES))
    result = playhead("import", "source.db", "--tokenizer", small)
    assert result.exit_code == 0
    assert "ids are not in this tokenizer" in result.stderr
    [made] = loaded(Path("playhead.db")).values()
    steps = tokens(made)
    assert [event.ids for event in steps] == [event.ids for event in tokens(bare(HERMES))]
    assert all(event.pieces == () for event in steps if max(event.ids) >= vocabulary("llama31").size)
    assert all(event.pieces for event in steps if max(event.ids) < vocabulary("llama31").size)


def test_one_tokenizer_is_for_one_model(playhead: Playhead, qwen3: Path) -> None:
    """Unless it is said to be for more."""
    one, other = bare(HERMES, model="Qwen/Qwen3-8B"), bare(CODER, model="Qwen/Qwen3-Coder-30B")
    trace.write(one, "a.jsonl")
    trace.write(other, "b.jsonl")
    result = playhead("import", "a.jsonl", "b.jsonl", "--tokenizer", qwen3)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (3, "1 new session in playhead.db")
    assert other.opening.session in result.stderr
    assert "is of model 'Qwen/Qwen3-Coder-30B', those before it of 'Qwen/Qwen3-8B'" in result.stderr
    assert loaded(Path("playhead.db")).keys() == {one.opening.session}
    result = playhead("import", "a.jsonl", "b.jsonl", "--tokenizer", qwen3, "--model", "Qwen/*-Coder-*")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "1 new session in playhead.db, 1 of other models")
    assert loaded(Path("playhead.db")).keys() == {one.opening.session, other.opening.session}
    result = playhead("import", "a.jsonl", "b.jsonl", "--tokenizer", qwen3, "--model", "*", "--store", "all.db")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "2 new sessions in all.db")


def test_what_our_own_stages_served_is_copied_as_it_is(recorded: Path, playhead: Playhead, qwen3: Path) -> None:
    before = loaded(recorded)
    result = playhead("import", recorded, "--tokenizer", qwen3)
    assert result.stdout.endswith("the ids of 0 have their bytes now\n")
    assert loaded(Path("playhead.db")) == before


def test_bytes_of_another_tokenizer_stay_alone(playhead: Playhead, tmp_path: Path) -> None:
    """Also where it left a step without: two vocabularies in one session would be no text."""
    found = relayed(captures()[HERMES])
    first, *rest = found.records["input", "engine"]
    bare = msgspec.structs.replace(first, event=msgspec.structs.replace(first.event, tail=""))
    found = with_records(found, "input", "engine", [bare, *rest])
    found = with_opening(found, tokenizer=msgspec.structs.replace(found.opening.tokenizer, hash="another"))
    stored(Path("source.db"), found)
    where = tokenizer_folder("glm45", tmp_path / "glm45")
    found.opening = msgspec.structs.replace(found.opening, parser="hermes", model="Qwen/Qwen3-8B")
    result = playhead("import", "source.db", "--tokenizer", where)
    assert result.stderr == "Note: 1 had been read with another tokenizer, and stay as they are\n"
    assert loaded(Path("playhead.db")) == loaded(Path("source.db"))


# --- usage ----------------------------------------------------------------------------------------------------------


def test_a_source_is_never_the_store_that_changes(playhead: Playhead, qwen3: Path) -> None:
    stored(Path("playhead.db"), bare(HERMES))
    before = loaded(Path("playhead.db"))
    for source in ("playhead.db", os.path.join(".", "playhead.db"), "."):
        result = playhead("import", source, "--tokenizer", qwen3)
        assert result.exit_code == 2
        assert "name another --store" in result.stderr
    assert loaded(Path("playhead.db")) == before
    assert playhead("import", "playhead.db").stdout == "0 new sessions in playhead.db, 1 already there\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tokenizer", "nowhere/at/all"), "there is no tokenizer 'nowhere/at/all'"),
        (("--tokenizer", "."), "there is no tokenizer in the folder ."),
        (("--parser", "hermess"), "did you mean hermes?"),
    ],
)
def test_what_cannot_be_had(playhead: Playhead, options: tuple[str, str], says: str) -> None:
    trace.write(bare(HERMES), "x.jsonl")
    result = playhead("import", "x.jsonl", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.split())
    assert not Path("playhead.db").exists()
