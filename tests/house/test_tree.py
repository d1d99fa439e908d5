"""What holds for every file."""

from __future__ import annotations

import re

from tests.support.tree import ROOT, files, lines

LONGEST = 400

# In pieces, so that this file passes its own test.
OF_ONE_MACHINE = re.compile(
    r"(?<![\w./-])/(?:" + "|".join(["work", "root", r"home/\w+", r"Users/\w+", r"tmp/\w", "opt"]) + r")\b(?:/|$)"
)
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(host + "." + top)
        for host, top in [
            ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("debian", "org"),
            ("pytorch", "org"), ("crates", "io"),
        ]
    )
    + "|" + "index" + "-url" + "|" + "find" + "-links"
)  # fmt: skip


def test_no_python_file_is_longer_than_a_reader_can_hold() -> None:
    sizes = {str(path.relative_to(ROOT)): len(lines(path)) for path in files(".py")}
    assert "stages/events.py" in sizes
    assert {name: size for name, size in sizes.items() if size > LONGEST} == {}


def test_no_file_names_a_path_of_one_machine_or_a_package_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in files()
        for number, line in enumerate(lines(path), 1)
        if OF_ONE_MACHINE.search(line) or REGISTRY_HOSTS.search(line)
    ]
    assert found == []


def test_the_search_for_machine_paths_finds_them() -> None:
    for first in ("work", "root", "home/ann", "Users/ann", "opt"):
        assert OF_ONE_MACHINE.search(f'open("/{first}/x")')
    for text in (f"https://host/{'work'}/x", f"a/{'root'}/b", "/v1/models", f"./{'opt'}/x"):
        assert not OF_ONE_MACHINE.search(text)


def test_nothing_is_left_for_later() -> None:
    later = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]))
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files(".py", ".md", ".toml")
        for number, line in enumerate(lines(path), 1)
        if later.search(line)
    ]
    assert found == []
