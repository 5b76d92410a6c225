"""Schemas for kubeconform refuse what the API server would drop."""

from __future__ import annotations

import jsonschema
import pytest

from lab.tools.kubernetes_schemas import schemas

DOCUMENT = {
    "definitions": {
        "apps.v1.Thing": {
            "type": "object",
            "properties": {"spec": {"$ref": "#/definitions/apps.v1.Spec"}},
            "x-kubernetes-group-version-kind": [{"group": "apps.example", "kind": "Thing", "version": "v1"}],
        },
        "apps.v1.Spec": {
            "type": "object",
            "properties": {
                "limit": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"},
                "inner": {"$ref": "#/definitions/apps.v1.Spec"},
            },
        },
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        "apps.v1.Unused": {"type": "object"},
    }
}


def test_each_kind_has_a_schema_with_what_it_leads_to() -> None:
    made = schemas(DOCUMENT)

    assert set(made) == {"thing-apps-v1.json"}
    assert "apps.v1.Unused" not in made["thing-apps-v1.json"]["definitions"]


@pytest.mark.parametrize("limit", [1, "1Gi"])
def test_a_quantity_is_a_number_or_a_word(limit: object) -> None:
    jsonschema.validate({"spec": {"inner": {"limit": limit}}}, schemas(DOCUMENT)["thing-apps-v1.json"])


def test_a_key_that_is_not_known_is_refused() -> None:
    with pytest.raises(jsonschema.ValidationError, match="limits"):
        jsonschema.validate({"spec": {"limits": 1}}, schemas(DOCUMENT)["thing-apps-v1.json"])
