"""What a user can mend, each as one sentence. The command line prints it and exits with code 2."""


class WhetError(Exception):
    """The message names the thing, its value, and what would be right."""


class ConfigError(WhetError):
    """A setting, flag or file name that cannot be used as given."""


class DataError(WhetError):
    """A row, file, checkpoint or model folder that cannot be read as it is."""


class EngineError(WhetError):
    """A request the engine cannot serve: too long, out of memory, unknown token."""


class TrainError(WhetError):
    """Training that cannot go on: a gradient that is not finite, no usable group for many steps."""
