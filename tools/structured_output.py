"""The tool that takes a run's final answer where the caller has set a schema for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jsonschema
import jsonschema.exceptions
import jsonschema.validators

from atrio.runtime.errors import ConfigError, InvalidToolInput
from atrio.runtime.messages import JsonObject
from atrio.runtime.state import STRUCTURED_OUTPUT
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

__all__ = ["StructuredOutput"]

MAX_PROBLEMS = 10


class StructuredOutput(Tool):
    """
    ``schema`` is the JSON Schema of the answer; the API wants an object at its top, so another kind is wrapped as
    ``{"value": ...}``.

    Raises:
        ConfigError: it is no valid JSON Schema.
    """

    name = STRUCTURED_OUTPUT
    description = (
        "Give your final answer with this tool, once, when the work is done. Its input is the answer and must fit the "
        "schema; calling it ends the task."
    )
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"
    max_result_chars: int | None = None

    def __init__(self, schema: JsonObject) -> None:
        if not isinstance(schema, dict):
            raise ConfigError("the output schema", "it is no JSON object", "give a JSON Schema")
        try:
            validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            validator.check_schema(schema)
        except jsonschema.exceptions.SchemaError as error:
            place = "/".join(map(str, error.absolute_path)) or "its top"
            raise ConfigError("the output schema", f"{error.message} at {place}", "correct the schema") from None
        self.wrapped = schema.get("type", "object") != "object"
        inner = {key: value for key, value in schema.items() if key != "$schema"}
        self.input_schema = (
            {"type": "object", "properties": {"value": inner}, "required": ["value"]}
            if self.wrapped
            else {"type": "object", **inner}
        )
        self._validator = validator(self.input_schema)

    def parse(self, raw: Mapping[str, Any]) -> Any:
        problems = [
            f"{'/'.join(map(str, error.absolute_path)) or 'the answer'}: {error.message[:300]}"
            for error in sorted(self._validator.iter_errors(dict(raw)), key=lambda error: error.json_path)
        ]
        if problems:
            raise InvalidToolInput(self.name, problems[:MAX_PROBLEMS])
        return raw["value"] if self.wrapped else dict(raw)

    async def run(self, input: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput("The answer was taken.", details=input)
