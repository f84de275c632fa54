"""Files that are written as a whole or not at all, also when the machine stops in between."""

import os
import secrets
from pathlib import Path

__all__ = ["write"]


def write(contents: dict[str, bytes]) -> None:
    """Write all files or none: first under temporary names in their folders, renamed once all are on the disk.

    Parameters
    ----------
    contents : dict of str to bytes
        The content of each file by its path.
    """
    targets = {os.path.realpath(path): content for path, content in contents.items()}
    temporary = {target: Path(target).with_name(f".partita-{secrets.token_hex(8)}.tmp") for target in targets}
    try:
        for target, content in targets.items():
            with open(temporary[target], "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for target, path in temporary.items():
            os.replace(path, target)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)
