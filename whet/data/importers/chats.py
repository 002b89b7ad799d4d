"""Chats: messages with role and content, or with from and value, as other systems write them."""

from whet.data.importers.base import one_of, parsed, shown
from whet.errors import DataError
from whet.types import Json, Message, Speaker

ROLES: dict[str, Speaker] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}


def messages(value: Json, name: str) -> tuple[Message, ...]:
    """Read a chat: role and content, or from and value; content may be a list of text parts."""
    value = parsed(value)
    if not isinstance(value, list) or not value:
        raise DataError(f"field {name!r} should be a list of messages, not {shown(value)}")
    return tuple(_message(item, name) for item in value)


def _message(item: Json, name: str) -> Message:
    if not isinstance(item, dict):
        raise DataError(
            f"field {name!r} should hold messages with role and content, not {shown(item)}"
        )
    role = one_of("role", str(item.get("role", item.get("from"))), ROLES)
    content = item.get("content", item.get("value"))
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "".join(part for part in parts if isinstance(part, str)) if all(parts) else None
    if not isinstance(content, str):
        raise DataError(f"a message in {name!r} should have text as its content, not {shown(item)}")
    return Message(role=ROLES[role], content=content)


def before_last(chat: tuple[Message, ...], name: str) -> tuple[tuple[Message, ...], str]:
    if chat[-1].role != "assistant" or not chat[-1].content.strip():
        raise DataError(f"the chat in {name!r} should end with a message of the assistant")
    return chat[:-1], chat[-1].content
