"""The engines that a settings file can name by `kind`: the one place that knows them all."""

from whet.engine.native import NativeConfig

AnyEngineConfig = NativeConfig
"""The type of a setting `engine`; other code takes the base class `EngineConfig`.

A second engine makes it `Annotated[NativeConfig | OtherConfig, Field(discriminator="kind")]`.
"""
DEFAULT_ENGINE = NativeConfig()
