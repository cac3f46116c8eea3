"""The documented format of a W&B grid sweep and of a search, as JSON schemas.

Source: https://docs.wandb.ai/guides/sweeps/sweep-config-keys. A grid sweep has the top-level keys, of which
program, method and parameters are required; a metric's name and goal; and value or values of each parameter.
A search is Bayesian, with bounds instead of values, and with hyperband. W&B's own schema is in its package
``sweeps``, which requires numpy below 2 and so cannot be installed with this project.
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

_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_GRID = GRID_SWEEP["properties"]
SEARCH_SWEEP = GRID_SWEEP | {
    "required": ["program", "method", "parameters", "metric", "run_cap", "early_terminate"],
    "properties": _GRID
    | {
        "method": {"const": "bayes"},
        "metric": _GRID["metric"] | {"required": ["name", "goal"]},
        "early_terminate": {
            "type": "object",
            "required": ["type", "min_iter"],
            "additionalProperties": False,
            "properties": {
                "type": {"const": "hyperband"},
                "min_iter": {"type": "integer", "minimum": 1},
                "eta": {"type": "integer", "minimum": 2},
                "s": {"type": "integer", "minimum": 1},
                "strict": {"type": "boolean"},
            },
        },
        "parameters": _GRID["parameters"]
        | {
            "additionalProperties": {
                "type": "object",
                "required": ["distribution", "min", "max"],
                "additionalProperties": False,
                "properties": {
                    "distribution": {"const": "log_uniform_values"},
                    "min": _POSITIVE,
                    "max": _POSITIVE,
                },
            }
        },
    },
}
