from __future__ import annotations

from tasks.generated.collection_readme import COLLECTION, render


def test_the_readme_has_the_variables_of_every_role() -> None:
    text = (COLLECTION / "README.md").read_text()

    assert text == render(), "run `make collection-readme`"
    assert "| `runtime_engine` | str | `containerd` |" in text
    assert "| `grapnel_roles` | list of str | `[]` |" in text
