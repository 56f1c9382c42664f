"""The wire: protos, the code generated from them, and conversion to and from the model.

Importing this package loads no protobuf; `iris_core.wire.v1` does. Wire rules: only add, numbers and names are
reserved for ever, zero is "unspecified", an unknown enum value is shown as its number (DESIGN §4).
"""
