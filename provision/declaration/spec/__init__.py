"""Reads the GpuStack declaration: model, loader, schema, and errors that point into the text.

Knows nothing of machines, groups or inventories (`provision.declaration.fleet` merges those levels and asks this
package to judge the result), of nodes' facts, or of how anything is applied. `docs/contracts/gpustack/` is the written
form.
"""
