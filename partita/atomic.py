"""Files that are there as a whole or not at all, also when the machine stops in between."""

import os
import secrets
from pathlib import Path

__all__ = ["write"]


def write(contents: dict[str, bytes]) -> None:
    """Write all files or none: under temporary names in their folders first, then renamed once all are on the disk."""
    targets = {os.path.realpath(path): content for path, content in contents.items()}
    names = {target: Path(target).with_name(f".partita-{secrets.token_hex(8)}.tmp") for target in targets}
    try:
        for target, content in targets.items():
            with open(names[target], "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for target, name in names.items():
            os.replace(name, target)
    finally:
        for name in names.values():
            name.unlink(missing_ok=True)
