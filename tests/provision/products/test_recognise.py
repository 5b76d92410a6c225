"""What other products leave on a node is recognised and named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.planning.node_plan import Action, Item, Role
from provision.planning.products.recognise import problem_of, recognise, warnings
from provision.planning.products.table import PRODUCTS
from tests.provision.samples import make_facts, make_file

if TYPE_CHECKING:
    from provision.planning.products.table import Product

CONTAINERD = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
WRITE = Item(role=Role.RUNTIME, action=Action.WRITE, target=DROP_IN, reason="it is absent")


def codes(**changes: object) -> list[str]:
    return [each.product.code for each in recognise(make_facts(**changes))]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.code)
def test_each_mark_is_enough_and_what_others_have_too_is_not(product: Product) -> None:
    for mark in product.marks:
        assert codes(product_files=(mark,)) == [product.code]
    assert codes(product_files=product.also) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            'BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"', ["gpu-operator"], id="operator"
        ),
        pytest.param('BinaryName = "/usr/bin/nvidia-container-runtime"', ["nvidia-container-toolkit"], id="toolkit"),
        pytest.param("# managed by grapnel: /usr/bin/nvidia-container-runtime", [], id="a file of ours"),
        pytest.param('BinaryName = "/usr/bin/runc"', [], id="no product"),
    ],
)
def test_a_handler_that_points_at_a_program_of_theirs_is_enough(text: str, expected: list[str]) -> None:
    assert codes(files={CONTAINERD: make_file(text)}) == expected


def test_a_drop_in_that_is_ours_by_now_is_no_file_of_theirs() -> None:
    ours = {DROP_IN: make_file("# managed by grapnel: the next apply puts back what is changed here\n")}
    facts = make_facts(product_files=("/usr/bin/nvidia-ctk", DROP_IN), files=ours)

    (found,) = recognise(facts)
    assert found.found == ("/usr/bin/nvidia-ctk",)


def test_what_is_told_names_files_and_page() -> None:
    (found,) = recognise(make_facts(product_files=("/usr/bin/nvidia-uninstall", "/var/log/nvidia-installer.log")))

    problem = problem_of(found)
    assert "/usr/bin/nvidia-uninstall, /var/log/nvidia-installer.log" in problem.message
    assert problem.hint.endswith("docs/migrate/runfile.md")


def test_a_plan_tells_only_what_it_touches() -> None:
    facts = make_facts(product_files=("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-docker"))

    assert [each.code for each in warnings(facts, (WRITE,), has_problems=False)] == ["product-nvidia-docker2"]
    assert warnings(facts, (), has_problems=False) == ()
    assert len(warnings(facts, (), has_problems=True)) == 2


def test_the_node_looks_for_what_the_table_has() -> None:
    text = (Path(__file__).parents[3] / "playbooks/plugins/module_utils/files/of_products.py").read_text()

    namespace: dict[str, object] = {}
    exec(compile(text[text.index("PRODUCT_FILES") : text.index("def ")], "product_files", "exec"), namespace)  # noqa: S102 - our own
    assert namespace["PRODUCT_FILES"] == tuple(
        sorted({path for each in PRODUCTS for path in (*each.marks, *each.also)})
    )


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.code)
def test_each_has_a_page_with_its_marks(product: Product) -> None:
    page = (Path(__file__).parents[3] / product.page).read_text()

    for path in (*product.marks, *product.also):
        assert f"`{path}`" in page
