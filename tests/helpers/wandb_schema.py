"""The documented format of a W&B grid sweep, as a JSON schema.

Written from https://docs.wandb.ai/guides/sweeps/sweep-config-keys. It has the top-level keys, of which
program, method and parameters are required; a metric's name and goal; and value or values of a grid's
parameter. W&B's own schema is in its package ``sweeps``, which requires numpy below 2 and so cannot be
installed beside this project.
"""

GRID_SWEEP = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["program", "method", "parameters"],
    "additionalProperties": False,
    "properties": {
        **{name: {"type": "string"} for name in ("program", "entity", "project", "description", "name")},
        "method": {"const": "grid"},
        "metric": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string"},
                "goal": {"enum": ["minimize", "maximize"]},
                "target": {"type": "number"},
            },
        },
        "command": {"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean"]}},
        "run_cap": {"type": "integer", "minimum": 1},
        "parameters": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"},
            "additionalProperties": {
                "oneOf": [
                    {
                        "type": "object",
                        "required": ["values"],
                        "additionalProperties": False,
                        "properties": {"values": {"type": "array", "minItems": 1}},
                    },
                    {
                        "type": "object",
                        "required": ["value"],
                        "additionalProperties": False,
                        "properties": {"value": {}},
                    },
                ]
            },
        },
    },
}
