"""The settings of NVIDIA's device plugin, as this daemon takes them: flags, variables, `version: v1` file.

`table` says which there are, `kinds` what a value may be, `document` what a file says, `merge` what counts,
`explain` what became of it: all pure. `load` and `yaml_file` read. What a setting does is decided where it is used.
"""
