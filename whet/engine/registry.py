"""The engines that a settings file can name by `kind`: the one place that knows them all."""

from typing import Annotated

from pydantic import Field

from whet.engine.fleet_config import FleetConfig, VllmConfig
from whet.engine.native import NativeConfig

AnyEngineConfig = Annotated[NativeConfig | FleetConfig | VllmConfig, Field(discriminator="kind")]
"""The type of a setting `engine`; other code takes the base class `EngineConfig`."""
DEFAULT_ENGINE = NativeConfig()
