"""What is built and tested with is pinned and named, and nothing of others is shipped."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "packaging/requirements-test.txt").read_text()
CITATION = (ROOT / "CITATION.cff").read_text().partition("\nreferences:")[0]
OURS = {
    "", ".c", ".css", ".f90", ".gz", ".h", ".ipynb", ".j2", ".js", ".json", ".md", ".py", ".pyi", ".toml", ".txt",
    ".typed",
}  # fmt: skip
"""Endings of files of this repository's own in the packages that are shipped."""


def pinned():
    """Name -> (version, hashes, marker) of each entry of the lock; one name may stand there by marker."""
    text = LOCK.replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line and not line.startswith("#")]
    for entry in entries:
        word, *hashes = re.split(r"\s+--hash=", entry.strip())
        yield Requirement(word), hashes


def test_every_dependency_of_the_tests_is_pinned_to_a_version_that_the_project_takes():
    asked = [*PROJECT["dependencies"]]
    for extra in ("fast", "service", "test"):
        asked += PROJECT["optional-dependencies"][extra]
    found = {}
    for entry, _ in pinned():
        found.setdefault(entry.name.lower().replace("_", "-"), []).append(entry)
    for each in map(Requirement, asked):
        versions = [
            str(e.specifier).removeprefix("==") for e in found[each.name.lower().replace(".", "-")]
        ]
        assert all(each.specifier.contains(Version(v)) for v in versions), each


def test_every_entry_of_the_lock_is_one_version_with_the_sums_of_its_files():
    entries = list(pinned())
    assert len(entries) > 50
    for entry, hashes in entries:
        assert re.fullmatch(r"==[0-9A-Za-z.+!-]+", str(entry.specifier)), entry
        assert hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), entry


def test_the_lock_names_no_host():
    assert "://" not in LOCK
    assert not re.search(r"^\s*--(index|extra-index|find-links|trusted)", LOCK, re.MULTILINE)


def test_what_is_shipped_is_of_this_repository():
    packages = ("apples", "nws", "hat", "blueprints", "examples")
    for path in (file for name in packages for file in (ROOT / name).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.suffix in OURS, path
            assert not re.search(r"\.min\.|vendor|third.party", path.as_posix(), re.IGNORECASE), (
                path
            )


def cited(field):
    """Return the values of a field of CITATION.cff, outside its references."""
    return re.findall(rf"^[ -]*{field}: \"?(.+?)\"?$", CITATION, re.MULTILINE)


def test_package_and_citation_agree():
    assert [author["name"] for author in PROJECT["authors"]] == cited("name")
    assert [PROJECT["version"]] == cited("version")
    assert [PROJECT["license"]] == cited("license")
    assert [*PROJECT["urls"].values()][:1] == cited("repository-code")


def test_classifiers_name_each_supported_python():
    minor = int(PROJECT["requires-python"].removeprefix(">=3."))
    prefix = "Programming Language :: Python :: 3."
    named = [
        int(line.removeprefix(prefix))
        for line in PROJECT["classifiers"]
        if line.startswith(prefix)
    ]
    assert named == [*range(minor, minor + len(named))]
    assert named


def test_conda_recipe_agrees_with_the_package():
    recipe = (ROOT / "packaging/conda/meta.yaml").read_text()
    requirements = re.findall(
        r"^    - ([\w.-]+) ([<>=].+)$", recipe.partition("\n  run:")[2], re.MULTILINE
    )
    wanted = map(Requirement, PROJECT["dependencies"])
    assert {f"{name} {Requirement(name + limits).specifier}" for name, limits in requirements} == {
        "python <3.14,>=3.11", *(f"{entry.name} {entry.specifier}" for entry in wanted)
    }  # fmt: skip
    assert f'version: "{PROJECT["version"]}"' in recipe
    for name, function in PROJECT["scripts"].items():
        assert f"- {name} = {function}\n" in recipe


def test_container_copies_every_source_of_the_wheel():
    lines = (ROOT / "packaging/Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    sources = {*wheel["packages"], *(source.split("/")[0] for source in wheel["force-include"])}
    assert {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], *sources} <= copied
