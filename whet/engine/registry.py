"""The engines that a settings file can name by `kind`: the only list of them."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from whet.engine.base import EngineConfig
from whet.engine.fleet_config import FleetConfig, VllmConfig
from whet.engine.native import NativeConfig
from whet.user_code import or_user_class

if TYPE_CHECKING:
    AnyEngineConfig = EngineConfig
else:
    AnyEngineConfig = Annotated[
        Annotated[NativeConfig | FleetConfig | VllmConfig, Field(discriminator="kind")],
        or_user_class(EngineConfig, "engine.kind"),
    ]
"""The type of a setting `engine`: an engine of the package, or of the user's own file."""
DEFAULT_ENGINE = NativeConfig()
